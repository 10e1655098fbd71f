"""What tiles of windows have in common: how wide they are computed, and how the loops around are shared out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tensorlang import dtypes
from tensorlang.schedule import Schedule
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of

_WORTH_THREADS = 1 << 20
"""Operations below which starting threads costs more than they bring."""
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
