"""Stages without a reduction on a GPU: some elements a thread, and data that is turned around in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import ceil

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Load, walk
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import compute_op
from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.cpu.points import contiguous_axes
from tensorlang.schedules.gpu.block import limit_threads, sizes
from tensorlang.schedules.gpu.blocks import (
    ACCESS_BITS,
    BLOCKS,
    THREADS,
    WARP,
    exact_lanes,
    fused,
    limits,
    on_threads,
    product,
    whole_warps,
    widest_lanes,
)
from tensorlang.schedules.moves import joins
from tensorlang.schedules.recognise import Group, is_read_often
from tensorlang.schedules.room import Columns, Form, Mask, Room, is_several
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, axes_at

_VECTORS = (1, 2, 4, 8, 16)
_EACH = (1, 2, 4, 8)
_MOST_STEPS = 4
"""Elements that a thread computes one by one where it has no vectors."""
_FEW = 4096
"""Elements of a stage that are too few to make a last vector of part of them."""
_WORD = 32
"""Bits that each thread of a warp reads and writes at a time; that many lie in a bank of shared memory."""
_ROWS = 8
"""Rows of a tile that the threads of a block move at once."""
_SHORT = 4
"""Elements of a row, or of a column, of which a tile would hold too few."""
_LEAST_WORK = 1 << 15
"""Elements of a block at most, where there are enough for many blocks."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """An array whose rows lie along dimension `near` of a stage, and whose dimension `far` lies along its rows."""

    array: str
    near: int
    far: int


def element_forms(target: Target, group: Group) -> list[Form]:
    """Along memory; and for a stage that reads across it, square tiles that are turned around in shared memory."""
    if group.main.reduce or group.parts:
        return []
    found = [Form("elements", partial(_schedule, group=group, body=schedule_elementwise))]
    if transposed(group.main.op):
        found.insert(0, Form("turned", partial(_schedule, group=group, body=schedule_elements)))
    return found


def _schedule(room: Room, group: Group, body: Callable[[Room, str], None]) -> None:
    inline_producers(room, group)
    body(room, group.main.name)


def inline_producers(room: Room, group: Group) -> None:
    """Compute stages in front where they are read; those that cannot, or are read often, run on their own."""
    for stage in group.producers:
        if is_read_often(group, stage) or not room.s.attempt(room.s[stage.name].compute_inline):
            schedule_elements(room, stage.name)


def schedule_elementwise(room: Room, name: str) -> None:
    """Give each thread 16 bytes of the elements of a stage, or fewer where rows are no multiple of that.

    Dimensions that every access runs along as along one row of memory are cut in vectors together; if these are all,
    the last vector may be a part of one. Elements that come from one array or another are computed one by one, since
    neighbours may come from different ones. A thread has several vectors, a block apart.
    """
    s, op = room.s, room.s.program[name]
    if not isinstance(op, ComputeOp) or not op.axes:
        return
    names = [axis.name for axis in op.axes]
    if op.reduce_axes:
        on_threads(s, name, names, room.target)
        return
    known = [extent_of(axis.extent) for axis in op.axes]
    together = contiguous_axes(op)
    length, total = product(known[-together:]), product(known)
    whole = together == len(names) and (length is None or length >= _FEW)
    lanes = widest_lanes(op, names[-1]) if whole else exact_lanes(op, names[-1], length)
    lanes = _choose(room, name, "vector", [n for n in _VECTORS if not (length or n) % n], 1 if joins(op) else lanes)
    if is_several(lanes):
        step, vector = s[name].split(fused(s, name, names[-together:]), factor=lanes)
        s[name].vectorize(vector)
        names = [*names[:-together], step.name]
    each = _choose(room, name, "each", up_to(_EACH, total or 1), _steps(total or 0, lanes * dtypes.info(op.dtype).bits))
    most = min(limits(room.target).block[0], limits(room.target).max_threads)
    usual = min(THREADS, most) if total is None else min(THREADS, most, whole_warps(ceil(total / lanes)))
    tried = [n for n in sizes(1 << 10, most) if n >= min(WARP, most, total or WARP)]
    on_threads(s, name, names, room.target, each, _choose(room, name, "threads", tried, usual))
    if name == room.stage and total is not None:
        _limit(room, total)


def _choose(room: Room, stage: str, name: str, candidates: Sequence[int], usual: int) -> int:
    """A number of the room's own stage; what runs beside it takes the usual one."""
    return room.choose(name, candidates, usual) if stage == room.stage else usual


