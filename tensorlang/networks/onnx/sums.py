"""Products of matrices, and reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of, shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor


def _matmul(node: Node) -> Value:
    a, b = node.tensor(0), node.tensor(1)
    left, right = shape_of(a), shape_of(b)
    if len(left) == 1 or len(right) == 1:
        return _vector_product(node, a, b)
    if len(right) == 2:
        flat = reshaped(a, (math.prod(left[:-1]), left[-1]), f"{node.stage}_rows")
        product = topi.matmul(flat, b, name=node.stage)
        return reshaped(product, (*left[:-1], right[-1]), f"{node.stage}_whole")
    return _batched(node, a, b)


def _vector_product(node: Node, a: Tensor, b: Tensor) -> Value:
    left, right = shape_of(a), shape_of(b)
    rows = reshaped(a, (1, left[0]), f"{node.stage}_row") if len(left) == 1 else a
    columns = reshaped(b, (right[0], 1), f"{node.stage}_column") if len(right) == 1 else b
    made = _batched(node, rows, columns)
    shape = list(shape_of(made))
    kept = shape[: len(shape) - 2] + ([] if len(left) == 1 else [shape[-2]]) + ([] if len(right) == 1 else [shape[-1]])
    return reshaped(made, kept, f"{node.stage}_whole")


def _batched(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices, one for each index of the dimensions in front, which are broadcast and joined to one."""
    left, right = shape_of(a), shape_of(b)
    around = np.broadcast_shapes(left[:-2], right[:-2])
    count = math.prod(around)
    wide = [_joined(t, around, f"{node.stage}_{side}") for t, side in ((a, "left"), (b, "right"))]
    if count == 1:
        product = topi.matmul(wide[0], wide[1], name=node.stage)
    else:
        product = topi.batch_matmul(wide[0], wide[1], transpose_b=False, name=node.stage)
    return reshaped(product, (*around, left[-2], right[-1]), f"{node.stage}_whole")


def _joined(tensor: Tensor, around: Sequence[int], name: str) -> Tensor:
    shape = shape_of(tensor)
    whole = tensor
    if shape[:-2] != tuple(around) and math.prod(shape[:-2]) != math.prod(around):
        whole = topi.broadcast_to(tensor, [*around, *shape[-2:]], name=f"{name}_wide")
    count = math.prod(around)
    return reshaped(whole, shape[-2:] if count == 1 else (count, *shape[-2:]), name)


def _gemm(node: Node) -> Value:
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    a, b = node.tensor(0), node.tensor(1)
    across, transposed = bool(node.attrs.get("transA")), bool(node.attrs.get("transB"))
    product = topi.matmul(a, b, transpose_a=across, transpose_b=transposed, name=node.stage)
    shape = shape_of(product)
    if not node.has(2) and alpha == 1.0:
        return product

    def element(i: Expr, j: Expr) -> Expr:
        value = product(i, j)
        value = value if alpha == 1.0 else value * te.const(alpha, product.dtype)
        if not node.has(2):
            return value
        added = element_of(node.value(2), lambda: node.tensor(2), (i, j))
        return value + (added if beta == 1.0 else added * te.const(beta, product.dtype))

    made: Tensor = te.compute(shape, element, name=f"{node.stage}_out")
    return made


def _reduction(function: Callable[..., Tensor], before: Any = None, after: Any = None) -> Rule:
    def rule(node: Node) -> Value:
        shape = node.shape(0)
        axes = node.numbers(1, "axes")
        if not axes:
            if node.attrs.get("noop_with_empty_axes"):
                return node.value(0)
            axes = list(range(len(shape)))
        along = sorted({axis_of(a, len(shape), node.op) for a in axes})
        data = node.tensor(0)
        if before is not None:
            data = te.compute(data.shape, lambda *i: before(node.tensor(0)(*i)), name=f"{node.stage}_each")
        made = function(data, along, keepdims=bool(node.attrs.get("keepdims", 1)), name=node.stage)
        if after is None:
            return made
        whole: Tensor = te.compute(made.shape, lambda *i: after(made(*i)), name=f"{node.stage}_out")
        return whole

    return rule


def _log_sum_exp(node: Node) -> Value:
    """The greatest element is taken out first, so that no power overflows."""
    shape = node.shape(0)
    axes = node.numbers(1, "axes") or list(range(len(shape)))
    if node.attrs.get("noop_with_empty_axes") and not node.numbers(1, "axes"):
        return node.value(0)
    along = sorted({axis_of(a, len(shape), node.op) for a in axes})
    data = node.tensor(0)
    greatest = topi.max(data, along, keepdims=True, name=f"{node.stage}_greatest")

    def at(index: Sequence[Expr]) -> list[Any]:
        return [0 if d in along else i for d, i in enumerate(index)]

    powers: Tensor = te.compute(
        tuple(shape), lambda *i: te.exp(data(*i) - greatest(*at(i))), name=f"{node.stage}_powers"
    )
    total = topi.sum(powers, along, keepdims=True, name=node.stage)
    made: Tensor = te.compute(total.shape, lambda *i: te.log(total(*i)) + greatest(*i), name=f"{node.stage}_out")
    if node.attrs.get("keepdims", 1):
        return made
    return reshaped(made, [n for d, n in enumerate(shape) if d not in along], f"{node.stage}_whole")


def _place(function: Callable[..., Tensor]) -> Rule:
    def rule(node: Node) -> Value:
        if node.attrs.get("select_last_index"):
            raise Unsupported(f"{node.op} of the last of equal elements")
        shape = node.shape(0)
        axis = axis_of(node.attrs.get("axis", 0), len(shape), node.op)
        made = function(node.tensor(0), axis, bool(node.attrs.get("keepdims", 1)), name=node.stage)
        whole: Tensor = te.compute(made.shape, lambda *i: cast(made(*i), "int64"), name=f"{node.stage}_long")
        return whole

    return rule


def _square(x: Expr) -> Expr:
    return x * x


RULES: dict[str, Rule] = {
    "ArgMax": _place(topi.argmax),
    "ArgMin": _place(topi.argmin),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ReduceL1": _reduction(topi.sum, before=te.abs),
    "ReduceL2": _reduction(topi.sum, before=_square, after=te.sqrt),
    "ReduceLogSum": _reduction(topi.sum, after=te.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _reduction(topi.max),
    "ReduceMean": _reduction(topi.mean),
    "ReduceMin": _reduction(topi.min),
    "ReduceProd": _reduction(topi.prod),
    "ReduceSum": _reduction(topi.sum),
    "ReduceSumSquare": _reduction(topi.sum, before=_square),
}
