"""Schedules of operators that reduce rows, or columns, of an array and read them again: all passes in one cache.

A *row* is what one reduction covers; a *part* is a stage that helps to make the rows of an operator: a reduction of
rows, a value per row, or a value per element that is kept until the row is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.points import is_larger, run_in_parallel, stream_out
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.recognise import Stage as Described
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import read_buffers
from tensorlang.te.tags import ROW_AXES

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

    `horizontal`: a row is contiguous, and vectors of `lanes` elements run along it; if not, they run across
    neighbouring rows. `depth` dimensions of an array make a row. The loop makes `together` rows at once, more than one
    only if they are horizontal.
    """

    host: str
    loop: str
    lanes: int
    horizontal: bool
    depth: int
    together: int = 1


@dataclass(frozen=True, slots=True)
class Pass:
    """A stage that runs along a row, and its loop over vectors."""

    stage: str
    step: str


def schedule_light_rows(s: Schedule, anchor: Anchor) -> None:
    """As `schedule_rows`, for operators that compute little: of short rows, several at once.

    The end of one row's reduction is a chain of instructions that wait for each other, as long as half a pass over 768
    elements. Those of several rows fill each other's pauses.
    """
    schedule_rows(s, anchor, _TOGETHER)


def schedule_rows(s: Schedule, anchor: Anchor, together: int = 1) -> None:
    """Make one row after the other (or a few neighbouring columns): every part of it inside the loop over rows.

    Up to `together` rows at once, if these and what is made of them fit in the first cache.
    """
    parts = parts_of(s, anchor.main)
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    for name in [part for part in parts if _is_too_long(s, anchor, part)]:
        s[name].compute_inline()
        parts.remove(name)
    rows = _rows_of(s, anchor, together)
    passes = [schedule_part(s, name, rows) for name in reversed(parts)]
    _prefetch_next_rows(s, [found for found in reversed(passes) if found is not None], rows.together, anchor.target)


def parts_of(s: Schedule, main: str) -> list[str]:
    """The parts behind an operator's stage, in program order."""
    program, found = s.program, {main}
    op = program[main]
    tag = f"{op.tag}." if isinstance(op, ComputeOp) else "."
    for candidate in reversed(program.ops):
        is_part = isinstance(candidate, ComputeOp) and candidate.tag.startswith(tag)
        if is_part and found & set(program.consumers[candidate.name]):
            found.add(candidate.name)
    return [op.name for op in program.ops if op.name in found - {main}]


def _is_too_long(s: Schedule, anchor: Anchor, part: str) -> bool:
    """Whether a part keeps the elements of a row, which the L2 cache cannot: they are computed where they are read."""
    op, main = s.program[part], s.original[anchor.main]
    assert isinstance(op, ComputeOp) and isinstance(main, ComputeOp)
    if op.reduce_axes or len(op.axes) < len(main.axes):
        return False
    row = Buffer(part, tuple(main.axes[d].extent for d in main.attrs[ROW_AXES]), op.dtype)
    return is_larger(row, anchor.target.caches[1:2])


