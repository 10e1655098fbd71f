"""Reductions on a GPU: threads of a block reduce a row together, or neighbouring columns side by side."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil, prod

from tensorlang.schedule import Schedule
from tensorlang.schedules.accesses import about
from tensorlang.schedules.anchor import Anchor, compute_op
from tensorlang.schedules.cpu.producers import anchor_of
from tensorlang.schedules.cpu.reductions import runs_along_rows
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.gpu.block import points
from tensorlang.schedules.gpu.blocks import BLOCKS, THREADS, exact_lanes, extents, fused, limits, product
from tensorlang.schedules.gpu.elements import inline_producers
from tensorlang.schedules.gpu.rows import Team, chosen_team, make_blocks, reduce_together, team_of
from tensorlang.schedules.recognise import Group, Stage
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp

_ROWS = 8
"""Elements of a column that each thread of a piece has at least."""
FEW_RESULTS = 1 << 9
"""With more results there are enough blocks without summing in parts."""
LONG = 1 << 13
"""Terms that are worth a second kernel."""
_SHARED_USES = 4
_MANY_RESULTS = 1 << 13
_TERMS = (1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15)
"""Terms of a part."""


def sum_forms(target: Target, group: Group) -> list[Form]:
    """Forms for any reduction: the threads of a block sum one or several results; in parts, where results are few."""
    main = group.main
    if not main.reduce or group.parts or _is_product(main):
        return []
    found = [Form("sums", partial(_schedule, group=group, in_parts=False))]
    terms, results = (points(main.extents, axes) for axes in (main.reduce, main.spatial))
    if results <= FEW_RESULTS and terms >= LONG and len(main.op.body) == 1:
        found.insert(0, Form("sums.parts", partial(_schedule, group=group, in_parts=True)))
    return found


def _is_product(stage: Stage) -> bool:
    """Whether many results share what they read: tiles are better in any case."""
    uses = min((stage.points / points(stage.extents, r.axes) for r in stage.reads if r.axes), default=1)
    return uses >= _SHARED_USES and points(stage.extents, stage.spatial) >= _MANY_RESULTS


def _schedule(room: Room, group: Group, in_parts: bool) -> None:
    inline_producers(room, group)
    schedule_reduction(room, anchor_of(room, group), in_parts)


def schedule_reduction(room: Room, anchor: Anchor, in_parts: bool | None = None) -> None:
    """Reduce every row in one block, or with a warp of it; in parts first, or (None) where the GPU has too few rows.

    The sums of the parts go through global memory, to a second kernel.
    """
    s, piece = room.s, _piece(room.s, anchor)
    if piece is not None if in_parts is None else in_parts:
        terms = prod(about(axis.extent) for axis in compute_op(s, anchor.main).reduce_axes)
        sizes = [n for n in _TERMS if n < terms] or [ceil(terms / 2)]
        _reduce_rows(s, _part(s, anchor, room.choose("part", sizes, piece)), room, "part_")
    _reduce_rows(s, anchor, room)


def _part(s: Schedule, anchor: Anchor, size: int) -> Anchor:
    """A stage that reduces pieces of so many terms."""
    along = fused(s, anchor.main, [axis.name for axis in compute_op(s, anchor.main).reduce_axes])
    outer, _ = s[anchor.main].split(along, factor=size)
    part = partial_results(s, anchor.main, outer.name, 0)
    return Anchor(part, part, anchor.target)


def _reduce_rows(s: Schedule, anchor: Anchor, room: Room, prefix: str = "") -> None:
    main = compute_op(s, anchor.main)
    names = [axis.name for axis in compute_op(s, anchor.output).axes]
    team = _team(s, anchor, main)
    if not names:
        team = replace(team, along=max(team.along, 2))
    length, rows = (prod(about(axis.extent) for axis in axes) for axes in (main.reduce_axes, main.axes))
    team = chosen_team(room, team, length, rows, prefix)
    if not names:
        reduce_together(s, anchor.main, team)
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
