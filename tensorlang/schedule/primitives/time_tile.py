"""Compound steps for programs that move through time: plans made of named primitives, proven step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tensorlang import config
from tensorlang.errors import BadArgument, IllegalOrder
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.hyperplanes import BandDependence, band_dependences, nonnegative_row, two_sided_row
from tensorlang.polyhedral.legality import Violation
from tensorlang.polyhedral.witness import explain
from tensorlang.schedule.check import is_legal, too_complex
from tensorlang.schedule.derive import derive
from tensorlang.schedule.matrix import Row
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedule.primitives.affine import TileBy, band
from tensorlang.schedule.primitives.annotate import Parallel
from tensorlang.schedule.primitives.loops import Reorder, Skew
from tensorlang.schedule.state import ScheduleState

SHAPES = ("rectangular", "diamond")
MOST_SKEW = 4  # of a wavefront: tiles rarely need more than their sum


def plan_time_tile(
    state: ScheduleState, stage: str, time: str, space: Sequence[str], sizes: Sequence[int], shape: str
) -> tuple[Primitive, ...]:
    """Plan tiles that span several iterations of `time`: the rows are the smallest skews that no dependence opposes.

    `sizes` are those of time, then of the space axes. IllegalOrder names a dependence when there are no such rows.
    """
    if shape not in SHAPES:
        raise BadArgument("", f"unknown shape {shape!r}; there are {', '.join(SHAPES)}")
    axes = band(state, stage, (time, *space), "time_tile")
    if len(sizes) != len(axes):
        raise BadArgument("", f"time_tile needs a size for each of {len(axes)} axes, got {len(sizes)}")
    if shape == "diamond" and len(axes) < 2:
        raise BadArgument("", "diamonds need a space axis")
    try:
        with isl.budget(config.get("budget")):
            rows = _rows(state, stage, axes, shape)
    except isl.BudgetExceeded:
        raise too_complex("", "the search for hyperplanes") from None
    return (TileBy(stage, axes, rows, tuple(sizes), (0,) * len(axes)),)


def _rows(state: ScheduleState, stage: str, axes: tuple[str, ...], shape: str) -> tuple[Row, ...]:
    width = len(axes)
    found = list(band_dependences(derive(state).scop, [f"{stage}.{a}" for a in axes]))
    rows = [_row(found, k, axes) for k in range(width)]
    if shape == "diamond":
        both = two_sided_row(found, 0, 1, width)
        if both is None:
            left = tuple(-int(k == 1) for k in range(width))
            raise _opposed(found, [left], f"no skew by {axes[0]} points forward on both sides of {axes[1]}", axes)
        rows[0], rows[1] = both, tuple(-c if k == 1 else c for k, c in enumerate(both))
    return tuple(rows)


def _row(found: Sequence[BandDependence], axis: int, axes: tuple[str, ...]) -> Row:
    row = nonnegative_row(found, axis, len(axes))
    if row is not None:
        return row
    unit = tuple(int(k == axis) for k in range(len(axes)))
    around = " and ".join(axes[:axis]) or "nothing"
    raise _opposed(found, [unit], f"no skew of {axes[axis]} by {around} points forward along all dependences", axes)


def _opposed(found: Sequence[BandDependence], rows: Sequence[Row], why: str, axes: tuple[str, ...]) -> IllegalOrder:
    """The error that shows the smallest pair which runs against one of some rows."""
    for dependence in found:
        for row in rows:
            pairs = dependence.backwards(row)
            if not pairs.is_empty():
                witness = explain(Violation(dependence.kind, dependence.array, pairs, dependence.space))
                return IllegalOrder("", why, witness=witness, suggested=[f"tiles of fewer axes than {', '.join(axes)}"])
    return IllegalOrder("", why)


def plan_wavefront(state: ScheduleState, stage: str, axes: Sequence[str]) -> tuple[Primitive, ...]:
    """Plan a loop over wavefronts, around the first of the axes in parallel, then the others but the last.

    The wavefront is the last axis skewed by the others; the factors are tried, smallest first, and proven. When none
    will do, the plan is that of the smallest, whose proof tells why.
    """
    leaves = band(state, stage, axes, "wavefront")
    if len(leaves) < 2:
        raise BadArgument("", "wavefront needs at least two axes")
    plans = (_wave(state, stage, leaves, factors) for factors in _factors(len(leaves) - 1))
    first: tuple[Primitive, ...] = ()
    for steps, made in plans:
        first = first or steps
        if is_legal(made):
            return steps
    return first


def _factors(count: int) -> Iterator[Row]:
    """Positive factors by their sum; all at least 1, since every axis but the last is to be carried."""
    yield from sorted(product(range(1, MOST_SKEW + 1), repeat=count), key=lambda row: (sum(row), row))


def _wave(
    state: ScheduleState, stage: str, axes: tuple[str, ...], factors: Row
) -> tuple[tuple[Primitive, ...], ScheduleState]:
    *others, wave = axes
    steps: list[Primitive] = []

    def add(step: Primitive) -> str:
        nonlocal state
        state, made = step.apply(state)
        steps.append(step)
        return made[0] if made else ""

    for axis, factor in zip(others, factors, strict=True):
        wave = add(Skew(stage, wave, axis, factor))
    add(Reorder(stage, (wave, *others)))
    add(Parallel(stage, others[0]))
    return tuple(steps), state
