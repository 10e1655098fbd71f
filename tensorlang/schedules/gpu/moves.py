"""Transposed reads on a GPU: square tiles through shared memory, so that both sides run along memory."""

from __future__ import annotations

from dataclasses import dataclass

from tensorlang import dtypes
from tensorlang.ir.expr import Load, Var, walk
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor, compute_op
from tensorlang.schedules.gpu.blocks import ACCESS_BITS, WARP, extents, fused, groups, limits, widest_lanes
from tensorlang.schedules.gpu.points import schedule_elementwise
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp

_WORD = 32
"""Bits that each thread of a warp reads and writes at a time; that many lie in a bank of shared memory."""
_ROWS = 8
"""Rows of a tile that the threads of a block move at once."""
_SHORT = 4
"""Elements of a row, or of a column, of which a tile would hold too few."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """An array whose rows lie along dimension `near` of a stage, and whose dimension `far` lies along its rows."""

    array: str
    near: int
    far: int


def schedule_transpose(s: Schedule, anchor: Anchor) -> None:
    """Compute what follows a transposition as it is written, and what precedes it as its input is read."""
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    schedule_elements(s, anchor.output, anchor.target)


def schedule_elements(s: Schedule, name: str, target: Target) -> None:
    """Schedule a stage that computes element by element: in tiles where it reads across the rows of arrays.

    A tile of 32 * 32 words is read along rows of the input, and written along rows of the output. It lies in shared
    memory with rows of 33 words: the threads of a warp find those of a column in 32 different banks. Of elements of 16
    or 8 bits, two or four are a word, if rows are whole words.
    """
    op = s.program[name]
    found = transposed(s, op) if isinstance(op, ComputeOp) and not op.reduce_axes else []
    if not found or limits(target).max_threads < WARP:
        schedule_elementwise(s, name, target)
        return
    names, near = [axis.name for axis in compute_op(s, name).axes], found[0].near
    lanes = _lanes(s, name, [names[near], names[-1]])
    room = limits(target).shared_bytes // _bytes(s, found, lanes)
    tiles = [(str(s.name_of(s.cache_read(read.array, "shared", [name]))), read.far) for read in found[:room]]
    outer = [other for d, other in enumerate(names[:-1]) if d != near]
    stage = s[name]
    down, i = stage.split(names[near], factor=WARP * lanes)
    across, j = stage.split(names[-1], factor=WARP * lanes)
    stage.reorder(*outer, down, across, i, j)
    rows = min(_ROWS, limits(target).max_threads // WARP)
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


def _lanes(s: Schedule, stage: str, sides: list[str]) -> int:
    """Elements of a stage that are a word, if both sides of its tiles are whole words."""
    op = compute_op(s, stage)
    lanes = max(1, _WORD * widest_lanes(op, op.axes[-1].name) // ACCESS_BITS)
    while lanes > 1 and any(n is None or n % lanes for n in extents(s, stage, sides)):
        lanes //= 2
    return lanes


def transposed(s: Schedule, op: ComputeOp) -> list[Transposed]:
    """The arrays that a stage reads along its last but one dimension, or another: all along the same one.

    None where that would not pay: a side of the tiles is short, or the loops outside cannot be made one.
    """
    names = [axis.name for axis in op.axes]
    loads = {node.buffer.name: node for body in op.body for node in walk(body) if isinstance(node, Load)}
    found = [read for load in loads.values() if (read := _transposed(load, names)) is not None]
    found = [read for read in found if read.near == found[0].near]
    if not found or _reads_twice(op, {read.array for read in found}):
        return []
    sides = extents(s, op.name, [names[found[0].near], names[-1]])
    outer = [name for d, name in enumerate(names[:-1]) if d != found[0].near]
    is_short = any(n is not None and n <= _SHORT for n in sides)
    return [] if is_short or len(groups(s, op.name, outer)) > 1 else found


def _transposed(load: Load, names: list[str]) -> Transposed | None:
    """How an access reads an array across its rows, each index of it being one of the axes."""
    index = [i.name if isinstance(i, Var) else "" for i in load.index]
    if len(set(index)) < len(index) or not set(index) <= set(names) or names[-1] not in index[:-1]:
        return None
    return Transposed(load.buffer.name, names.index(index[-1]), index.index(names[-1]))


def _reads_twice(op: ComputeOp, arrays: set[str]) -> bool:
    """Whether a stage reads one of some arrays at several elements."""
    loads = [n for body in op.body for n in walk(body) if isinstance(n, Load) and n.buffer.name in arrays]
    first = {load.buffer.name: str(load) for load in reversed(loads)}
    return any(str(load) != first[load.buffer.name] for load in loads)
