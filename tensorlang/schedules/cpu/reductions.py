"""Reductions with their results: vectors of partial results along rows, or across columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod as product

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Const, Load, Var, variables, walk
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.accesses import operations_of_point
from tensorlang.schedules.anchor import Anchor, accumulator
from tensorlang.schedules.candidates import UNROLLS, column_blocks, up_to
from tensorlang.schedules.cpu.points import GRAIN, contiguous_axes, run_in_parallel, work_of
from tensorlang.schedules.cpu.producers import anchor_of, place_producers
from tensorlang.schedules.cpu.register_tile import MANY
from tensorlang.schedules.cpu.rows import chosen_width, first_width, fused, partial_results, reduce_in_lanes
from tensorlang.schedules.recognise import Group, is_read_often
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import ComputeOp

_JAM, _FAR_JAM = 4, 8
"""Rows that are added to an accumulator at a time when columns are reduced: near ones, and those from memory."""
_SUMS = 8
"""Vectors of sums over panels, which stay in registers."""
_JAMS = (1, 2, 4, 8)
_SHORT = 4
"""Terms that are too few for vectors along them."""


def _schedule_lanes(room: Room, group: Group) -> None:
    """Vectors of partial results along rows, or across columns; too few rows for the threads are cut in pieces."""
    again = any(operations_of_point(p.op) and is_read_often(group, p) for p in group.producers)
    place_producers(room, group, inline=not again)
    schedule_sums(room, anchor_of(room, group))


def schedule_sums(room: Room, anchor: Anchor, prefix: str = "") -> None:
    """The same for one reduction; `prefix` begins the names of its sizes."""
    s = room.s
    pieces = _pieces(s, anchor)
    if pieces:
        op = s.program[anchor.main]
        along = fused(s[anchor.main], [axis.name for axis in op.reduce_axis])
        outer, _ = s[anchor.main].split(along, nparts=pieces)
        part = partial_results(s, anchor.main, outer.name, 0)
        _schedule(room, Anchor(part, part, anchor.target), f"{prefix}part_")
    _schedule(room, anchor, prefix)


def _schedule(room: Room, anchor: Anchor, prefix: str) -> None:
    s = room.s
    main, out = s.program[anchor.main], s.program[anchor.output]
    assert isinstance(main, ComputeOp) and isinstance(out, ComputeOp)
    if not out.axes:
        if anchor.main != anchor.output:
            s[anchor.main].set_scope("local")
        return
    length = product(extent_of(axis.extent) or MANY for axis in main.reduce_axes)
    if runs_along_rows(main) and length > _SHORT and not _are_scattered(main, length, anchor.target):
        _rows(room, anchor, main, length, prefix)
    else:
        _columns(room, anchor, main, prefix)


def _rows(room: Room, anchor: Anchor, main: ComputeOp, length: int, prefix: str) -> None:
    s, lanes = room.s, anchor.target.lanes(widest(main))
    steps = reduce_in_lanes(s, anchor.main, lanes, chosen_width(room, first_width(length, lanes), lanes, prefix))
    out = s.program[anchor.output]
    loop = run_in_parallel(s, anchor.output, [a.name for a in out.axis], anchor.target, work_of(main))
    for name in ([anchor.main] if anchor.main != anchor.output else []) + steps:
        s[name].compute_at(s[anchor.output], loop)
        s[name].set_scope("local")


def _columns(room: Room, anchor: Anchor, main: ComputeOp, prefix: str) -> None:
    s, lanes = room.s, anchor.target.lanes(widest(main))
    tile = accumulator(s, anchor)
    out, made = s[anchor.output], s.program[anchor.output]
    along = max((d for d, axis in enumerate(made.axis) if extent_of(axis.extent) != 1), default=len(made.axis) - 1)
    last = made.axis[along]
    outer = [axis.name for axis in made.axis if axis is not last]
    summed = s.program[tile]
    assert isinstance(summed, ComputeOp) and isinstance(made, ComputeOp)
    if together := _short_rows(main, made, lanes):
        _columns_of_short_rows(room, anchor, tile, together, prefix)
        return
    is_far = _bytes_read(summed) > anchor.target.caches[-1]
    usual = _column_tile(last, lanes, anchor, is_far)
    if panel := _panel(summed, summed.axes[-1].name):
        usual = min(usual, max(1, _SUMS * lanes // panel) * panel)
    width = room.choose(f"{prefix}width", column_blocks(extent_of(last.extent) or MANY, lanes), usual)
    column, vector = out.split(last.name, factor=width, tail="peel")
    if last is not made.axis[-1]:
        out.reorder(*outer, column, vector)
    out.vectorize(vector)
    loop = run_in_parallel(s, anchor.output, [*outer, column.name], anchor.target, work_of(main))
    s[tile].compute_at(out, loop)
    spatial = [axis.name for axis in s.program[tile].axis]
    across = spatial.pop(along)
    *far, near = [axis.name for axis in s.program[tile].reduce_axis]
    jams = room.choose(f"{prefix}jam", _JAMS, _FAR_JAM if is_far else _JAM)
    rows, jam = s[tile].split(near, factor=jams, tail="peel")
    s[tile].reorder(*spatial, *far, rows, across, jam)
    s[tile].unroll(jam)
    s[tile].vectorize(across)


def _short_rows(main: ComputeOp, made: ComputeOp, lanes: int) -> list[int]:
    """How much of the last axes of a result makes one vector loop, where the last is short and these lie side by side.

    All of them but of the first, of which it is a part that leaves no rest; none where the last is no short row.
    """
    axes, found = made.axes, list[int]()
    extents = [extent_of(axis.extent) for axis in axes]
    if None in extents or (extents[-1] or 0) >= lanes:
        return []
    for axis in axes[: -min(contiguous_axes(main), contiguous_axes(made)) - 1 : -1]:
        extent, room = extent_of(axis.extent) or 1, _SUMS * lanes // product(found)
        found.insert(0, max(part for part in range(1, min(extent, room) + 1) if extent % part == 0))
        if found[0] != extent:
            break
    return found if len(found) > 1 and product(found) >= lanes else []


def _columns_of_short_rows(room: Room, anchor: Anchor, tile: str, together: list[int], prefix: str) -> None:
    """Sum columns of several rows at once, which lie one behind the other."""
    s, main = room.s, room.s.program[tile]
    assert isinstance(main, ComputeOp)
    work, out = work_of(main), s[anchor.output]
    names, count = [axis.name for axis in out.op.axis], len(together)
    around, inside = out.split(names[-count], factor=together[0])
    out.reorder(*names[:-count], around, inside, *names[1 - count :])
    out.vectorize(out.fuse(inside, *names[1 - count :]))
    loop = run_in_parallel(s, anchor.output, [*names[:-count], around.name], anchor.target, work)
    s[tile].compute_at(out, loop)
    axes = [axis.name for axis in s[tile].op.axis]
    _add_rows(s[tile], axes[:-count], axes[-count:], room.choose(f"{prefix}jam", _JAMS, _JAM))


def _add_rows(tile: Stage, around: Sequence[str], across: Sequence[str], jams: int) -> None:
    """Add some rows of a reduction at a time to sums, whose axes `across` are one vector loop."""
    *far, near = [axis.name for axis in tile.op.reduce_axis]
    rows, jam = tile.split(near, factor=jams, tail="peel")
    tile.reorder(*around, *far, rows, *across, jam)
    tile.unroll(jam)
    tile.vectorize(tile.fuse(*across) if len(across) > 1 else across[0])


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


def _bytes_read(op: ComputeOp) -> int:
    """Bytes of the largest part of an array that a reduction reads; 0 where that is not known."""
    extents = {axis.name: extent_of(axis.extent) or 0 for axis in (*op.axes, *op.reduce_axes)}
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load)]
    moved = ((load, frozenset[str]().union(*map(variables, load.index))) for load in loads)
    parts = [product(extents.get(n, 1) for n in axes) * dtypes.info(load.dtype).bytes for load, axes in moved]
    return max(parts, default=0)


def _panel(op: ComputeOp, column: str) -> int:
    """How wide the panels are in which columns were laid out ahead, whose rows lie apart; 0 where there are none."""
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load)]
    for part in (index for load in loads for index in load.index):
        match part:
            case Binary(op="floordiv", a=Var(name), b=Const(width)) if name == column:
                return int(width)
    return 0


def _column_tile(column: Axis, lanes: int, anchor: Anchor, is_far: bool) -> int:
    """Columns that are reduced together: their sums stay in the L1 cache, and every thread has some.

    Of rows that come from memory each thread reads all of its part in order, and the sums stay in the second cache.
    """
    extent = extent_of(column.extent)
    most = (anchor.target.second_cache if is_far else anchor.target.caches[0]) // 8 // (64 // lanes)
    if extent is None:
        return most
    turns = 1 if is_far else 2
    share = -(-extent // (turns * anchor.target.cores)) if anchor.target.cores > 1 else extent
    return min(most, max(_JAM * lanes, -(-share // lanes) * lanes), extent)


def runs_along_rows(op: ComputeOp) -> bool:
    """Whether neighbouring elements in memory belong to one result, of what is read most of."""
    inside = {axis.name for axis in op.reduce_axes}
    extents = {axis.name: extent_of(axis.extent) or MANY for axis in (*op.axes, *op.reduce_axes)}
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load) and node.index]
    moved = [product(extents.get(name, 1) for name in set().union(*map(variables, load.index))) for load in loads]
    return any(variables(load.index[-1]) & inside for load, n in zip(loads, moved, strict=True) if n == max(moved))


def _are_scattered(op: ComputeOp, length: int, target: Target) -> bool:
    """Whether vectors of the terms of a result would be put together from several places."""
    together, lanes = _terms_side_by_side(op), target.lanes(widest(op))
    return together < min(length, lanes) and (together <= _SHORT or lanes % together != 0)


def _terms_side_by_side(op: ComputeOp) -> int:
    """How many terms of a result lie side by side where it reads most; many where a read is of no single axes."""
    extents = {axis.name: extent_of(axis.extent) or MANY for axis in op.reduce_axes}
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load) and node.index]
    found = []
    for load in loads:
        length = 1
        for index, size in zip(reversed(load.index), reversed(load.buffer.shape), strict=True):
            if not isinstance(index, Var):
                length = MANY if variables(index) & extents.keys() else length
                break
            if index.name not in extents:
                break
            length *= extents[index.name]
            if extents[index.name] != extent_of(size):
                break
        found.append(length)
    return max(found, default=1)


def widest(op: ComputeOp) -> int:
    """The bits that the widest element of a stage takes in memory."""
    return max(8 * dtypes.info(dtype).bytes for dtype in op.dtypes)


def lane_forms(target: Target, group: Group) -> list[Form]:
    """Forms for any reduction: lanes of partial results, or its loops as declared."""
    if not group.main.reduce:
        return []
    lanes = "what it reads is used once or twice: vectors of sums"
    return [
        Form("lanes", partial(_schedule_lanes, group=group), lanes),
        Form("declared", partial(_schedule_declared, group=group), "as declared, the innermost loop written out"),
    ]


def _schedule_declared(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)
    s, main = room.s, group.main
    loops = s[anchor_of(room, group).main]
    usual = min(UNROLLS[-1], main.extents[main.reduce[-1]])
    _, inner = loops.split(main.reduce[-1], factor=room.choose("unroll", up_to(UNROLLS, usual), usual))
    loops.unroll(inner)
    if room.target.cores > 1 and main.spatial:
        s.attempt(lambda: loops.parallel(main.spatial[0]))
