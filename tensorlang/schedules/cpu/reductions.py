"""Reductions with their results: vectors of partial results along rows, or across columns."""

from __future__ import annotations

from functools import partial
from math import prod as product

from tensorlang import dtypes
from tensorlang.ir.expr import Load, variables, walk
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, accumulator
from tensorlang.schedules.cpu.points import GRAIN, run_in_parallel, work_of
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.cpu.rows import fused, partial_results, reduce_in_lanes
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp

_JAM = 4
"""Rows that are added to an accumulator at a time when columns are reduced."""


def schedule_reduction(s: Schedule, anchor: Anchor) -> None:
    """Vectors of partial results along rows, or across columns; too few rows for the threads are cut in pieces."""
    pieces = _pieces(s, anchor)
    if pieces:
        op = s.program[anchor.main]
        along = fused(s[anchor.main], [axis.name for axis in op.reduce_axis])
        outer, _ = s[anchor.main].split(along, nparts=pieces)
        part = partial_results(s, anchor.main, outer.name, 0)
        _schedule(s, Anchor(part, part, anchor.target))
    _schedule(s, anchor)


def _schedule(s: Schedule, anchor: Anchor) -> None:
    main, out = s.program[anchor.main], s.program[anchor.output]
    assert isinstance(main, ComputeOp) and isinstance(out, ComputeOp)
    if not out.axes:
        if anchor.main != anchor.output:
            s[anchor.main].set_scope("local")
        return
    if runs_along_rows(main):
        _rows(s, anchor, main)
    else:
        _columns(s, anchor, main)


def _rows(s: Schedule, anchor: Anchor, main: ComputeOp) -> None:
    steps = reduce_in_lanes(s, anchor.main, anchor.target.lanes(widest(main)))
    out = s.program[anchor.output]
    loop = run_in_parallel(s, anchor.output, [a.name for a in out.axis], anchor.target, work_of(main))
    for name in ([anchor.main] if anchor.main != anchor.output else []) + steps:
        s[name].compute_at(s[anchor.output], loop)
        s[name].set_scope("local")


def _columns(s: Schedule, anchor: Anchor, main: ComputeOp) -> None:
    tile = accumulator(s, anchor)
    out, made = s[anchor.output], s.program[anchor.output]
    along = max((d for d, axis in enumerate(made.axis) if extent_of(axis.extent) != 1), default=len(made.axis) - 1)
    last = made.axis[along]
    outer = [axis.name for axis in made.axis if axis is not last]
    width = _column_tile(last, anchor.target.lanes(widest(main)), anchor)
    column, vector = out.split(last.name, factor=width, tail="peel")
    if last is not made.axis[-1]:
        out.reorder(*outer, column, vector)
    out.vectorize(vector)
    loop = run_in_parallel(s, anchor.output, [*outer, column.name], anchor.target, work_of(main))
    s[tile].compute_at(out, loop)
    spatial = [axis.name for axis in s.program[tile].axis]
    across = spatial.pop(along)
    *far, near = [axis.name for axis in s.program[tile].reduce_axis]
    rows, jam = s[tile].split(near, factor=_JAM, tail="peel")
    s[tile].reorder(*spatial, *far, rows, across, jam)
    s[tile].unroll(jam)
    s[tile].vectorize(across)


def _pieces(s: Schedule, anchor: Anchor) -> int:
    """Into how many pieces the reduction itself is cut: enough for the threads, where its results are too few."""
    op = s.program[anchor.main]
    assert isinstance(op, ComputeOp)
    least = 0 if op.axes else 1
    extents = [extent_of(axis.extent) for axis in op.axes]
    length = product(extent_of(axis.extent) or 1 for axis in op.reduce_axes)
    if None in extents or any(extent_of(axis.extent) is None for axis in op.reduce_axes):
        return least
    results = product(n for n in extents if n is not None)
    if not runs_along_rows(op):
        results = -(-results // (_JAM * anchor.target.lanes(widest(op))))
    enough_work = length * product(n for n in extents if n is not None) >= 2 * GRAIN
    if anchor.target.cores == 1 or results >= anchor.target.cores or not enough_work:
        return least
    return min(2 * anchor.target.cores, length)


def _column_tile(column: Axis, lanes: int, anchor: Anchor) -> int:
    """Columns that are reduced together: their sums stay in the L1 cache, and every thread has some."""
    extent = extent_of(column.extent)
    most = anchor.target.caches[0] // 8 // (64 // lanes)
    if extent is None:
        return most
    share = -(-extent // (2 * anchor.target.cores)) if anchor.target.cores > 1 else extent
    return min(most, max(_JAM * lanes, -(-share // lanes) * lanes), extent)


def runs_along_rows(op: ComputeOp) -> bool:
    """Whether neighbouring elements in memory belong to one result, of what is read most of."""
    inside = {axis.name for axis in op.reduce_axes}
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load) and node.index]
    moved = [len(set().union(*map(variables, load.index))) for load in loads]
    return any(variables(load.index[-1]) & inside for load, n in zip(loads, moved, strict=True) if n == max(moved))


def widest(op: ComputeOp) -> int:
    """The bits of the widest element that a stage makes."""
    return max(dtypes.info(dtype).bits for dtype in op.dtypes)


def lane_forms(target: Target, group: Group) -> list[Form]:
    """Forms for any reduction: lanes of partial results, or its loops as declared."""
    if not group.main.reduce:
        return []
    return [
        Form(
            "lanes", partial(_schedule_lanes, group=group), True, "what it reads is used once or twice: vectors of sums"
        ),
        Form("declared", partial(_schedule_declared, group=group), True, "as declared, the innermost loop written out"),
    ]


def _schedule_lanes(room: Room, group: Group) -> None:
    s = room.s
    place_producers(room, group, inline=True)
    for stage in group.between:
        s[stage.name].compute_inline()
    schedule_reduction(s, Anchor(group.main.name, group.output.name, room.target))


def _schedule_declared(room: Room, group: Group) -> None:
    s = room.s
    place_producers(room, group, inline=True)
    for stage in group.between:
        s[stage.name].compute_inline()
    main, loops = group.main, s[group.main.name]
    _, inner = loops.split(main.reduce[-1], factor=min(8, main.extents[main.reduce[-1]]))
    loops.unroll(inner)
    if room.target.cores > 1 and main.spatial:
        s.attempt(lambda: loops.parallel(main.spatial[0]))
