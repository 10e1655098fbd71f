"""Products of matrices, and reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.integers import Factors, Quantized, factors_of
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of, shape_of
from tensorlang.networks.onnx.zeros import less, less_zero, scaled
from tensorlang.networks.places import reshaped
from tensorlang.te.operation import Tensor


def _matmul(node: Node) -> Value:
    made = _product_of_integers(node, node.meaning(0), node.meaning(1))
    return product(node.stage, node.tensor(0), node.tensor(1)) if made is None else made


def _product_of_integers(node: Node, a: Quantized | None, b: Quantized | None) -> Tensor | None:
    """What the product of integers stands for; None where the factors are no integers, or not by a known matrix."""
    factors = factors_of(a, b, 1)
    if factors is None or factors.weight.ndim != 2 or factors.data.ndim < 2:
        return None
    return scaled(node, _sums(node, factors), factors.scale)


def integer_product(node: Node, a: Quantized, b: Quantized) -> Tensor:
    """The products of matrices of integers, each less its zero, as int32; dimensions in front are broadcast."""
    factors = factors_of(a, b, 1)
    if factors is not None and factors.weight.ndim == 2 and factors.data.ndim > 1:
        return _sums(node, factors)
    rows, last = max(0, len(shape_of(a.data)) - 2), len(shape_of(b.data)) - 1
    return product(node.stage, less_zero(node, a, rows, "left"), less_zero(node, b, last, "right"))


def _sums(node: Node, factors: Factors) -> Tensor:
    """The product of data and a matrix of weights, both less their zeros."""
    sums = product(node.stage, factors.data, node.weights.tensor(factors.weight), "int32")
    return less(node, sums, factors.zero, factors.totals(1))


def product(stage: str, a: Tensor, b: Tensor, dtype: str | None = None) -> Tensor:
    """The product of matrices or vectors as NumPy has it, with sums of a dtype, that of `a` unless given."""
    left, right = shape_of(a), shape_of(b)
    if len(left) == 1 or len(right) == 1:
        return _vector_product(stage, a, b, dtype)
    if len(right) == 2:
        flat = reshaped(a, (math.prod(left[:-1]), left[-1]), f"{stage}_rows")
        made = topi.matmul(flat, b, out_dtype=dtype, name=stage)
        return reshaped(made, (*left[:-1], right[-1]), f"{stage}_whole")
    return _batched(stage, a, b, dtype)


def _vector_product(stage: str, a: Tensor, b: Tensor, dtype: str | None) -> Tensor:
    left, right = shape_of(a), shape_of(b)
    rows = reshaped(a, (1, left[0]), f"{stage}_row") if len(left) == 1 else a
    columns = reshaped(b, (right[0], 1), f"{stage}_column") if len(right) == 1 else b
    made = _batched(stage, rows, columns, dtype)
    shape = list(shape_of(made))
    kept = shape[: len(shape) - 2] + ([] if len(left) == 1 else [shape[-2]]) + ([] if len(right) == 1 else [shape[-1]])
    return reshaped(made, kept, f"{stage}_whole")


def _batched(stage: str, a: Tensor, b: Tensor, dtype: str | None) -> Tensor:
    """Products of matrices, one for each index of the dimensions in front, which are broadcast and joined to one."""
    left, right = shape_of(a), shape_of(b)
    around = np.broadcast_shapes(left[:-2], right[:-2])
    count = math.prod(around)
    wide = [_joined(t, around, f"{stage}_{side}") for t, side in ((a, "left"), (b, "right"))]
    if count == 1:
        made = topi.matmul(wide[0], wide[1], out_dtype=dtype, name=stage)
    else:
        made = topi.batch_matmul(wide[0], wide[1], out_dtype=dtype, transpose_b=False, name=stage)
    return reshaped(made, (*around, left[-2], right[-1]), f"{stage}_whole")


def _joined(tensor: Tensor, around: Sequence[int], name: str) -> Tensor:
    shape = shape_of(tensor)
    whole = tensor
    if shape[:-2] != tuple(around) and math.prod(shape[:-2]) != math.prod(around):
        whole = topi.broadcast_to(tensor, [*around, *shape[-2:]], name=f"{name}_wide")
    count = math.prod(around)
    return reshaped(whole, shape[-2:] if count == 1 else (count, *shape[-2:]), name)


def _gemm(node: Node) -> Value:
    alpha, beta = float(node.attrs.get("alpha", 1.0)), float(node.attrs.get("beta", 1.0))
    across, transposed = bool(node.attrs.get("transA")), bool(node.attrs.get("transB"))
    right = node.meaning(1)
    columns = right.transposed if right is not None and transposed else right
    sums = None if across else _product_of_integers(node, node.meaning(0), columns)
    if sums is None:
        sums = topi.matmul(node.tensor(0), node.tensor(1), across, transposed, name=node.stage)
    shape = shape_of(sums)
    if not node.has(2) and alpha == 1.0:
        return sums

    def element(i: Expr, j: Expr) -> Expr:
        value = sums(i, j)
        value = value if alpha == 1.0 else value * te.const(alpha, sums.dtype)
        if not node.has(2):
            return value
        added = element_of(node.value(2), lambda: node.tensor(2), (i, j))
        return value + (added if beta == 1.0 else added * te.const(beta, sums.dtype))

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
        shape, data = node.shape(0), node.tensor(0)
        axis = axis_of(node.attrs.get("axis", 0), len(shape), node.op)
        last, end = bool(node.attrs.get("select_last_index")), shape[axis] - 1
        if last:  # of equal elements the first one is taken, from behind
            given = data
            data = te.compute(
                shape, lambda *i: given(*i[:axis], end - i[axis], *i[axis + 1 :]), name=f"{node.stage}_turned"
            )
        made = function(data, axis, bool(node.attrs.get("keepdims", 1)), name=node.stage)

        def element(*i: Expr) -> Expr:
            place = cast(made(*i), "int64")
            return te.const(end, "int64") - place if last else place

        whole: Tensor = te.compute(made.shape, element, name=f"{node.stage}_long")
        return whole

    return rule


def _hardmax(node: Node) -> Value:
    """1 at the first of the largest elements along an axis; old opsets take all dimensions from that one on as one."""
    shape, old = node.shape(0), node.opset < 13
    axis = axis_of(node.attrs.get("axis", 1 if old else -1), len(shape), node.op)
    data = node.tensor(0)
    if old:
        data = reshaped(data, (math.prod(shape[:axis]), math.prod(shape[axis:])), f"{node.stage}_rows")
        axis = 1
    place = topi.argmax(data, axis, True, name=f"{node.stage}_place")

    def element(*i: Expr) -> Expr:
        found = place(*i[:axis], 0, *i[axis + 1 :])
        one, zero = te.const(1, data.dtype), te.const(0, data.dtype)
        return te.select(binary("eq", found, cast(i[axis], found.dtype)), one, zero)

    made: Tensor = te.compute(data.shape, element, name=node.stage)
    return reshaped(made, shape, f"{node.stage}_whole")


def _square(x: Expr) -> Expr:
    return x * x


RULES: dict[str, Rule] = {
    "ArgMax": _place(topi.argmax),
    "ArgMin": _place(topi.argmin),
    "Gemm": _gemm,
    "Hardmax": _hardmax,
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
