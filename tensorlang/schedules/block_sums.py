"""Sums of integer products, block by block, and the sum of those under a scale for each block, read off accesses.

`dots[.., block, lane]` adds up words: what products of weights of a few bits with bytes are made of. Another stage adds
up its results over the blocks, times whatever belongs to a block: scales, zero points, minima.
"""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Load, Var, variables
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.words import WordSum, word_sum
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
