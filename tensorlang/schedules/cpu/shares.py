"""What tiles of windows have in common: how wide they are computed, how loops are shared out and weights fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from tensorlang import dtypes
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of

_WORTH_THREADS = 1 << 20
"""Operations below which starting threads costs more than they bring."""
_AHEAD = 1 << 13
"""Bytes of weights that are on their way to the cache: in networks they come from far, even where they would stay."""
_STEPS, _TURNS, _FEWEST = 8, 4, 3
"""Steps of a turn, turns and sharers, at least, by which what the next tile reads is shared out."""
_SHARES = 16
"""Iterations for each core, so that none waits long for the last."""


def computed_bits(dtype: str) -> int:
    """The bits in which elements are computed: half precision is computed in single."""
    d = dtypes.info(dtype)
    return max(32, d.bits) if d.is_float else d.bits


def worth_threads(extents: Mapping[str, int], target: Target) -> bool:
    """Whether a nest of loops of these extents, those that are known, is worth the start of threads."""
    return target.cores > 1 and prod(extents.values()) >= _WORTH_THREADS


def share_out(s: Schedule, stage: str, loops: Sequence[str], target: Target) -> tuple[str, list[str]]:
    """Run outer loops in parallel: the first, fused with those inside it until there are iterations for all cores.

    Returns that loop, and those that it is made of.
    """
    total, shared = 1, list[str]()
    for loop in loops:
        extent = extent_of(s.state.axis(stage, loop).extent)
        if extent is None and shared:
            break
        shared.append(loop)
        total *= extent or _SHARES * target.cores
        if total >= _SHARES * target.cores:
            break
    loop = str(s[stage].fuse(*shared)) if len(shared) > 1 else shared[0]
    s[stage].parallel(loop)
    return loop, shared


def fetch_weights(stage: Stage, weights: str, term: str, along: str, shared: str, sharers: int, step: int) -> None:
    """Prefetch weights of the next iteration of `along`, while the `sharers` iterations of `shared` read the same ones.

    Each asks for its share in each turn of steps over the terms. Where there are too few terms, or nobody to share
    with, those of some steps later, each of so many bytes.
    """
    steps = sharers * ceil(_STEPS / sharers)
    terms = extent_of(stage.schedule.state.axis(stage.name, term).extent) or 0
    if sharers < _FEWEST or steps * _TURNS > terms:
        stage.prefetch(weights, term, max(1, _AHEAD // step))
    else:
        turn, _ = stage.split(term, factor=steps, tail="peel")
        stage.prefetch(weights, turn, 1, along=along, shared=shared)
