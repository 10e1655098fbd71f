"""Operators that make each element of elements at its own place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks import elements
from tensorlang.networks.elements import number
from tensorlang.networks.network import Value
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule, is_float


def _unary(function: Callable[[Expr], Expr]) -> Rule:
    return lambda call: call.pointwise(function, call["self"])


def _whole(function: Callable[[Expr], Expr]) -> Rule:
    """A function of floats that leaves whole numbers as they are."""
    return lambda call: call.pointwise(function if is_float(call.dtype) else lambda x: x, call["self"])


def _asked(function: Callable[[Expr], Expr]) -> Rule:
    """A question about an element of its own dtype."""
    return lambda call: call.pointwise(function, call["self"], dtype=call["self"].dtype)


def _with(function: Callable[..., Expr], **names: str) -> Rule:
    """A function of an element and of numbers, which ATen calls by other names."""
    return lambda call: call.pointwise(
        lambda x: function(x, **{own: float(call[theirs]) for own, theirs in names.items()}), call["self"]
    )


def _binary(function: Callable[[Expr, Expr], Expr]) -> Rule:
    return lambda call: call.pointwise(function, call["self"], call["other"])


def _compared(op: str) -> Rule:
    def rule(call: Call) -> Value:
        own, other = call["self"], call["other"]
        return call.pointwise(lambda a, b: binary(op, a, b), own, other, dtype=call.promoted(own, other))

    return rule


def _logical(function: Callable[..., Expr]) -> Rule:
    return lambda call: call.pointwise(function, call["self"], call["other"], dtype="bool")


def _sum(sign: int) -> Rule:
    def rule(call: Call) -> Value:
        factor = sign * call["alpha"]
        if factor == 1:
            return call.pointwise(_add, call["self"], call["other"])
        if factor == -1:
            return call.pointwise(lambda a, b: a - b, call["self"], call["other"])
        return call.pointwise(lambda a, b: a + b * number(factor, b), call["self"], call["other"])

    return rule


def _add(a: Expr, b: Expr) -> Expr:
    return te.any(a, b) if a.dtype == "bool" else a + b


def _multiply(a: Expr, b: Expr) -> Expr:
    return te.all(a, b) if a.dtype == "bool" else a * b


def _reversed_difference(call: Call) -> Value:
    alpha = call["alpha"]
    return call.pointwise(lambda a, b: b - (a if alpha == 1 else a * number(alpha, a)), call["self"], call["other"])


def _divided(call: Call) -> Value:
    mode = call.given.get("rounding_mode")
    if mode is None:
        return call.pointwise(lambda a, b: a / b, call["self"], call["other"])
    if mode == "floor":
        return call.pointwise(_floor_quotient, call["self"], call["other"])
    return call.pointwise(lambda a, b: te.trunc(a / b) if is_float(call.dtype) else te.truncdiv(a, b),
                          call["self"], call["other"])  # fmt: skip


def _floor_quotient(a: Expr, b: Expr) -> Expr:
    return te.floor(a / b) if is_float(a.dtype) else te.floordiv(a, b)


def _remainder(a: Expr, b: Expr) -> Expr:
    """What floor division leaves, of the sign of b."""
    if not is_float(a.dtype):
        return te.floormod(a, b)
    rest = te.fmod(a, b)
    other = te.all(binary("ne", rest, number(0, a)), binary("ne", binary("lt", rest, number(0, a)),
                                                            binary("lt", b, number(0, b))))  # fmt: skip
    return te.select(other, rest + b, rest)


def _truncated_rest(a: Expr, b: Expr) -> Expr:
    return te.fmod(a, b) if is_float(a.dtype) else te.truncmod(a, b)


def _power(call: Call) -> Value:
    base, exponent = call["self"], call["exponent"]
    if isinstance(exponent, int | float) and exponent in _POWERS:
        return call.pointwise(_POWERS[exponent], base)
    if not is_float(call.dtype):
        raise Unsupported("powers of whole numbers to others than 2 and 3")
    return call.pointwise(te.pow, base, exponent)


_POWERS: dict[float, Callable[[Expr], Expr]] = {
    0.5: te.sqrt,
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    -0.5: te.rsqrt,
    -1: lambda x: number(1, x) / x,
}


def _clamp(low: str, high: str) -> Rule:
    def rule(call: Call) -> Value:
        bounds = [(call.given.get(name), limit) for name, limit in ((low, te.maximum), (high, te.minimum))]
        given = [(value, limit) for value, limit in bounds if value is not None]

        def element(x: Expr, *limits: Expr) -> Expr:
            for bound, (_, limit) in zip(limits, given, strict=True):
                x = limit(x, bound)
            return x

        return call.pointwise(element, call["self"], *(value for value, _ in given))

    return rule


def _where(call: Call) -> Value:
    own, other = call["self"], call["other"]
    return _chosen(call, call["condition"], own, other)


def _masked_fill(call: Call) -> Value:
    return _chosen(call, call["mask"], call["value"], call["self"])


def _chosen(call: Call, condition: Any, one: Any, other: Any) -> Value:
    own = dtypes.info(call.dtype).numpy
    values = [
        call.cast(v, call.dtype, f"cast{k}") if hasattr(v, "dtype") else np.asarray(v, own)
        for k, v in enumerate((one, other))
    ]
    return call.onnx("Where", call.cast(condition, "bool", "mask"), *values)


def _gelu(call: Call) -> Value:
    return call.pointwise(elements.gelu_tanh if call["approximate"] == "tanh" else elements.gelu, call["self"])


def _softplus(call: Call) -> Value:
    beta, threshold = float(call["beta"]), float(call["threshold"])

    def element(x: Expr) -> Expr:
        scaled = x * number(beta, x)
        return te.select(binary("gt", scaled, number(threshold, x)), x, elements.softplus(scaled) / number(beta, x))

    return call.pointwise(element, call["self"])


def _elu(call: Call) -> Value:
    alpha, scale, inside = (float(call[name]) for name in ("alpha", "scale", "input_scale"))

    def element(x: Expr) -> Expr:
        below = te.expm1(x * number(inside, x)) * number(alpha * scale, x)
        return te.select(binary("gt", x, number(0, x)), x * number(scale, x), below)

    return call.pointwise(element, call["self"])


def _converted(call: Call) -> Value:
    return call.cast(call["self"], call.dtype, part="as") if hasattr(call["self"], "dtype") else call["self"]


def _lerp(call: Call) -> Value:
    return call.pointwise(lambda a, b, w: a + w * (b - a), call["self"], call["end"], call["weight"])


def _with_product(function: Callable[[Expr, Expr], Expr]) -> Rule:
    def rule(call: Call) -> Value:
        factor = call["value"]
        return call.pointwise(
            lambda x, a, b: x + function(a, b) * number(factor, x), call["self"], call["tensor1"], call["tensor2"]
        )

    return rule


def _threshold_backward(call: Call) -> Value:
    limit = call["threshold"]
    return call.pointwise(
        lambda g, x: te.select(binary("le", x, number(limit, x)), number(0, g), g), call["grad_output"], call["self"]
    )


def _each(words: str, rule: Rule, suffixes: str = "default") -> dict[str, Rule]:
    return {f"{word}.{suffix}": rule for word in words.split() for suffix in suffixes.split()}


RULES: dict[str, Rule] = {
    **{f"{name}.default": _unary(getattr(te, name)) for name in (
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log",
        "log10", "log1p", "log2", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh")},
    **{f"{name}.default": _whole(function) for name, function in (
        ("ceil", te.ceil), ("floor", te.floor), ("round", te.nearbyint), ("trunc", te.trunc))},
    **{f"{name}.default": _asked(function) for name, function in (
        ("isinf", te.isinf), ("isnan", te.isnan), ("isfinite", te.isfinite))},
    **{f"{name}.{kind}": _compared(name) for name in ("eq", "ge", "gt", "le", "lt", "ne") for kind in (
        "Scalar", "Tensor")},
    "bitwise_not.default": _unary(lambda x: elements.logical_not(x) if x.dtype == "bool" else ~x),
    "hardsigmoid.default": _unary(lambda x: elements.hard_sigmoid(x, 1 / 6, 0.5)),
    "hardswish.default": _unary(elements.hard_swish),
    "leaky_relu.default": _with(elements.leaky_relu, alpha="negative_slope"),
    "logical_not.default": lambda call: call.pointwise(elements.logical_not, call["self"], dtype="bool"),
    "mish.default": _unary(elements.mish),
    "neg.default": _unary(lambda x: -x),
    "reciprocal.default": _unary(lambda x: number(1, x) / x),
    "relu.default": _unary(elements.relu),
    "sign.default": _unary(elements.sign),
    "silu.default": _unary(lambda x: x * te.sigmoid(x)),
    "elu.default": _elu,
    "gelu.default": _gelu,
    "softplus.default": _softplus,
    **_each("add", _sum(1), "Tensor Scalar"),
    **_each("sub", _sum(-1), "Tensor Scalar"),
    **_each("rsub", _reversed_difference, "Tensor Scalar"),
    **_each("mul", _binary(_multiply), "Tensor Scalar"),
    **_each("div", _divided, "Tensor Scalar Tensor_mode Scalar_mode"),
    **_each("floor_divide", _binary(_floor_quotient), "default Scalar"),
    **_each("fmod", _binary(_truncated_rest), "Tensor Scalar"),
    **_each("remainder", _binary(_remainder), "Tensor Scalar"),
    **_each("pow", _power, "Tensor_Scalar Tensor_Tensor Scalar"),
    **_each("bitwise_and", _binary(lambda a, b: te.all(a, b) if a.dtype == "bool" else a & b), "Tensor Scalar"),
    **_each("bitwise_or", _binary(lambda a, b: te.any(a, b) if a.dtype == "bool" else a | b), "Tensor Scalar"),
    **_each("bitwise_xor", _binary(lambda a, b: binary("ne", a, b) if a.dtype == "bool" else a ^ b), "Tensor Scalar"),
    "logical_and.default": _logical(te.all),
    "logical_or.default": _logical(te.any),
    "logical_xor.default": _logical(lambda a, b: binary("ne", a, b)),
    "atan2.default": _binary(te.atan2),
    "maximum.default": _binary(te.maximum),
    "minimum.default": _binary(te.minimum),
    **_each("clamp", _clamp("min", "max"), "default Tensor"),
    **_each("clamp_min", _clamp("min", ""), "default Tensor"),
    **_each("clamp_max", _clamp("", "max"), "default Tensor"),
    "hardtanh.default": _clamp("min_val", "max_val"),
    "where.self": _where,
    **_each("masked_fill", _masked_fill, "Scalar Tensor"),
    **_each("lerp", _lerp, "Scalar Tensor"),
    "addcmul.default": _with_product(lambda a, b: a * b),
    "addcdiv.default": _with_product(lambda a, b: a / b),
    "threshold_backward.default": _threshold_backward,
    "_to_copy.default": _converted,
    "prims.convert_element_type.default": lambda call: call.cast(call["a"], call.dtype, part="as"),
}  # fmt: skip
