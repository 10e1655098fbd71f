"""Products of matrices, and reductions over axes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr
from tensorlang.networks.elements import number
from tensorlang.networks.network import Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule
from tensorlang.te.operation import Tensor


def _product(first: str, second: str) -> Rule:
    return lambda call: call.onnx("MatMul", call[first], call[second])


def _added_product(factors: tuple[str, str]) -> Rule:
    """beta * self + alpha * the product of two matrices, or of many."""

    def rule(call: Call) -> Value:
        product = call.onnx("MatMul", *(call[name] for name in factors), part="product")
        alpha, beta = call["alpha"], call["beta"]

        def element(p: Expr, x: Expr) -> Expr:
            scaled = p if alpha == 1 else p * number(alpha, p)
            return scaled + (x if beta == 1 else x * number(beta, x))

        if beta == 0:
            return call.pointwise(lambda p: p * number(alpha, p), product)
        return call.pointwise(element, product, call["self"])

    return rule


def _linear(call: Call) -> Value:
    """Rows times the transposed weight, which stays as it is."""
    data, weight = call.tensor(call["input"]), call.tensor(call["weight"])
    rows = reshaped(data, (math.prod(shape_of(data)[:-1]), shape_of(data)[-1]), f"{call.stage}_rows")
    product = topi.matmul(rows, weight, transpose_b=True, name=f"{call.stage}_product")
    made = product
    if call["bias"] is not None:
        bias = call.tensor(call["bias"])
        made = call.compute(shape_of(product), lambda i, j: product(i, j) + bias(j), "bias")
    return reshaped(made, call.shape, call.stage)


def _axes(call: Call) -> list[int]:
    """The dimensions of a reduction; all of them where none is named."""
    rank, given = len(shape_of(call["self"])), call.given.get("dim")
    if given is None or given == []:
        return list(range(rank))
    return sorted(d % rank if rank else 0 for d in ([given] if isinstance(given, int) else given))


def _reduction(function: Callable[..., Tensor], before: Callable[[Expr], Expr] | None = None,
               after: Callable[[Expr], Expr] | None = None) -> Rule:  # fmt: skip
    """A reduction of elements in the dtype of the output."""

    def rule(call: Call) -> Value:
        data = call.tensor(call.cast(call["self"], call.dtype))
        if before is not None:
            data = call.pointwise(before, data, part="each")
        made = _reduced(call, function, data)
        return made if after is None else call.pointwise(after, made)

    return rule


def _reduced(call: Call, function: Callable[..., Tensor], data: Tensor, part: str = "reduced") -> Tensor:
    if not shape_of(data):
        return data
    return function(data, _axes(call), keepdims=bool(call.given.get("keepdim")), name=f"{call.stage}_{part}")


def _any_of(function: Callable[..., Tensor]) -> Rule:
    """Whether any element, or all of them, are not 0: the largest, or the smallest, of zeros and ones."""

    def rule(call: Call) -> Value:
        bits = call.cast(call.cast(call["self"], "bool", "bool"), "int32", "bits")
        return call.cast(_reduced(call, function, call.tensor(bits)), "bool", "found")

    return rule


def _variance(deviation: bool, with_mean: bool) -> Rule:
    def rule(call: Call) -> Value | tuple[Value, ...]:
        data, axes = call.tensor(call["self"]), _axes(call)
        shape = shape_of(data)
        count = math.prod(shape[d] for d in axes)
        given = call.given.get("correction", call.given.get("unbiased"))
        degrees = max(0.0, count - float(1 if given is None else given))
        if not degrees:
            raise Unsupported("of as many elements as it corrects for")
        means = topi.mean(data, axes, keepdims=True, name=f"{call.stage}_mean")

        def square(*index: Expr) -> Expr:
            return _square(data(*index) - means(*(0 if d in axes else v for d, v in enumerate(index))))

        squares = call.compute(shape, square, "squares")
        total = topi.sum(squares, axes, keepdims=bool(call.given.get("keepdim")), name=f"{call.stage}_total")

        def element(x: Expr) -> Expr:
            mean = x / number(degrees, x)
            return te.sqrt(mean) if deviation else mean

        made = call.pointwise(element, total)
        if not with_mean:
            return made
        return made, reshaped(means, call.made[1][0], f"{call.stage}_means")

    return rule


def _square(x: Expr) -> Expr:
    return x * x


def _place(op: str) -> Rule:
    def rule(call: Call) -> Value:
        data, dim, shape = call["self"], call["dim"], shape_of(call["self"])
        if dim is None:
            data, dim = reshaped(call.tensor(data), (math.prod(shape),), f"{call.stage}_flat"), 0
        made = call.onnx(op, data, part="place", axis=dim, keepdims=int(call["keepdim"]))
        return reshaped(made, call.shape, call.stage)

    return rule


def _extreme_and_place(function: Callable[..., Tensor], op: str) -> Rule:
    def rule(call: Call) -> tuple[Value | None, ...]:
        keep = bool(call["keepdim"])
        values = _reduced(call, function, call.tensor(call["self"]))
        places = None
        if 1 in call.used:
            places = call.onnx(op, call["self"], part="place", axis=call["dim"], keepdims=int(keep))
        return values, places

    return rule


def _log_sum_exp(call: Call) -> Value:
    axes = np.array(_axes(call))
    return call.onnx("ReduceLogSumExp", call["self"], axes, keepdims=int(call["keepdim"]))


def _norm(call: Call) -> Value | tuple[Value | None, ...]:
    order = float(call["ord"])
    if order not in (1.0, 2.0, math.inf):
        raise Unsupported(f"of order {order}; 1, 2 and inf are taken")
    rules: dict[float, Rule] = {
        1.0: _reduction(topi.sum, te.abs),
        2.0: _reduction(topi.sum, _square, te.sqrt),
        math.inf: _reduction(topi.max, te.abs),
    }
    return rules[order](call)


RULES: dict[str, Rule] = {
    "addmm.default": _added_product(("mat1", "mat2")),
    "all.default": _any_of(topi.min),
    "all.dim": _any_of(topi.min),
    "all.dims": _any_of(topi.min),
    "amax.default": _reduction(topi.max),
    "amin.default": _reduction(topi.min),
    "any.default": _any_of(topi.max),
    "any.dim": _any_of(topi.max),
    "any.dims": _any_of(topi.max),
    "argmax.default": _place("ArgMax"),
    "argmin.default": _place("ArgMin"),
    "baddbmm.default": _added_product(("batch1", "batch2")),
    "bmm.default": _product("self", "mat2"),
    "dot.default": _product("self", "tensor"),
    "linalg_vector_norm.default": _norm,
    "linear.default": _linear,
    "logsumexp.default": _log_sum_exp,
    "max.default": _reduction(topi.max),
    "max.dim": _extreme_and_place(topi.max, "ArgMax"),
    "mean.default": _reduction(topi.mean),
    "mean.dim": _reduction(topi.mean),
    "min.default": _reduction(topi.min),
    "min.dim": _extreme_and_place(topi.min, "ArgMin"),
    "mm.default": _product("self", "mat2"),
    "mv.default": _product("self", "vec"),
    "prod.default": _reduction(topi.prod),
    "prod.dim_int": _reduction(topi.prod),
    "std.correction": _variance(deviation=True, with_mean=False),
    "sum.default": _reduction(topi.sum),
    "sum.dim_IntList": _reduction(topi.sum),
    "var.correction": _variance(deviation=False, with_mean=False),
    "var.dim": _variance(deviation=False, with_mean=False),
    "var_mean.correction": _variance(deviation=False, with_mean=True),
}
