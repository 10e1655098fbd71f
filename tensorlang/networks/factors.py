"""Constant factors are multiplied into what is known ahead: into weights, and into the constants before.

What a scale and the next one make of a sum, `(sum * scale[c] + bias[c]) * factor`, takes one multiplication then, and
not two: on the way back from sums to bytes these run where dot instructions do. Each is rounded once less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Const, Expr, Load, binary, const, rewrite, walk
from tensorlang.networks.network import Array
from tensorlang.networks.requantizing import is_plain, only_reader
from tensorlang.te.operation import ComputeOp, Operation, at_own_place, loads
from tensorlang.te.program import Program

_WIDE = ("float32", "float64")
"""Narrow floats are rounded after each product."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """An expression with a factor in it, and the stages and arrays that have it for that."""

    expr: Expr
    stages: Mapping[str, Operation] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)


def with_factors_ahead(program: Program, weights: Mapping[str, Array]) -> tuple[Program, dict[str, Array]]:
    """The program without the factors that can be told ahead, and the weights that it has then."""
    arrays = dict(weights)
    for name in [op.name for op in program.ops]:
        op = program[name]
        if not isinstance(op, ComputeOp) or not is_plain(op):
            continue
        for node in walk(op.body[0]):
            match node:
                case Binary(op="mul", a=Load() as number, b=Const(value=factor), dtype=dtype) if dtype in _WIDE:
                    taken = _Factor(program, arrays, float(factor)).into(number, op)
                    if taken is not None:
                        rest = replace(op, body=(_exchanged(op.body[0], node, taken.expr),))
                        program = program.replacing({**taken.stages, name: rest})
                        arrays |= taken.arrays
                        break
    return program, arrays


def _exchanged(expr: Expr, old: Expr, new: Expr) -> Expr:
    return rewrite(expr, lambda node: new if node is old else None)


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor that moves from a stage into those before it."""

    program: Program
    weights: Mapping[str, Array]
    value: float

    def into(self, expr: Expr, reader: ComputeOp) -> _Taken | None:
        """An expression of a stage, multiplied; None where something in it is only known in a run, or read twice."""
        match expr:
            case Const(value=value, dtype=dtype):
                number = float(value) * self.value
                return _Taken(const(number, dtype)) if self._is_normal(number, dtype) else None
            case Binary(op="add" | "sub" as op, a=a, b=b):
                return self._both(op, self.into(a, reader), self.into(b, reader))
            case Binary(op="mul", a=a, b=b):
                taken = self.into(b, reader)
                return None if taken is None else replace(taken, expr=binary("mul", a, taken.expr))
            case Binary(op="max", a=a, b=Const(value=0) as zero) if self.value > 0:
                taken = self.into(a, reader)
                return None if taken is None else replace(taken, expr=binary("max", taken.expr, zero))
            case Load() if expr.buffer.name in self.weights:
                return self._into_weights(expr, reader)
            case Load():
                return self._into_stage(expr, reader)
        return None

    def _both(self, op: str, a: _Taken | None, b: _Taken | None) -> _Taken | None:
        if a is None or b is None or a.arrays.keys() & b.arrays.keys() or a.stages.keys() & b.stages.keys():
            return None
        return _Taken(binary(op, a.expr, b.expr), {**a.stages, **b.stages}, {**a.arrays, **b.arrays})

    def _into_weights(self, load: Load, reader: ComputeOp) -> _Taken | None:
        name = load.buffer.name
        times = sum(other.buffer.name == name for other in loads(reader))
        if times != 1 or self.program.consumers[name] != (reader.name,) or name in self.program.outputs:
            return None
        array = self.weights[name]
        made = array.astype(np.float64) * self.value
        fits = bool((np.abs(made) <= float(np.finfo(array.dtype).max)).all())
        return _Taken(load, arrays={name: made.astype(array.dtype)}) if fits else None

    def _into_stage(self, load: Load, reader: ComputeOp) -> _Taken | None:
        name = self.program.producer.get(load.buffer.name, "")
        op = self.program.by_name.get(name)
        if not isinstance(op, ComputeOp) or not is_plain(op) or op.dtype not in _WIDE:
            return None
        if only_reader(self.program, name) is not reader or not at_own_place(reader, load):
            return None
        taken = self.into(op.body[0], op)
        if taken is None:
            return None
        return replace(taken, expr=load, stages={**taken.stages, name: replace(op, body=(taken.expr,))})

    def _is_normal(self, number: float, dtype: str) -> bool:
        info = np.finfo(np.dtype(dtype))
        return number == 0 or float(info.smallest_normal) <= abs(number) <= float(info.max)