def _steps(count: int, bits: int) -> int:
    """How many accesses of so many bits a thread has on its way, if there are enough elements for many blocks."""
    steps = min(ACCESS_BITS // bits, _MOST_STEPS)
    return max(steps, 1) if count * bits >= THREADS * BLOCKS * ACCESS_BITS else 1


def _limit(room: Room, total: int) -> None:
    """Keep blocks within a device, and as many that all of it has work."""
    most, fewest = limits(room.target).grid[0], min(ceil(total / _LEAST_WORK), WARP)
    limit_threads(room, ["threads"], total)

    def busy(values: Columns) -> Mask:
        blocks = np.ceil(total / (values["threads"] * values["vector"] * values["each"]))
        return np.asarray((blocks >= fewest) & (blocks <= most))

    room.limit("there are blocks for all multiprocessors", busy)


def schedule_elements(room: Room, name: str) -> None:
    """Schedule a stage that computes element by element: in tiles where it reads across the rows of arrays.

    A tile of 32 * 32 words is read along rows of the input, and written along rows of the output. It lies in shared
    memory with rows of 33 words: the threads of a warp find those of a column in 32 different banks. Of elements of 16
    or 8 bits, two or four are a word, if rows are whole words.
    """
    s, op, most = room.s, room.s.program[name], limits(room.target)
    found = transposed(op) if isinstance(op, ComputeOp) else []
    if not found or most.max_threads < WARP:
        schedule_elementwise(room, name)
        return
    names, near = [axis.name for axis in compute_op(s, name).axes], found[0].near
    lanes = _lanes(compute_op(s, name), near)
    fitting = most.shared_bytes // _bytes(s, found, lanes)
    tiles = [(str(s.name_of(s.cache_read(read.array, "shared", [name]))), read.far) for read in found[:fitting]]
    outer = [other for d, other in enumerate(names[:-1]) if d != near]
    stage = s[name]
    down, i = stage.split(names[near], factor=WARP * lanes)
    across, j = stage.split(names[-1], factor=WARP * lanes)
    stage.reorder(*outer, down, across, i, j)
    rows = _choose(
        room, name, "rows", up_to((4, 8, 16, 32), most.max_threads // WARP), min(_ROWS, most.max_threads // WARP)
    )
    _spread(s, name, (i.name, j.name), rows, lanes)
    for loop, tag in ((across, "blockIdx.x"), (down, "blockIdx.y")):
        stage.bind(loop, tag)
    if outer:
        stage.bind(fused(s, name, outer), "blockIdx.z")
    for tile, far in tiles:
        s[tile].compute_at(stage, across)
        *dims, last = [axis.name for axis in compute_op(s, tile).axes]
        s[tile].reorder(*[other for d, other in enumerate(dims) if d != far], dims[far], last)
        s[tile].storage_align(dims[-1], WARP * lanes, lanes)
        _spread(s, tile, (dims[far], last), rows, lanes)


def _spread(s: Schedule, stage: str, loops: tuple[str, str], rows: int, lanes: int) -> None:
    """Share the innermost loops of a stage among the threads of so many rows, a word for each thread and step."""
    down, row = loops
    step, thread = s[stage].split(down, factor=rows)
    s[stage].unroll(step)
    s[stage].bind(thread, "threadIdx.y")
    if lanes > 1:
        words, vector = s[stage].split(row, factor=lanes)
        s[stage].vectorize(vector)
        row = words.name
    s[stage].bind(row, "threadIdx.x")


def _bytes(s: Schedule, found: list[Transposed], lanes: int) -> int:
    """Shared memory for a tile of the widest of some arrays."""
    widest = max(dtypes.info(s.program.buffers[read.array].dtype).bits for read in found)
    return WARP * lanes * (WARP + 1) * lanes * widest // 8


def _lanes(op: ComputeOp, near: int) -> int:
    """Elements of a stage that are a word, if both sides of its tiles are whole words."""
    sides = [extent_of(op.axes[d].extent) for d in (near, -1)]
    lanes = max(1, _WORD * widest_lanes(op, op.axes[-1].name) // ACCESS_BITS)
    while lanes > 1 and any(n is None or n % lanes for n in sides):
        lanes //= 2
    return lanes


def transposed(op: ComputeOp) -> list[Transposed]:
    """The arrays that a stage reads along its last but one dimension, or another: all along the same one.

    None where that would not pay: a side of the tiles is short, or the loops outside cannot be made one.
    """
    if op.reduce_axes or not op.axes:
        return []
    names = [axis.name for axis in op.axes]
    loads = {node.buffer.name: node for body in op.body for node in walk(body) if isinstance(node, Load)}
    found = [read for load in loads.values() if (read := _transposed(load, names)) is not None]
    found = [read for read in found if read.near == found[0].near]
    if not found or _reads_twice(op, {read.array for read in found}):
        return []
    known = [extent_of(axis.extent) for axis in op.axes]
    outer = [n for d, n in enumerate(known[:-1]) if d != found[0].near]
    is_short = any(n is not None and n <= _SHORT for n in (known[found[0].near], known[-1]))
    return [] if is_short or None in outer[1:] else found


def _transposed(load: Load, names: list[str]) -> Transposed | None:
    """How an access reads an array across its rows, each index of it being one of the axes."""
    index = axes_at(load)
    if len(set(index)) < len(index) or not set(index) <= set(names) or names[-1] not in index[:-1]:
        return None
    return Transposed(load.buffer.name, names.index(index[-1]), index.index(names[-1]))


def _reads_twice(op: ComputeOp, arrays: set[str]) -> bool:
    """Whether a stage reads one of some arrays at several elements."""
    loads = [n for body in op.body for n in walk(body) if isinstance(n, Load) and n.buffer.name in arrays]
    first = {load.buffer.name: str(load) for load in reversed(loads)}
    return any(str(load) != first[load.buffer.name] for load in loads)
