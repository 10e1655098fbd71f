"""Operators on a GPU that reduce rows, or columns, of an array and read them again: a block for each, or for several.

A row is read from global memory once, into shared memory, where each thread finds again what it has put there itself:
the passes over a row wait for each other only at the sums that its threads make together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Load, Var, variables, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.simplify.forms import Range
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import compute_op
from tensorlang.schedules.candidates import powers
from tensorlang.schedules.cpu.points import contiguous_axes
from tensorlang.schedules.cpu.rows import inline_parts, kept_elements
from tensorlang.schedules.gpu.block import limit_shared, limit_threads, points
from tensorlang.schedules.gpu.blocks import (
    BLOCKS,
    THREADS,
    WARP,
    exact_lanes,
    extents,
    fused,
    limits,
    on_blocks,
    power_of_two,
    product,
)
from tensorlang.schedules.gpu.elements import inline_producers
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room, is_several
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.program import read_buffers

_STEPS = 4
"""Vectors of a long row that each thread reads."""
_SIDE_BY_SIDE = 128
"""Threads of a block whose rows are short."""
_MOST_ACROSS = 128
"""Rows of a block at most."""
_MOST_DOWN = 16
"""Threads that share a column."""
_COLUMN_STEPS = 8
"""Elements of a column that each thread reads at least, where there are so many."""
_SPARE = 2048
"""Bytes of shared memory for the sums of rows, and for what warps tell each other."""
_MOST_SHARED = 98304
"""Bytes of shared memory for the rows of a block, so that two blocks run side by side."""


@dataclass(frozen=True, slots=True)
class Team:
    """The threads that make the rows of a block.

    `along`: those of a row, on the thread axis `tag`, each with `lanes` neighbouring elements at a time; `across`:
    those on the other axis, `other`, one for each row of the block. Rows that are contiguous are on threadIdx.x, so
    that neighbouring threads read neighbours; of rows that are columns, neighbouring ones are.
    """

    along: int
    across: int
    lanes: int = 1
    is_contiguous: bool = True

    @property
    def tag(self) -> str:
        """The thread axis of the elements of a row."""
        return "threadIdx.x" if self.is_contiguous else "threadIdx.y"

    @property
    def other(self) -> str:
        """The thread axis of rows."""
        return "threadIdx.y" if self.is_contiguous else "threadIdx.x"


def team_of(length: int | None, rows: Sequence[int | None], lanes: int, most: int, is_contiguous: bool = True) -> Team:
    """Choose the threads for rows of `length` elements; `rows` are the extents of the loops over rows.

    A row of up to eight vectors for each thread of a warp has a warp or a part of one. A longer one has a block.
    """
    count, last = product(rows), rows[-1] if rows else 1
    warp = min(WARP, power_of_two(most))
    if not is_contiguous:
        across = warp if last is None else min(warp, power_of_two(max(last, 1)))
        down = _MOST_DOWN if length is None else min(_MOST_DOWN, power_of_two(max(length // _COLUMN_STEPS, 1)))
        return Team(min(down, most // across), across, 1, False)
    if length is None:
        return Team(min(THREADS, most), 1, lanes)
    vectors = max(-(-length // lanes), 1)
    if vectors > 2 * _STEPS * WARP:
        steps = 1 if count is not None and count < BLOCKS else _STEPS
        return Team(min(power_of_two(vectors // steps), 4 * THREADS, power_of_two(most)), 1, lanes)
    along = min(warp, power_of_two(vectors))
    side_by_side = min(_SIDE_BY_SIDE, most)
    across = min(side_by_side // along, side_by_side if last is None else power_of_two(max(last, 1)))
    while across * along > warp and count is not None and count < BLOCKS * across:
        across //= 2
    return Team(along, across, lanes)


def reduce_together(s: Schedule, stage: str, team: Team) -> None:
    """Share the elements of a reduction among the threads of a row, and the rows of a block among those across."""
    op = compute_op(s, stage)
    spatial = [axis.name for axis in op.axes]
    last, inner = op.reduce_axes[-1].name, list[str]()
    along = fused(s, stage, [axis.name for axis in op.reduce_axes])
    if team.lanes > 1:
        step, lane = s[stage].split(along, factor=team.lanes)
        s[stage].unroll(lane)
        along, inner = step.name, [lane.name]
    threads = [along]
    if is_several(team.along):
        step, thread = s[stage].split(along, factor=team.along)
        s[stage].bind(thread, team.tag)
        threads = [thread.name, step.name]
    s[stage].reorder(*spatial, *threads, *inner)
    if inner:
        _read_vectors(s, stage, last, threads[-1])
    if spatial and is_several(team.across):
        s[stage].bind(spatial[-1], team.other)


def _read_vectors(s: Schedule, stage: str, last: str, step: str) -> None:
    """Let a thread read at once what it combines in one step, of every array along whose rows it goes."""
    op = compute_op(s, stage)
    sizes = {axis.name: extent_of(axis.extent) for axis in (*op.axes, *op.reduce_axes)}
    ranges = {name: (0, None if size is None else size - 1) for name, size in sizes.items()}
    loads = [node for body in op.body for node in walk(body) if isinstance(node, Load) and node.index]
    for array in dict.fromkeys(load.buffer.name for load in loads if _goes_along(load.index[-1], last, ranges)):
        tile = str(s.name_of(s.cache_read(array, "local", [stage])))
        s[tile].compute_at(s[stage], step)
        s[tile].vectorize(compute_op(s, tile).axes[-1].name)


def _goes_along(index: Expr, axis: str, ranges: Mapping[str, Range]) -> bool:
    """Whether an index rises by one with an axis."""
    found = next((node for node in walk(index) if isinstance(node, Var) and node.name == axis), None)
    return found is not None and axis not in variables(simplify(index.astype("int64") - found, ranges))


def block_row_forms(target: Target, group: Group) -> list[Form]:
    """Forms for a group with parts: elements of a row that are read several times are made again, or kept (`keep`)."""
    if not group.parts:
        return []
    words = {"rows.inline": False} | ({"rows.keep": True} if any(kept_elements(group)) else {})
    why = f"{', '.join(part.name for part in group.parts)} are of the same rows: all of a row in one block"
    return [Form(name, partial(schedule_rows, group=group, keep=keep), why=why) for name, keep in words.items()]


def schedule_rows(room: Room, group: Group, keep: bool = False) -> None:
    """Make every row in one block: sums of its elements by all threads of the row, values computed where they are read.

    What is read in several passes is kept in shared memory, if the rows of a block fit there.
    """
    s, out = room.s, room.s[group.output.name]
    inline_producers(room, group)
    parts = inline_parts(room, group, [] if keep else kept_elements(group))
    sums = [part for part in parts if compute_op(s, part).reduce_axes]
    elements = [part for part in parts if part not in sums and len(compute_op(s, part).axes) > len(group.rows)]
    for part in parts:
        if part not in (*sums, *elements):
            s[part].compute_inline()
    names = [axis.name for axis in out.op.axis]
    inside, outside = ([names[d] for d in dims] for dims in (group.along, group.rows))
    length, count = (points(group.output.extents, axes) for axes in (inside, outside))
    team = chosen_team(room, _team(s, out.name, outside, inside, room.target), length, count)
    known = product(extents(s, out.name, inside)) is not None
    again = _read_again(s, out.name, sums, length * team.across, room.target) if known else []
    each = length * sum(_bytes(s, name) for name in (*again, *elements))
    limit_shared(room, lambda values: values["rows"] * each)
    kept = [_kept(s, array, [*sums, out.name]) for array in again]
    out.reorder(*outside, *inside)
    block = make_blocks(s, out.name, outside, team) if outside else ""
    if not outside:
        whole, along = out.split(fused(s, out.name, inside), nparts=1)
        block, inside = on_blocks(s, out.name, [whole.name]), [along.name]
    _spread(s, out.name, inside, team)
    for part in reversed(sums):
        reduce_together(s, part, team)
        s[part].compute_at(out, block)
        s[part].set_scope("shared")
    for stage in (*reversed(elements), *kept):
        dims = [axis.name for axis in compute_op(s, stage).axes]
        rows, along_row = ([dims[d] for d in places] for places in (group.rows, group.along))
        s[stage].reorder(*rows, *along_row)
        _spread(s, stage, along_row, team)
        if rows and is_several(team.across):
            s[stage].bind(rows[-1], team.other)
        s[stage].compute_at(out, block)
    for stage in elements:
        s[stage].set_scope("shared")


def chosen_team(room: Room, usual: Team, length: int, rows: int, prefix: str = "") -> Team:
    """The threads of so many rows of a length, left open around the usual ones."""
    warp, most = limits(room.target).warp, powers(limits(room.target).max_threads)
    along = room.choose(f"{prefix}threads", [n for n in most if 1 < n < 2 * max(length, warp)], usual.along)
    across = room.choose(f"{prefix}rows", [n for n in most if n <= min(_MOST_ACROSS, rows)], usual.across)
    limit_threads(room, [f"{prefix}threads", f"{prefix}rows"], 1)
    return replace(usual, along=along, across=across)


def make_blocks(s: Schedule, stage: str, outside: Sequence[str], team: Team) -> str:
    """Cut the last loop over rows into those of a block, and give every block its own; the loop of blocks."""
    if not is_several(team.across):
        return on_blocks(s, stage, outside)
    tile, row = s[stage].split(outside[-1], factor=team.across)
    s[stage].bind(row, team.other)
    return on_blocks(s, stage, [*outside[:-1], tile.name])


def _spread(s: Schedule, stage: str, inside: Sequence[str], team: Team) -> None:
    """Share the elements of a row among its threads."""
    along = fused(s, stage, inside)
    if team.lanes > 1:
        step, vector = s[stage].split(along, factor=team.lanes)
        s[stage].vectorize(vector)
        along = step.name
    if is_several(team.along):
        _, thread = s[stage].split(along, factor=team.along)
        s[stage].bind(thread, team.tag)


def _team(s: Schedule, output: str, outside: list[str], inside: list[str], target: Target) -> Team:
    op = compute_op(s, output)
    lengths = extents(s, output, inside)
    last = op.axes[-1].name
    in_one_row = contiguous_axes(op) >= len(inside)
    lanes = exact_lanes(op, last, product(lengths) if in_one_row else lengths[-1])
    return team_of(product(lengths), extents(s, output, outside), lanes, limits(target).max_threads, last in inside)


def _read_again(s: Schedule, output: str, sums: list[str], elements: int, target: Target) -> list[str]:
    """The arrays that several passes over rows of so many elements read, if shared memory has room for them."""
    readers = [name for stage in (*sums, output) for name in read_buffers(s.program[stage])]
    arrays = [n for n in dict.fromkeys(readers) if readers.count(n) > 1 and n not in sums]
    arrays = [n for n in arrays if len(s.program.buffers[n].shape) == len(compute_op(s, output).axes)]
    room = min(limits(target).shared_bytes - _SPARE, _MOST_SHARED)
    return arrays if elements * sum(_bytes(s, name) for name in arrays) <= room else []


def _bytes(s: Schedule, array: str) -> int:
    return dtypes.info(s.program.buffers[array].dtype).bytes


def _kept(s: Schedule, array: str, stages: list[str]) -> str:
    readers = [stage for stage in stages if array in read_buffers(s.program[stage])]
    return str(s.name_of(s.cache_read(array, "shared", readers)))
