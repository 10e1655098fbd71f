"""Sums of integer products, block by block, and the sum of those under a scale for each block, read off accesses.

`dots[.., block, lane]` adds up words: what products of weights of a few bits with bytes are made of. Another stage adds
up its results over the blocks, times whatever belongs to a block: scales, zero points, minima.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Load, Var, variables
from tensorlang.schedules.recognise import Group, axes_read
from tensorlang.schedules.words import WordSum, word_sum
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads
from tensorlang.te.program import Program


@dataclass(frozen=True, slots=True)
class BlockSums:
    """The roles of axes, by their names in the stage of the blocks' sums and in that of the sums over blocks.

    `around` number panels of weights, `rows` of data; `block`: the axis of the reduction over blocks.
    """

    words: WordSum
    rows: tuple[str, ...]
    around: tuple[str, ...]
    lane: str
    block: str
    inner: dict[str, str]
    """Axis of the sums over blocks -> of the sums of a block."""


def block_sums_of(program: Program, dots: Group, sums: Group) -> BlockSums | None:
    """The roles in two groups of which the second adds up the blocks of the first; None where they are others."""
    inner, outer = dots.main.op, sums.main.op
    words = word_sum(inner)
    if words is None or not words.has_rows or dots.output is not dots.main or inner.name in program.outputs:
        return None
    reads = [load for load in loads(outer) if load.buffer.name == inner.name]
    alone = program.consumers[inner.name] == (outer.name,) and len({load.index for load in reads}) == 1
    if not alone or not _is_plain(reads[0], inner) or dtypes.info(inner.dtype).is_float:
        return None
    axes = zip(reads[0].index, inner.axes, strict=True)
    named = {index.name: axis.name for index, axis in axes if isinstance(index, Var)}
    *spatial, lane = (axis.name for axis in outer.axes)
    blocks = [axis.name for axis in outer.reduce_axes]
    if len(blocks) != 1 or set(named) != {*spatial, lane, *blocks} or named[lane] != inner.axes[-1].name:
        return None
    moved = {name for index in words.panels.index for name in variables(index)}
    rows = tuple(axis for axis in spatial if named[axis] not in moved)
    around = tuple(axis for axis in spatial if named[axis] in moved)
    return BlockSums(words, rows, around, lane, blocks[0], named)


def _is_plain(read: Load, op: ComputeOp) -> bool:
    """Whether the indices are axes, each once."""
    names = [index.name for index in read.index if isinstance(index, Var)]
    return len(names) == len(set(names)) == len(op.axes)


@dataclass(frozen=True, slots=True)
class PanelsRead:
    """A stage behind sums, which reads them where it is: panels and lanes at its axis `column`, one behind the other.

    `axes`: axis of the sums -> of the stage; those of one element may be in none.
    """

    column: str
    axes: Mapping[str, str]


def panels_read(program: Program, sums: ComputeOp, behind: Group) -> PanelsRead | None:
    """How a group of elementwise stages reads sums over blocks, all of them whole and nobody else; None if it does not.

    One of its stages takes the panels apart, the others follow that one, each at its own element.
    """
    last, stages = behind.main.op, {stage.name: stage.op for stage in (*behind.producers, behind.main)}
    readers = program.consumers[sums.name]
    reader = stages.get(readers[0]) if len(readers) == 1 and sums.name not in program.outputs else None
    if reader is None or behind.main is not behind.output or not _is_followed_by(program, reader, last, stages):
        return None
    found = _columns(reader, sums)
    if found is None:
        return None
    names = dict(zip((axis.name for axis in reader.axes), (axis.name for axis in last.axes), strict=True))
    return PanelsRead(names[found.column], {axis: names[own] for axis, own in found.axes.items()})


def _is_followed_by(program: Program, first: ComputeOp, last: ComputeOp, stages: Mapping[str, ComputeOp]) -> bool:
    """Whether all that is made of a stage is made element by element, by some stages, and ends in the last one."""
    extents = [extent_of(axis.extent) for axis in last.axes]
    waiting, seen = [first], {first.name}
    while waiting:
        op = waiting.pop()
        plain = not op.reduce_axes and op.num_outputs == 1 and not op.where
        if not plain or [extent_of(axis.extent) for axis in op.axes] != extents:
            return False
        for name in () if op is last else program.consumers[op.name]:
            if name not in stages or op.name in program.outputs or not _reads_own(stages[name], op.name, extents):
                return False
            waiting += [stages[name]] if name not in seen else []
            seen.add(name)
    return last.name in seen


def _reads_own(op: ComputeOp, array: str, extents: Sequence[int | None]) -> bool:
    """Whether a stage of these extents reads an array at its own element only."""
    own = [axis.name for axis in op.axes]
    several = [d for d, extent in enumerate(extents) if extent != 1]
    reads = list(axes_read(op, {array}))
    return all(len(read) == len(own) and all(read[d] == own[d] for d in several) for read in reads)


def _columns(reader: ComputeOp, sums: ComputeOp) -> PanelsRead | None:
    """How a stage takes panels apart, if its only read of sums does that: `sums[.., j // lanes, j % lanes]`."""
    found, axes = [load for load in loads(reader) if load.buffer.name == sums.name], dict[str, str]()
    extents = {axis.name: extent_of(axis.extent) for axis in reader.axes}
    *around, lane = sums.axes
    if len(found) != 1:
        return None
    *places, last = found[0].index
    match last:
        case Binary(op="floormod", a=Var(column), b=Const(width)) if width == extent_of(lane.extent):
            pass
        case _:
            return None
    for axis, place in zip(around, places, strict=True):
        size = extent_of(axis.extent)
        match place:
            case Binary(op="floordiv", a=Var(name), b=Const(value)) if (name, value) == (column, width):
                size = None if size is None else size * int(width)
            case Const(0) if size == 1:
                continue  # an axis of one element
            case Var(name):
                pass
            case _:
                return None
        if size is None or extents[name] != size:
            return None
        axes[axis.name] = name
    several = [name for name, size in extents.items() if size != 1 or name in axes.values()]
    return PanelsRead(column, axes) if sorted(axes.values()) == sorted(several) else None
