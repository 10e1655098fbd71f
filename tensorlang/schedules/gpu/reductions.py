"""Reductions on a GPU: threads of a block reduce a row together, or neighbouring columns side by side."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, compute_op
from tensorlang.schedules.cpu.reductions import runs_along_rows
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.gpu.blocks import BLOCKS, THREADS, exact_lanes, extents, fused, limits, product
from tensorlang.schedules.gpu.rows import Team, make_blocks, reduce_together, team_of
from tensorlang.te.operation import ComputeOp

_ROWS = 8
"""Elements of a column that each thread of a piece has at least."""


def schedule_reduction(s: Schedule, anchor: Anchor) -> None:
    """Reduce every row in one block, or with a warp of it; too few rows for the GPU are cut in pieces first.

    The sums of the pieces go through global memory, to a second kernel.
    """
    piece = _piece(s, anchor)
    if piece is not None:
        along = fused(s, anchor.main, [axis.name for axis in compute_op(s, anchor.main).reduce_axes])
        outer, _ = s[anchor.main].split(along, factor=piece)
        part = partial_results(s, anchor.main, outer.name, 0)
        _reduce_rows(s, Anchor(part, part, anchor.target))
    _reduce_rows(s, anchor)


def _reduce_rows(s: Schedule, anchor: Anchor) -> None:
    main = compute_op(s, anchor.main)
    names = [axis.name for axis in compute_op(s, anchor.output).axes]
    team = _team(s, anchor, main)
    if not names:
        reduce_together(s, anchor.main, replace(team, along=max(team.along, 2)))
        return
    made = anchor.main if anchor.main != anchor.output else _results(s, anchor.main)
    block = make_blocks(s, anchor.output, names, team)
    reduce_together(s, made, team)
    s[made].compute_at(s[anchor.output], block)
    s[made].set_scope("shared")


def _results(s: Schedule, stage: str) -> str:
    """A stage that holds the results of a reduction in shared memory, until they are complete."""
    made = s.cache_write(stage, "shared")
    return s.name_of(made[0] if isinstance(made, list | tuple) else made)


def _team(s: Schedule, anchor: Anchor, main: ComputeOp) -> Team:
    reduced = extents(s, anchor.main, [axis.name for axis in main.reduce_axes])
    rows = extents(s, anchor.main, [axis.name for axis in main.axes])
    is_contiguous = runs_along_rows(main) or not main.axes
    lanes = exact_lanes(main, main.reduce_axes[-1].name, reduced[-1])
    return team_of(product(reduced), rows, lanes, limits(anchor.target).max_threads, is_contiguous)


def _piece(s: Schedule, anchor: Anchor) -> int | None:
    """How long the pieces are in which a reduction is cut; None where there are rows enough, or they are short."""
    main = compute_op(s, anchor.main)
    length = product(extents(s, anchor.main, [axis.name for axis in main.reduce_axes]))
    rows = product(extents(s, anchor.main, [axis.name for axis in main.axes]))
    if length is None or not rows:
        return None
    team = _team(s, anchor, main)
    least = team.lanes * THREADS if team.is_contiguous else _ROWS * team.along
    pieces = min(-(-BLOCKS * team.across // rows), length // least)
    if pieces <= 1:
        return None
    wanted = -(-length // pieces)
    exact = next((n for n in range(wanted, 2 * wanted) if length % n == 0 and n % team.lanes == 0), None)
    return exact or -(-wanted // team.lanes) * team.lanes
