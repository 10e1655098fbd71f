"""Operators that make each element of elements at its own place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks import elements
from tensorlang.networks.elements import number
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, element_of, pointwise, shape_of
from tensorlang.networks.onnx.package import onnx_package
from tensorlang.networks.refusal import Unsupported

_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn", 19: "float8_e5m2",
}  # fmt: skip
"""dtypes by the numbers of TensorProto.DataType."""


def dtype_of(number: int) -> str:
    """The dtype of an ONNX element type; Unsupported for one that programs do not have."""
    if number not in _TYPES:
        kinds = onnx_package().TensorProto.DataType
        name = kinds.Name(number).lower() if number in kinds.values() else f"of the number {number}"
        raise Unsupported(f"elements of the ONNX type {name}; {', '.join(_TYPES.values())} are taken")
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


def _modulo(node: Node) -> Value:
    dtype = node.tensor(0).dtype
    if dtypes.info(dtype).is_integer and not node.attrs.get("fmod"):
        return pointwise(node, te.floormod, 0, 1)
    if dtypes.info(dtype).is_integer:
        return pointwise(node, te.truncmod, 0, 1)
    return pointwise(node, te.fmod if node.attrs.get("fmod") else elements.floored_remainder, 0, 1)


def _power(node: Node) -> Value:
    exponent = node.value(1)
    if isinstance(exponent, np.ndarray) and exponent.size == 1:
        number = exponent.ravel()[0].item()
        if number in (2, 3):
            return pointwise(node, lambda a: a * a if number == 2 else a * a * a, 0)
        if number == 0.5:
            return pointwise(node, te.sqrt, 0)
    if not dtypes.info(str(node.value(0).dtype)).is_float:
        return pointwise(node, elements.power_of_integer, 0, 1)
    return pointwise(node, lambda a, b: te.pow(a, cast(b, a.dtype)), 0, 1)


def _clip(node: Node) -> Value:
    low, high = (node.attrs.get(name) for name in ("min", "max"))
    bounds = [node.inputs[k] if node.has(k) else None for k in (1, 2)]

    def element(x: Expr) -> Expr:
        for bound, usual, limit in ((bounds[0], low, te.maximum), (bounds[1], high, te.minimum)):
            if bound is not None:
                place = 1 if limit is te.maximum else 2
                x = limit(x, element_of(bound, lambda place=place: node.tensor(place), ()))  # type: ignore[misc]
            elif usual is not None:
                x = limit(x, number(usual, x))
        return x

    return pointwise(node, element, 0)


def _cast(node: Node) -> Value:
    dtype = dtype_of(node.attrs["to"])
    if dtype == "bool":
        return pointwise(node, elements.nonzero, 0)
    return pointwise(node, lambda x: _converted(x, dtype, node), 0)


def _converted(x: Expr, dtype: str, node: Node) -> Expr:
    """A number as another dtype; floats of 8 bits keep within these unless the node says that they do not."""
    limits = elements.is_eighth(dtype) and bool(node.attrs.get("saturate", 1))
    return elements.limited(x, dtype) if limits else cast(x, dtype)


def _bit_cast(node: Node) -> Value:
    dtype, given = dtype_of(node.attrs["to"]), str(node.value(0).dtype)
    if dtypes.info(dtype).bytes != dtypes.info(given).bytes:
        raise Unsupported(f"BitCast of {given} to {dtype}, which has other bits")
    if "bool" in (dtype, given):
        return pointwise(node, lambda x: elements.nonzero(x) if dtype == "bool" else cast(x, dtype), 0)
    return pointwise(node, lambda x: te.reinterpret(dtype, x), 0)


def _cast_like(node: Node) -> Value:
    return pointwise(node, lambda x: _converted(x, node.tensor(1).dtype, node), 0)


def _gelu(node: Node) -> Value:
    if node.attrs.get("approximate", "none") == "tanh":
        return pointwise(node, elements.gelu_tanh, 0)
    return pointwise(node, elements.gelu, 0)


def _prelu(node: Node) -> Value:
    return pointwise(node, lambda x, slope: te.select(binary("lt", x, number(0, x)), x * slope, x), 0, 1)


def _shifted(node: Node) -> Value:
    """Bits in other places; those that are moved out of the number are lost, and its sign fills the right shifts."""
    if node.attrs.get("direction") not in ("LEFT", "RIGHT"):
        raise Unsupported(f"{node.op} to the {node.attrs.get('direction')}")
    right = node.attrs["direction"] == "RIGHT"

    def element(a: Expr, b: Expr) -> Expr:
        last = 8 * dtypes.info(a.dtype).bytes - 1
        held = te.minimum(te.maximum(b, number(0, b)), number(last, b))
        moved = binary("shr" if right else "shl", a, held)
        empty = number(0, a)
        if right and not a.dtype.startswith("u"):
            empty = te.select(binary("lt", a, empty), number(-1, a), empty)
        return te.select(binary("eq", held, b), moved, empty)

    return pointwise(node, element, 0, 1)


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
        wanted = [binary(op, x, number(0, x)) for counts, op in signs if counts]
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
    "BitShift": _shifted,
    "BitwiseAnd": _binary(lambda a, b: a & b),
    "BitwiseNot": _unary(lambda x: ~x),
    "BitwiseOr": _binary(lambda a, b: a | b),
    "BitwiseXor": _binary(lambda a, b: a ^ b),
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": _unary(te.ceil),
    "Celu": _with(elements.celu, alpha=1.0),
    "Clip": _clip,
    "Cos": _unary(te.cos),
    "Cosh": _unary(te.cosh),
    "Div": _binary(elements.truncated_quotient),
    "Dropout": _dropout,
    "Elu": _with(elements.elu, alpha=1.0),
    "Equal": _compare("eq"),
    "Erf": _unary(te.erf),
    "Exp": _unary(te.exp),
    "Floor": _unary(te.floor),
    "Gelu": _gelu,
    "Greater": _compare("gt"),
    "GreaterOrEqual": _compare("ge"),
    "HardSigmoid": _with(elements.hard_sigmoid, alpha=0.2, beta=0.5),
    "HardSwish": _unary(elements.hard_swish),
    "Identity": _identity,
    "IsInf": _is_infinite,
    "IsNaN": _unary(te.isnan),
    "LeakyRelu": _with(elements.leaky_relu, alpha=0.01),
    "Less": _compare("lt"),
    "LessOrEqual": _compare("le"),
    "Log": _unary(te.log),
    "Max": _folded(te.maximum),
    "Mean": _folded(lambda a, b: a + b, mean=True),
    "Min": _folded(te.minimum),
    "Mish": _unary(elements.mish),
    "Mod": _modulo,
    "Mul": _binary(lambda a, b: a * b),
    "Neg": _unary(lambda x: -x),
    "Not": _unary(elements.logical_not),
    "Or": _binary(te.any),
    "PRelu": _prelu,
    "Pow": _power,
    "Reciprocal": _unary(lambda x: number(1, x) / x),
    "Relu": _unary(elements.relu),
    "Round": _unary(te.nearbyint),
    "Selu": _with(elements.selu, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shape": _shape,
    "Sigmoid": _unary(te.sigmoid),
    "Sign": _unary(elements.sign),
    "Sin": _unary(te.sin),
    "Sinh": _unary(te.sinh),
    "Size": lambda node: np.array(math.prod(node.shape(0)), np.int64),
    "Softplus": _unary(elements.softplus),
    "Softsign": _unary(elements.softsign),
    "Sqrt": _unary(te.sqrt),
    "Sub": _binary(lambda a, b: a - b),
    "Sum": _folded(lambda a, b: a + b),
    "Tan": _unary(te.tan),
    "Tanh": _unary(te.tanh),
    "ThresholdedRelu": _with(
        lambda x, alpha: te.select(binary("gt", x, number(alpha, x)), x, number(0, x)), alpha=1.0),
    "Trilu": _trilu,
    "Where": _where,
    "Xor": _compare("ne"),
}  # fmt: skip
