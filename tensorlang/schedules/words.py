"""Sums over words of 32 bits, which hold several narrow terms each: what dot instructions make, read off accesses."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Load, Var, variables
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads

WORD = 32


@dataclass(frozen=True, slots=True)
class WordSum:
    """`out[.., lane] = sum over .., k of data[.., k] * panels[.., k // g, lane, k % g]`, g terms of a panel a word.

    `has_rows`: data move with axes of the output.
    """

    data: Load
    panels: Load
    has_rows: bool


def word_sum(op: ComputeOp) -> WordSum | None:
    """Read the factors off a stage that is one; None for any other."""
    if not op.reduce_axes or len(op.body) > 1 or not op.axes or len(loads(op)) != 2:
        return None
    lane, term = op.axes[-1].name, op.reduce_axes[-1].name
    data, panels = data_and_panels(op)
    if not _is_word(panels) or dtypes.info(data.dtype).bits != dtypes.info(panels.dtype).bits:
        return None
    side_by_side = isinstance(panels.index[-2], Var) and variables(panels.index[-2]) == {lane}
    moved = {name for index in data.index for name in variables(index)}
    if not side_by_side or not variables(panels.index[-1]) <= {term} or lane in moved:
        return None
    return WordSum(data, panels, bool(moved & {axis.name for axis in op.axes}))


def data_and_panels(op: ComputeOp) -> tuple[Load, Load]:
    """The two reads of a sum over words: that of panels moves along the last axis."""
    lane = op.axes[-1].name
    data, panels = sorted(loads(op), key=lambda read: any(lane in variables(index) for index in read.index))
    return data, panels


def panel_read(op: ComputeOp, sums: ComputeOp) -> Load | None:
    """How a stage reads the results of a sum over words, each once, where it counts columns through all panels."""
    found = [load for load in loads(op) if load.buffer.name == sums.name]
    if len(found) != 1 or len(op.axes) >= len(sums.axes) or word_sum(sums) is None:
        return None
    covered = {name for index in found[0].index for name in variables(index)}
    single = len(variables(found[0].index[-1])) == 1
    return found[0] if single and covered == {axis.name for axis in op.axes} else None


def is_word_layout(op: ComputeOp) -> bool:
    """Whether a stage lays narrow numbers out in panels of words: [.., word, lane, term], copied from one array."""
    if op.reduce_axes or len(op.body) > 1 or len(loads(op)) != 1 or len(op.axes) < 4:
        return False
    read, bits = loads(op)[0], dtypes.info(op.dtype).bits
    word, lane, term = (axis.name for axis in op.axes[-3:])
    together = any({word, term} <= variables(index) for index in read.index)
    apart = any(lane in variables(index) and term not in variables(index) for index in read.index)
    return bits < WORD and extent_of(op.axes[-1].extent) == WORD // bits and together and apart


def _is_word(read: Load) -> bool:
    bits, last = dtypes.info(read.dtype).bits, read.buffer.shape[-1:]
    return bits < WORD and len(read.index) >= 3 and bool(last) and extent_of(last[0]) == WORD // bits
