"""Divisions by known numbers become products: CPUs divide ten times as slowly as they multiply.

The reciprocal is rounded, so a quotient may be off by one more unit in its last place.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Const, Expr, binary, const, rewrite
from tensorlang.te.operation import ComputeOp, Operation
from tensorlang.te.program import Program

_WIDE = ("float32", "float64")
"""Narrow floats would be off by more than sums are."""


def without_divisions(program: Program) -> Program:
    """The program with products by reciprocals in place of divisions by constants."""
    return replace(program, ops=tuple(map(_multiplied, program.ops)))


def _multiplied(op: Operation) -> Operation:
    if not isinstance(op, ComputeOp):
        return op
    return replace(op, body=tuple(rewrite(body, _by_reciprocal) for body in op.body))


def _by_reciprocal(node: Expr) -> Expr | None:
    match node:
        case Binary(op="div", a=a, b=Const(value=value)) if node.dtype in _WIDE and value:
            number = float(value)
            normal = np.finfo(dtypes.info(node.dtype).numpy).smallest_normal
            if math.isfinite(number) and min(abs(number), 1 / abs(number)) >= normal:
                return binary("mul", a, const(1 / number, node.dtype))
    return None
