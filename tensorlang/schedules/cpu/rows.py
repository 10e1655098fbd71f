"""Schedules of operators that reduce rows, or columns, of an array and read them again: all passes in one cache.

A *row* is what one reduction covers; a *part* is a stage that helps to make the rows of an operator: a reduction of
rows, a value per row, or a value per element that is kept until the row is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import compute_op
from tensorlang.schedules.candidates import vector_widths
from tensorlang.schedules.cpu.points import is_larger, run_in_parallel, stream_out
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.recognise import Group, axes_read, stage_of
from tensorlang.schedules.recognise import Stage as Described
from tensorlang.schedules.roles import terms_of
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import read_buffers

_CHAINS = 4
"""Vectors into which a reduction accumulates side by side: the latency of an addition times two units."""
_TOGETHER = 4
"""Short rows that are made side by side where little is computed between two passes."""
_SHARES = 4
"""Steps over rows that there are for each thread at least."""
_BRANCHES = 4
"""Values that one step of the tree at the end of a reduction combines."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the rows of an operator are made: inside the loop `loop` of the stage `host`.

    `horizontal`: a row is contiguous, or made of pieces that are, and vectors of `lanes` elements run along it; if not,
    they run across neighbouring rows. `depth` dimensions of an array make a piece. The loop makes `together` rows at
    once, more than one only if they are horizontal, whose reductions have `width` partial results.
    """

    host: str
    loop: str
    lanes: int
    horizontal: bool
    depth: int
    together: int = 1
    width: int = 1


@dataclass(frozen=True, slots=True)
class Pass:
    """A stage that runs along a row, and its loop over vectors."""

    stage: str
    step: str


def row_forms(target: Target, group: Group) -> list[Form]:
    """Forms for a group with parts; `inline` computes elements again where they are read instead of keeping them."""
    if not group.parts:
        return []
    why = f"{', '.join(part.name for part in group.parts)} are of the same rows: all of a row where the row is made"
    words = {"rows.keep": False} | ({"rows.inline": True} if any(kept_elements(group)) else {})
    return [Form(name, partial(schedule_rows, group=group, inline=inline), why=why) for name, inline in words.items()]


def kept_elements(group: Group) -> list[Described]:
    """Parts that are as long as a row, and are read several times."""
    several = [part for part in group.parts if not part.reduce and len(part.spatial) > len(group.rows)]
    return [part for part in several if not group.is_read_once(part)]


def inline_parts(room: Room, group: Group, again: Sequence[Described]) -> list[str]:
    """Compute what is read once where it is read, and some parts again in each pass; the names of the others."""
    inlined = [part for part in group.parts if part in again or group.is_read_once(part)]
    for part in inlined:
        room.s[part.name].compute_inline()
    return [part.name for part in group.parts if part not in inlined]


def schedule_rows(room: Room, group: Group, inline: bool) -> None:
    """Make one row after the other (or a few neighbouring columns): every part of it inside the loop over rows.

    Where little is computed of each element, several short rows are made at once, if these and what is made of them fit
    in the first cache: the end of one row's reduction is a chain of instructions that wait for each other, as long as
    half a pass over 768 elements. Those of several rows fill each other's pauses.
    """
    s, long = room.s, kept_elements(group)
    place_producers(room, group, inline=False)
    parts = inline_parts(room, group, long if inline else [part for part in long if _is_too_long(room, group, part)])
    rows = _rows_of(room, group)
    passes = [schedule_part(s, name, rows) for name in reversed(parts)]
    along = [found for found in reversed(passes) if found is not None]
    _prefetch_next_rows(s, group, along, rows.together, room.target)


def _is_too_long(room: Room, group: Group, part: Described) -> bool:
    """Whether the L2 cache cannot keep the elements of a row: they are computed where they are read."""
    row = tuple(group.output.op.axes[d].extent for d in group.along)
    return is_larger(Buffer(part.name, row, part.op.dtype), room.target.caches[1:2])


def schedule_part(s: Schedule, name: str, rows: Rows) -> Pass | None:
    """Compute a part in local memory where the rows are made; the pass over the row that this takes, if it is one."""
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    stages, found = [name], None
    if op.reduce_axes and rows.horizontal:
        stages += reduce_in_lanes(s, name, rows.lanes, rows.width)
        *_, step, _ = [None, *s[stages[-1]].leaf_iter_vars]
        found = Pass(stages[-1], step.name) if len(stages) > 1 and step is not None else None
    elif rows.horizontal and len(op.axes) == len(s.program[rows.host].axis):
        along = fused(s[name], [axis.name for axis in op.axes[-rows.depth :]])
        step, vector = s[name].split(along, factor=_CHAINS * rows.lanes, tail="peel")
        s[name].vectorize(vector)
        found = Pass(name, step.name)
    elif not rows.horizontal:
        _across_rows(s, name)
    if rows.together > 1 and len(op.axes) < len(s.program[rows.host].axis):
        _side_by_side(s, name, stages[1:], found)
    for stage in stages:
        s[stage].compute_at(s[rows.host], rows.loop)
        s[stage].set_scope("local")
    return found


def _side_by_side(s: Schedule, name: str, steps: list[str], along: Pass | None) -> None:
    """Make the rows of a part that has a number for each at once: in every step of a pass over them, or as a vector."""
    row = s.program[name].axis[-1].name
    if not steps:
        s[name].vectorize(row)
        return
    for stage in (name, *steps):
        s[stage].unroll(row)
    if along is not None:
        *_, lanes = s[along.stage].leaf_iter_vars
        s[along.stage].reorder(along.step, row, lanes.name)


def _prefetch_next_rows(s: Schedule, group: Group, passes: list[Pass], together: int, target: Target) -> None:
    """Fetch the next rows of an array that the L2 cache cannot hold: in the second pass, which computes more.

    Several short rows are so many streams that the hardware follows none of them: they are fetched from L2, too.
    """
    readers: dict[str, list[Pass]] = {}
    for found in passes:
        for array in dict.fromkeys(read_buffers(s.program[found.stage])):
            readers.setdefault(array, []).append(found)
    for array, several in readers.items():
        stage, step = (chosen := several[min(1, len(several) - 1)]).stage, chosen.step
        made_here = s.program.producer[array] in s.state.stages
        steps = extent_of(s.state.axis(stage, step).extent)
        far = together > 1 or is_larger(s.program.buffers[array], target.caches[1:2])
        if not made_here and steps is not None and far and _lies_by_rows(group, array):
            s[stage].prefetch(array, step, steps * together)


def _lies_by_rows(group: Group, array: str) -> bool:
    """Whether the elements of a row lie together in an array, so that the next row is behind them."""
    for stage in (*group.parts, group.output):
        several = len(stage.spatial) > len(group.rows)
        row = {*stage.reduce, *(stage.spatial[d] for d in group.along if several)}
        for index in axes_read(stage.op, {array}):
            inside = [axis in row for axis in index]
            if inside != sorted(inside):
                return False
    return True


def reduce_in_lanes(s: Schedule, name: str, lanes: int, width: int | None = None) -> list[str]:
    """Reduce along contiguous memory: `width` partial results, some vectors, and a tree that combines them.

    Where only some axes of the reduction lie side by side, those are one loop, and the others are around it.
    Returns the stages of partial results, the last one first. They are where they were; the caller moves them.
    """
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    along = _fused_terms(s[name], op, lanes)
    steps: list[str] = []
    usual = first_width(extent_of(s.state.axis(name, along).extent), lanes)
    for several in _widths(usual if width is None else min(width, max(usual, lanes)), lanes):
        _, inner = s[name].split(along, factor=several, tail="peel")
        step = partial_results(s, name, inner.name, len(op.axes))
        _vectors_inside(s, step, unrolled=bool(steps))
        steps.append(step)
        along = s.program[name].reduce_axis[0].name
    s[name].unroll(along)
    return steps[::-1]


def _fused_terms(stage: Stage, op: ComputeOp, lanes: int) -> str:
    """One loop for the axes of a reduction, or for those that lie side by side, if they fill a vector."""
    axes = [axis.name for axis in op.reduce_axes]
    described = stage_of(op)
    terms = terms_of(described)
    if prod(described.extents[axis] for axis in terms) < lanes:
        return fused(stage, axes)
    around = [axis for axis in axes if axis not in terms]
    if around:
        stage.reorder(*around, *terms)
    return fused(stage, [*terms])


def partial_results(s: Schedule, name: str, axis: str, place: int) -> str:
    """Factor a reduction along one of its axes; the stage of partial results, which have it as dimension `place`."""
    made = s.rfactor(name, axis, factor_axis=place)
    return s.name_of(made[0] if isinstance(made, list) else made)


def first_width(extent: int | None, lanes: int, chains: int = _CHAINS) -> int:
    """How many partial results there are at first: some vectors, or fewer lanes of a short row."""
    most = lanes * chains if extent is None else min(extent // 2, lanes * chains)
    return lanes * (most // lanes) if most >= lanes else 1 << most.bit_length() - 1 if most else 1


def chosen_width(room: Room, usual: int, lanes: int, prefix: str = "") -> int:
    """How many partial results there are at first: several vectors, left open; or what a short row leaves."""
    return room.choose(f"{prefix}width", [lanes * n for n in (2, 3, 4, 6, 8)], usual) if usual > lanes else usual


def _widths(first: int, lanes: int) -> list[int]:
    """How many partial results there are after each step: one vector, then fewer lanes."""
    found = [first]
    while found[-1] > _BRANCHES:
        found.append(lanes if found[-1] > lanes else max(found[-1] // _BRANCHES, 1))
    return [width for width in found if width > 1]


def _vectors_inside(s: Schedule, step: str, unrolled: bool) -> None:
    """Order the loops of a stage of partial results: what is combined outside, vectors inside."""
    op = s.program[step]
    assert isinstance(op, ComputeOp)
    lane = op.axes[-1].name
    reduced = [axis.name for axis in op.reduce_axes]
    s[step].reorder(*reduced, lane)
    s[step].vectorize(lane)
    if unrolled:
        for axis in reduced:
            s[step].unroll(axis)


def _rows_of(room: Room, group: Group) -> Rows:
    """Shape the loops of the output: rows outside, in parallel; vectors inside."""
    s, target, op = room.s, room.target, compute_op(room.s, group.output.name)
    out = s[op.name]
    lanes = target.lanes(dtypes.info(op.dtype).bits)
    names = [axis.name for axis in op.axes]
    inside, outside = ([names[d] for d in dims] for dims in (group.along, group.rows))
    horizontal = names[-1] in inside
    if not horizontal:
        usual = _columns(op, inside, target)
        width = room.choose("columns", vector_widths(group.output.extents[names[-1]], lanes), usual)
        tile, vector = out.split(outside.pop(), factor=width, tail="peel")
        out.reorder(*outside, tile, *inside, vector)
        out.vectorize(vector)
        stream_out(s, op.name, vector.name, target)
        loop = tile.name
        run_in_parallel(s, op.name, outside or [loop], target)
        return Rows(op.name, loop, lanes, horizontal, len(inside))
    out.reorder(*outside, *inside)
    around = len([d for d in group.along if group.rows and d < max(group.rows)])
    depth, inside = len(inside) - around, [*inside[:around], fused(out, inside[around:])]
    if not outside:
        whole, along = out.split(inside[0], nparts=1)
        outside, inside = [whole.name], [along.name]
    count = 1 if around else _rows_together(room, group, outside[-1], inside[-1])
    innermost = inside[-1]
    length = _longest(group, extent_of(s.state.axis(op.name, innermost).extent))
    width = first_width(length, lanes, max(_CHAINS // count, 2))
    width = chosen_width(room, width, lanes)
    if count > 1:
        tile, row = out.split(outside.pop(), factor=count)
        step, lane = out.split(innermost, factor=lanes, tail="peel")
        out.reorder(tile, step, row, lane)
        out.unroll(row)
        outside, innermost = [*outside, tile.name], lane.name
    out.vectorize(innermost)
    stream_out(s, op.name, innermost, target)
    loop = run_in_parallel(s, op.name, outside, target)
    return Rows(op.name, loop, lanes, horizontal, depth, count, width)


def _longest(group: Group, row: int | None) -> int | None:
    """The elements of a row, or those that make it where these are more: few are made of the statistics of many."""
    reduced = [prod(part.extents[axis] for axis in part.reduce) for part in group.parts]
    return None if row is None else max(row, *reduced)


def _rows_together(room: Room, group: Group, row: str, along: str) -> int:
    """How many rows are made at once: a divisor of their number, by which all threads still have some to do.

    The first cache holds them, what is made of them, as many that are fetched, and two arrays of weights.
    """
    s, name, target = room.s, group.output.name, room.target
    rows, length = (extent_of(s.state.axis(name, loop).extent) for loop in (row, along))
    size = dtypes.info(s.program.buffers[name].dtype).bits // 8
    if rows is None or length is None or length < target.lanes(8 * size) or not target.caches or not group.is_light:
        return 1
    fitting = (target.caches[0] // (length * size) - 2) // 3
    enough = rows // (_SHARES * target.cores)
    usual = max((n for n in (2, _TOGETHER) if n <= min(fitting, enough) and rows % n == 0), default=1)
    return usual if usual == 1 else room.choose("together", [n for n in (2, 4, 8) if rows % n == 0], usual)


def _columns(op: ComputeOp, inside: list[str], target: Target) -> int:
    """Neighbouring rows that run side by side: some vectors, while their elements fit half of the L2 cache."""
    info = dtypes.info(op.dtype)
    lanes = target.lanes(info.bits)
    length = 1
    for axis in op.axes:
        length *= (extent_of(axis.extent) or 1024) if axis.name in inside else 1
    fitting = target.second_cache // 2 // max(1, length * info.bits // 8)
    wanted = extent_of(op.axes[-1].extent) or lanes * _CHAINS
    return max(1, min(lanes * _CHAINS, max(lanes, fitting // lanes * lanes), wanted))


def _across_rows(s: Schedule, name: str) -> None:
    """The loops of a part whose rows are columns of the array: vectors across rows inside."""
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    vector = op.axes[-1].name
    others = [axis.name for axis in (*op.axes[:-1], *op.reduce_axes)]
    s[name].reorder(*others, vector)
    s[name].vectorize(vector)


def fused(stage: Stage, names: list[str]) -> str:
    """One loop for several neighbouring ones."""
    return names[0] if len(names) == 1 else stage.fuse(*names).name
