"""Operators on a GPU that reduce rows, or columns, of an array and read them again: a block for each, or for several.

A row is read from global memory once, into shared memory, where each thread finds again what it has put there itself:
the passes over a row wait for each other only at the sums that its threads make together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorlang import dtypes
from tensorlang.ir.expr import Expr, Load, Var, variables, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.simplify.forms import Range
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, compute_op
from tensorlang.schedules.cpu.points import contiguous_axes
from tensorlang.schedules.cpu.rows import parts_of
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
from tensorlang.te.axis import extent_of
from tensorlang.te.program import read_buffers
from tensorlang.te.tags import ROW_AXES

_STEPS = 4
"""Vectors of a long row that each thread reads."""
_SIDE_BY_SIDE = 128
"""Threads of a block whose rows are short."""
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
    if team.along > 1:
        step, thread = s[stage].split(along, factor=team.along)
        s[stage].bind(thread, team.tag)
        threads = [thread.name, step.name]
    s[stage].reorder(*spatial, *threads, *inner)
    if inner:
        _read_vectors(s, stage, last, threads[-1])
    if spatial and team.across > 1:
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


def schedule_rows(s: Schedule, anchor: Anchor) -> None:
    """Make every row in one block: sums of its elements by all threads of the row, values computed where they are read.

    What is read in several passes is kept in shared memory, if the rows of a block fit there.
    """
    along_rows = [int(d) for d in compute_op(s, anchor.main).attrs[ROW_AXES]]
    parts = parts_of(s, anchor.main)
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    sums = [part for part in parts if compute_op(s, part).reduce_axes]
    for part in parts:
        if part not in sums:
            s[part].compute_inline()
    op = compute_op(s, anchor.output)
    names = [axis.name for axis in op.axes]
    inside = [names[d] for d in along_rows]
    outside = [name for name in names if name not in inside]
    team = _team(s, anchor, outside, inside)
    kept = [_kept(s, array, [*sums, anchor.output]) for array in _read_again(s, anchor, sums, inside, team)]
    s[anchor.output].reorder(*outside, *inside)
    block = make_blocks(s, anchor.output, outside, team) if outside else ""
    if not outside:
        whole, along = s[anchor.output].split(fused(s, anchor.output, inside), nparts=1)
        block, inside = on_blocks(s, anchor.output, [whole.name]), [along.name]
    _spread(s, anchor.output, inside, team)
    for part in reversed(sums):
        reduce_together(s, part, team)
        s[part].compute_at(s[anchor.output], block)
        s[part].set_scope("shared")
    for stage in kept:
        dims = [axis.name for axis in compute_op(s, stage).axes]
        rows = [dims[d] for d in range(len(dims)) if d not in along_rows]
        s[stage].reorder(*rows, *[dims[d] for d in along_rows])
        _spread(s, stage, [dims[d] for d in along_rows], team)
        if rows and team.across > 1:
            s[stage].bind(rows[-1], team.other)
        s[stage].compute_at(s[anchor.output], block)


def make_blocks(s: Schedule, stage: str, outside: Sequence[str], team: Team) -> str:
    """Cut the last loop over rows into those of a block, and give every block its own; the loop of blocks."""
    if team.across == 1:
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
    if team.along > 1:
        _, thread = s[stage].split(along, factor=team.along)
        s[stage].bind(thread, team.tag)


def _team(s: Schedule, anchor: Anchor, outside: list[str], inside: list[str]) -> Team:
    op = compute_op(s, anchor.output)
    lengths = extents(s, anchor.output, inside)
    last = op.axes[-1].name
    in_one_row = contiguous_axes(op) >= len(inside)
    lanes = exact_lanes(op, last, product(lengths) if in_one_row else lengths[-1])
    rows = extents(s, anchor.output, outside)
    return team_of(product(lengths), rows, lanes, limits(anchor.target).max_threads, last in inside)


def _read_again(s: Schedule, anchor: Anchor, sums: list[str], inside: list[str], team: Team) -> list[str]:
    """The arrays that several passes over a row read, if the rows of a block fit in shared memory."""
    op = compute_op(s, anchor.output)
    readers = [name for stage in (*sums, anchor.output) for name in read_buffers(s.program[stage])]
    arrays = [n for n in dict.fromkeys(readers) if readers.count(n) > 1 and n not in sums]
    arrays = [n for n in arrays if len(s.program.buffers[n].shape) == len(op.axes)]
    length = product(extents(s, anchor.output, inside))
    size = sum(dtypes.info(s.program.buffers[n].dtype).bits // 8 for n in arrays)
    room = min(limits(anchor.target).shared_bytes - _SPARE, _MOST_SHARED)
    return arrays if length is not None and length * team.across * size <= room else []


def _kept(s: Schedule, array: str, stages: list[str]) -> str:
    readers = [stage for stage in stages if array in read_buffers(s.program[stage])]
    return str(s.name_of(s.cache_read(array, "shared", readers)))
