"""Factors of channels, as batch norms have them, in the weights of the sum before: ahead, and not at each call.

A stage `sum * factor[c] + shift[c]` becomes `sum + shift[c]` over weights that were multiplied, and so does
`(sum + bias[c]) * factor[c] + shift[c]`. New weights are rounded once, as each product of a sum is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Load, Var, binary
from tensorlang.networks.network import Array
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Reduce, at_own_place, loads
from tensorlang.te.program import Program

_WIDE = ("float32", "float64")
"""Narrow floats would be rounded once more."""


@dataclass(frozen=True, slots=True)
class _Scaled:
    """A sum whose weights take the factors of a stage: weights and their dimension of channels, and names of arrays.

    `stage` keeps the load of the sum and of `shift`; `bias` is the stage between, with its array.
    """

    stage: ComputeOp
    total: Load
    weights: str
    channels: int
    factor: str
    shift: Load
    bias: tuple[str, str] | None


def scaled(program: Program, weights: Mapping[str, Array]) -> tuple[Program, dict[str, Array]]:
    """The program without the factors that weights can take, and the weights that it has then."""
    arrays = dict(weights)
    for op in program.ops:
        found = _scaled(program, op, arrays) if isinstance(op, ComputeOp) else None
        if found is not None:
            program = _without_factor(program, found, arrays)
    unused = {op.name for op in program.ops if isinstance(op, PlaceholderOp) and not program.consumers[op.name]}
    gone = unused & weights.keys()
    kept = tuple(op for op in program.ops if op.name not in gone)
    return replace(program, ops=kept), {name: array for name, array in arrays.items() if name not in gone}


def _without_factor(program: Program, found: _Scaled, arrays: dict[str, Array]) -> Program:
    factor, shift = (np.asarray(arrays[name], np.float64) for name in (found.factor, found.shift.buffer.name))
    old = arrays[found.weights]
    by_channel = [1] * old.ndim
    by_channel[found.channels] = -1
    arrays[found.weights] = (old.astype(np.float64) * factor.reshape(by_channel)).astype(old.dtype)
    if found.bias is not None:
        shift = shift + factor * arrays[found.bias[1]]
    arrays[found.shift.buffer.name] = shift.astype(old.dtype)
    changed: dict[str, Operation] = {
        found.stage.name: replace(found.stage, body=(binary("add", found.total, found.shift),))
    }
    program = program.replacing(changed)
    return program if found.bias is None else program.without(found.bias[0])


def _scaled(program: Program, op: ComputeOp, weights: Mapping[str, Array]) -> _Scaled | None:
    """What a stage scales, where weights can take its factor: nobody else reads them, the sum, or the shift."""
    match op.body:
        case (Binary(op="add", a=Binary(op="mul", a=Load() as total, b=Load() as factor), b=Load() as shift),) if (
            _is_elementwise(op)
        ):
            pass
        case _:
            return None
    column = _column(op, factor, weights)
    if column is None or not np.isfinite(weights[factor.buffer.name]).all():
        return None
    if op.dtype not in _WIDE or _column(op, shift, weights) != column or not _own(program, shift.buffer.name, op.name):
        return None
    bias, reader, before = None, op.name, program[program.producer[total.buffer.name]]
    if not at_own_place(op, total) or not isinstance(before, ComputeOp) or not _own(program, before.name, op.name):
        return None
    match before.body:
        case (Binary(op="add", a=Load() as inner, b=Load() as added),) if (
            _is_elementwise(before) and at_own_place(before, inner) and _column(before, added, weights) == column
        ):
            bias, reader = (before.name, added.buffer.name), before.name
            before, total = program[program.producer[inner.buffer.name]], Load(inner.buffer, total.index)
    if not isinstance(before, ComputeOp) or not _own(program, before.name, reader):
        return None
    taken = _taking(program, before, before.axes[column].name, weights)
    return None if taken is None else _Scaled(op, total, *taken, factor.buffer.name, shift, bias)


def _taking(program: Program, op: ComputeOp, channel: str, weights: Mapping[str, Array]) -> tuple[str, int] | None:
    """The weights of a sum of products that move with a channel alone, and the dimension in which they do."""
    match op.body:
        case (Reduce(sources=(Binary(op="mul", a=Load(), b=Load() as weight),), init=()) as total,) if (
            total.reducer.text() == "sum" and weight.dtype == op.dtype
        ):
            pass
        case _:
            return None
    name = weight.buffer.name
    dims = [d for d, index in enumerate(weight.index) if isinstance(index, Var) and index.name == channel]
    once = sum(load.buffer.name == name for load in loads(op)) == 1
    return (name, dims[0]) if name in weights and len(dims) == 1 and once and _own(program, name, op.name) else None


def _column(op: ComputeOp, load: Load, weights: Mapping[str, Array]) -> int | None:
    """The axis of a stage along which it reads a row of numbers that are known."""
    names = [a.name for a in op.axes]
    match load.index:
        case (Var(name=name),) if name in names and load.buffer.name in weights:
            return names.index(name)
    return None


def _is_elementwise(op: ComputeOp) -> bool:
    return not op.reduce_axes and not op.where


def _own(program: Program, name: str, reader: str) -> bool:
    """Whether a stage, or an array, has one reader, and is no output."""
    return program.consumers[name] == (reader,) and name not in program.outputs
