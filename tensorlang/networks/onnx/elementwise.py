"""Operators that make each element of elements at its own place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.onnx.node import Node, Rule, Unsupported, element_of, pointwise, shape_of

_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
"""dtypes by the numbers of TensorProto.DataType."""


def dtype_of(number: int) -> str:
    """The dtype of an ONNX element type; Unsupported for one that programs do not have."""
    if number not in _TYPES:
        raise Unsupported(f"elements of ONNX type {number}")
    return _TYPES[number]


def _unary(function: Callable[[Expr], Any]) -> Rule:
    return lambda node: pointwise(node, function, 0)


def _binary(function: Callable[[Expr, Expr], Any]) -> Rule:
    return lambda node: pointwise(node, function, 0, 1)


def _with(function: Callable[..., Any], **usual: float) -> Rule:
    """A function of an element and of attributes."""

    def rule(node: Node) -> Value:
        given = {name: float(node.attrs.get(name, value)) for name, value in usual.items()}
        return pointwise(node, partial(function, **given), 0)

    return rule


def _folded(function: Callable[[Expr, Expr], Expr], mean: bool = False) -> Rule:
    """A function of two applied to any number of inputs, one after the other."""

    def rule(node: Node) -> Value:
        count = len(node.inputs)

        def element(*values: Expr) -> Expr:
            made = reduce(function, values)
            return made / te.const(count, made.dtype) if mean else made

        return pointwise(node, element, *range(count))

    return rule


def _divide(a: Expr, b: Expr) -> Expr:
    return te.truncdiv(a, b) if dtypes.info(a.dtype).is_integer else a / b


def _modulo(node: Node) -> Value:
    dtype = node.tensor(0).dtype
    if dtypes.info(dtype).is_integer and not node.attrs.get("fmod"):
        return pointwise(node, te.floormod, 0, 1)
    return pointwise(node, te.fmod if not dtypes.info(dtype).is_integer else te.truncmod, 0, 1)


def _power(node: Node) -> Value:
    exponent = node.value(1)
    if isinstance(exponent, np.ndarray) and exponent.size == 1:
        number = exponent.ravel()[0].item()
        if number in (2, 3):
            return pointwise(node, lambda a: a * a if number == 2 else a * a * a, 0)
        if number == 0.5:
            return pointwise(node, te.sqrt, 0)
    return pointwise(node, lambda a, b: te.pow(a, cast(b, a.dtype)), 0, 1)


def _clip(node: Node) -> Value:
    low, high = (node.attrs.get(name) for name in ("min", "max"))
    bounds = [node.inputs[k] if node.has(k) else None for k in (1, 2)]

    def element(x: Expr) -> Expr:
        for bound, number, limit in ((bounds[0], low, te.maximum), (bounds[1], high, te.minimum)):
            if bound is not None:
                place = 1 if limit is te.maximum else 2
                x = limit(x, element_of(bound, lambda place=place: node.tensor(place), ()))  # type: ignore[misc]
            elif number is not None:
                x = limit(x, te.const(number, x.dtype))
        return x

    return pointwise(node, element, 0)


def _cast(node: Node) -> Value:
    dtype = dtype_of(node.attrs["to"])
    if dtype == "bool":
        return pointwise(node, lambda x: binary("ne", x, te.const(0, x.dtype)), 0)
    return pointwise(node, lambda x: cast(x, dtype), 0)


def _cast_like(node: Node) -> Value:
    return pointwise(node, lambda x: cast(x, node.tensor(1).dtype), 0)


def _gelu(node: Node) -> Value:
    if node.attrs.get("approximate", "none") == "tanh":
        return pointwise(node, _gelu_tanh, 0)
    return pointwise(node, lambda x: x * te.const(0.5, x.dtype) * (te.erf(x * _number(math.sqrt(0.5), x)) + 1.0), 0)


def _gelu_tanh(x: Expr) -> Expr:
    inner = (x + x * x * x * _number(0.044715, x)) * _number(math.sqrt(2 / math.pi), x)
    return x * _number(0.5, x) * (te.tanh(inner) + 1.0)


def _number(value: float, like: Expr) -> Expr:
    return te.const(value, like.dtype)


def _softplus(x: Expr) -> Expr:
    return te.maximum(x, _number(0, x)) + te.log1p(te.exp(-te.abs(x)))


def _sign(x: Expr) -> Expr:
    zero, one = _number(0, x), _number(1, x)
    return te.select(binary("gt", x, zero), one, te.select(binary("lt", x, zero), _number(-1, x), x))


def _prelu(node: Node) -> Value:
    return pointwise(node, lambda x, slope: te.select(binary("lt", x, _number(0, x)), x * slope, x), 0, 1)


def _hard_swish(x: Expr) -> Expr:
    return x * te.maximum(_number(0, x), te.minimum(_number(1, x), x * _number(1 / 6, x) + _number(0.5, x)))


def _identity(node: Node) -> Value:
    return node.value(0)


def _dropout(node: Node) -> tuple[Value, ...]:
    if node.has(2) and np.any(node.known(2, "training_mode")):
        raise Unsupported("Dropout in training mode; export the model for inference")
    if node.outputs == 1:
        return (node.value(0),)
    return node.value(0), np.ones(node.shape(0), np.bool_)


def _where(node: Node) -> Value:
    return pointwise(node, te.select, 0, 1, 2)


def _not(node: Node) -> Value:
    return pointwise(node, lambda x: binary("eq", x, te.const(False, "bool")), 0)


def _trilu(node: Node) -> Value:
    shape, upper = node.shape(0), bool(node.attrs.get("upper", 1))
    k = int(node.known(1, "k").ravel()[0]) if node.has(1) else 0

    def element(*index: Expr) -> Expr:
        value = element_of(node.value(0), lambda: node.tensor(0), index)
        row, column = index[-2] + k, index[-1]
        return te.select(binary("ge" if upper else "le", column, row), value, te.const(0, value.dtype))

    return node.compute(shape, element)


def _is_infinite(node: Node) -> Value:
    signs = [(node.attrs.get(f"detect_{word}", 1), op) for word, op in (("negative", "lt"), ("positive", "gt"))]

    def element(x: Expr) -> Expr:
        wanted = [binary(op, x, _number(0, x)) for counts, op in signs if counts]
        return te.all(te.isinf(x), te.any(*wanted)) if wanted else te.const(False, "bool")

    return pointwise(node, element, 0)


def _compare(op: str) -> Rule:
    return _binary(lambda a, b: binary(op, a, b))


def _shape(node: Node) -> Value:
    whole = shape_of(node.value(0))
    return np.array(whole[node.attrs.get("start", 0) : node.attrs.get("end")], np.int64)


RULES: dict[str, Rule] = {
    "Abs": _unary(te.abs),
    "Acos": _unary(te.acos),
    "Acosh": _unary(te.acosh),
    "Add": _binary(lambda a, b: a + b),
    "And": _binary(te.all),
    "Asin": _unary(te.asin),
    "Asinh": _unary(te.asinh),
    "Atan": _unary(te.atan),
    "Atanh": _unary(te.atanh),
    "BitwiseAnd": _binary(lambda a, b: a & b),
    "BitwiseNot": _unary(lambda x: ~x),
    "BitwiseOr": _binary(lambda a, b: a | b),
    "BitwiseXor": _binary(lambda a, b: a ^ b),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _unary(te.ceil),
    "Celu": _with(lambda x, alpha: te.maximum(x, _number(0, x)) + te.minimum(
        _number(0, x), (te.expm1(x * _number(1 / alpha, x))) * _number(alpha, x)), alpha=1.0),
    "Clip": _clip,
    "Cos": _unary(te.cos),
    "Cosh": _unary(te.cosh),
    "Div": _binary(_divide),
    "Dropout": _dropout,
    "Elu": _with(lambda x, alpha: te.select(binary("lt", x, _number(0, x)), te.expm1(x) * _number(alpha, x), x),
                 alpha=1.0),
    "Equal": _compare("eq"),
    "Erf": _unary(te.erf),
    "Exp": _unary(te.exp),
    "Floor": _unary(te.floor),
    "Gelu": _gelu,
    "Greater": _compare("gt"),
    "GreaterOrEqual": _compare("ge"),
    "HardSigmoid": _with(
        lambda x, alpha, beta: te.maximum(_number(0, x), te.minimum(_number(1, x), x * _number(alpha, x) + _number(
            beta, x))), alpha=0.2, beta=0.5),
    "HardSwish": _unary(_hard_swish),
    "Identity": _identity,
    "IsInf": _is_infinite,
    "IsNaN": _unary(te.isnan),
    "LeakyRelu": _with(
        lambda x, alpha: te.select(binary("lt", x, _number(0, x)), x * _number(alpha, x), x), alpha=0.01),
    "Less": _compare("lt"),
    "LessOrEqual": _compare("le"),
    "Log": _unary(te.log),
    "Max": _folded(te.maximum),
    "Mean": _folded(lambda a, b: a + b, mean=True),
    "Min": _folded(te.minimum),
    "Mish": _unary(lambda x: x * te.tanh(_softplus(x))),
    "Mod": _modulo,
    "Mul": _binary(lambda a, b: a * b),
    "Neg": _unary(lambda x: -x),
    "Not": _not,
    "Or": _binary(te.any),
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _unary(lambda x: _number(1, x) / x),
    "Relu": _unary(lambda x: te.maximum(x, _number(0, x))),
    "Round": _unary(te.nearbyint),
    "Selu": _with(
        lambda x, alpha, gamma: te.select(
            binary("gt", x, _number(0, x)), x, te.expm1(x) * _number(alpha, x)) * _number(gamma, x),
        alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shape": _shape,
    "Sigmoid": _unary(te.sigmoid),
    "Sign": _unary(_sign),
    "Sin": _unary(te.sin),
    "Sinh": _unary(te.sinh),
    "Size": lambda node: np.array(math.prod(node.shape(0)), np.int64),
    "Softplus": _unary(_softplus),
    "Softsign": _unary(lambda x: x / (te.abs(x) + 1.0)),
    "Sqrt": _unary(te.sqrt),
    "Sub": _binary(lambda a, b: a - b),
    "Sum": _folded(lambda a, b: a + b),
    "Tan": _unary(te.tan),
    "Tanh": _unary(te.tanh),
    "ThresholdedRelu": _with(
        lambda x, alpha: te.select(binary("gt", x, _number(alpha, x)), x, _number(0, x)), alpha=1.0),
    "Trilu": _trilu,
    "Where": _where,
    "Xor": _compare("ne"),
}  # fmt: skip