def schedule_part(s: Schedule, name: str, rows: Rows) -> Pass | None:
    """Compute a part in local memory where the rows are made; the pass over the row that this takes, if it is one."""
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    stages, found = [name], None
    if op.reduce_axes and rows.horizontal:
        stages += reduce_in_lanes(s, name, rows.lanes, max(_CHAINS // rows.together, 2))
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


def _prefetch_next_rows(s: Schedule, passes: list[Pass], together: int, target: Target) -> None:
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
        if not made_here and steps is not None and far:
            s[stage].prefetch(array, step, steps * together)


def reduce_in_lanes(s: Schedule, name: str, lanes: int, chains: int = _CHAINS) -> list[str]:
    """Reduce along contiguous memory: `chains` vectors of partial results, and a tree that combines them.

    Returns the stages of partial results, the last one first. They are where they were; the caller moves them.
    """
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    along = fused(s[name], [axis.name for axis in op.reduce_axes])
    steps: list[str] = []
    for width in _widths(extent_of(s.state.axis(name, along).extent), lanes, chains):
        _, inner = s[name].split(along, factor=width, tail="peel")
        step = partial_results(s, name, inner.name, len(op.axes))
        _vectors_inside(s, step, unrolled=bool(steps))
        steps.append(step)
        along = s.program[name].reduce_axis[0].name
    s[name].unroll(along)
    return steps[::-1]


def partial_results(s: Schedule, name: str, axis: str, place: int) -> str:
    """Factor a reduction along one of its axes; the stage of partial results, which have it as dimension `place`."""
    made = s.rfactor(name, axis, factor_axis=place)
    return s.name_of(made[0] if isinstance(made, list) else made)


def _widths(extent: int | None, lanes: int, chains: int) -> list[int]:
    """How many partial results there are after each step: some vectors, one vector, then fewer lanes."""
    most = lanes * chains if extent is None else min(extent // 2, lanes * chains)
    first = lanes * (most // lanes) if most >= lanes else 1 << most.bit_length() - 1 if most else 1
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


def _rows_of(s: Schedule, anchor: Anchor, together: int) -> Rows:
    """Shape the loops of the output: rows outside, in parallel; vectors inside."""
    out, op, main = s[anchor.output], s.program[anchor.output], s.original[anchor.main]
    assert isinstance(op, ComputeOp) and isinstance(main, ComputeOp)
    lanes = anchor.target.lanes(dtypes.info(op.dtype).bits)
    names = [axis.name for axis in op.axes]
    inside = [names[d] for d in main.attrs[ROW_AXES]]
    outside = [name for name in names if name not in inside]
    horizontal = names[-1] in inside
    depth = len(inside)
    if not horizontal:
        tile, vector = out.split(outside.pop(), factor=_columns(op, inside, anchor.target), tail="peel")
        out.reorder(*outside, tile, *inside, vector)
        out.vectorize(vector)
        stream_out(s, anchor.output, vector.name, anchor.target)
        loop = tile.name
        run_in_parallel(s, anchor.output, outside or [loop], anchor.target)
        return Rows(anchor.output, loop, lanes, horizontal, depth)
    out.reorder(*outside, *inside)
    inside = [fused(out, inside)]
    if not outside:
        whole, along = out.split(inside[0], nparts=1)
        outside, inside = [whole.name], [along.name]
    count = _rows_together(s, anchor, outside[-1], inside[-1], together)
    innermost = inside[-1]
    if count > 1:
        tile, row = out.split(outside.pop(), factor=count)
        step, lane = out.split(innermost, factor=lanes, tail="peel")
        out.reorder(tile, step, row, lane)
        out.unroll(row)
        outside, innermost = [*outside, tile.name], lane.name
    out.vectorize(innermost)
    stream_out(s, anchor.output, innermost, anchor.target)
    loop = run_in_parallel(s, anchor.output, outside, anchor.target)
    return Rows(anchor.output, loop, lanes, horizontal, depth, count)


def _rows_together(s: Schedule, anchor: Anchor, row: str, along: str, most: int) -> int:
    """How many rows are made at once: a divisor of their number, by which all threads still have some to do.

    The first cache holds them, what is made of them, as many that are fetched, and two arrays of weights.
    """
    rows, length = (extent_of(s.state.axis(anchor.output, name).extent) for name in (row, along))
    size = dtypes.info(s.program.buffers[anchor.output].dtype).bits // 8
    if rows is None or length is None or length < anchor.target.lanes(8 * size) or not anchor.target.caches:
        return 1
    fitting = (anchor.target.caches[0] // (length * size) - 2) // 3
    enough = rows // (_SHARES * anchor.target.cores)
    return max((n for n in (2, most) if n <= min(fitting, enough, most) and rows % n == 0), default=1)


def _columns(op: ComputeOp, inside: list[str], target: Target) -> int:
    """Neighbouring rows that run side by side: some vectors, while their elements fit half of the L2 cache."""
    info = dtypes.info(op.dtype)
    lanes = target.lanes(info.bits)
    length = 1
    for axis in op.axes:
        length *= (extent_of(axis.extent) or 1024) if axis.name in inside else 1
    fitting = target.caches[min(1, len(target.caches) - 1)] // 2 // max(1, length * info.bits // 8)
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


def row_forms(target: Target, group: Group) -> list[Form]:
    """Forms for a group with parts; `inline` computes elements again where they are read instead of keeping them."""
    if not group.parts:
        return []
    several = any(_is_elementwise(group, part) for part in group.parts)
    why = f"{', '.join(part.name for part in group.parts)} are of the same rows: all of a row where the row is made"
    words = (("rows.keep", False), ("rows.inline", True))
    return [
        Form(name, partial(_schedule_chain, group=group, inline=inline), True, why)
        for name, inline in words[: 1 + several]
    ]


def _is_elementwise(group: Group, part: Described) -> bool:
    return not part.reduce and len(part.spatial) == len(group.main.spatial)


def _schedule_chain(room: Room, group: Group, inline: bool) -> None:
    s = room.s
    for producer in group.producers:
        s[producer.name].compute_inline()
    parts = list(group.parts)
    for part in [p for p in parts if inline and _is_elementwise(group, p)]:
        s[part.name].compute_inline()
        parts.remove(part)
    leading = min(len(part.spatial) for part in group.parts)
    names = list(group.output.spatial)
    out = s[group.output.name]
    along = fused(out, names[leading:])
    out.vectorize(along)
    loop = run_in_parallel(s, group.output.name, names[:leading], room.target)
    lanes = room.target.lanes(group.output.bits)
    rows = Rows(group.output.name, loop, lanes, horizontal=True, depth=len(names) - leading)
    for part in reversed(parts):
        schedule_part(s, part.name, rows)
