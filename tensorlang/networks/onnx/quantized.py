"""Numbers that stand for others: `(number - zero) * scale`, in 8 and in 16 bits; and products of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorlang import te, topi
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.elements import is_eighth, limited, saturated
from tensorlang.networks.network import Value
from tensorlang.networks.node import Node, Rule, axis_of, element_of, shape_of
from tensorlang.networks.onnx.elementwise import dtype_of
from tensorlang.networks.onnx.sums import integer_product
from tensorlang.networks.onnx.windows import integer_convolution
from tensorlang.networks.refusal import Unsupported
from tensorlang.te.operation import Tensor

_NARROW = ("uint8", "int8", "uint16", "int16")


def _quantize(node: Node) -> Value:
    data, dtype = node.tensor(0), _quantized_dtype(node)
    scale, zero = _along(node, 1), _along(node, 2)

    def element(*index: Expr) -> Expr:
        value = cast(data(*index), "float32") if data.dtype != "float64" else data(*index)
        number = value / cast(scale(index), value.dtype)
        if is_eighth(dtype):
            return limited(number, dtype)  # their zero is 0
        return saturated(number, zero(index) if node.has(2) else None, dtype)

    return node.compute(node.shape(0), element)


def _quantized_dtype(node: Node) -> str:
    number = int(node.attrs.get("output_dtype", 0))
    dtype = str(node.value(2).dtype) if node.has(2) else dtype_of(number) if number else "uint8"
    if dtype not in _NARROW and not is_eighth(dtype):
        raise Unsupported(f"{node.op} to {dtype}; {', '.join(_NARROW)} and floats of 8 bits are taken")
    return dtype


def _dequantize(node: Node) -> Value:
    data = node.tensor(0)
    scale, zero = _along(node, 1), _along(node, 2)
    dtype = str(node.value(1).dtype)

    def element(*index: Expr) -> Expr:
        whole = "float32" if is_eighth(data.dtype) else "int32"
        number = cast(data(*index), whole)
        number = number - cast(zero(index), whole) if node.has(2) else number
        return cast(number, dtype) * scale(index)

    return node.compute(node.shape(0), element)


def _along(node: Node, place: int) -> Callable[[Sequence[Expr]], Expr]:
    """Scales or zeros at an element of the data: one number, one for each index of an axis, or for blocks along it."""
    if not node.has(place):
        return lambda index: te.const(0, "int32")
    shape, rank = node.shape(place), len(node.shape(0))
    block = int(node.attrs.get("block_size", 0))

    def element(index: Sequence[Expr]) -> Expr:
        if np.prod(shape) == 1:
            at: list[Expr] = [te.const(0, "int32")] * len(shape)
        else:
            axis = axis_of(int(node.attrs.get("axis", 1)), rank, node.op)
            at = [index[axis]] if len(shape) == 1 else list(index)
            if block:
                at[axis] = binary("floordiv", at[axis], block)
        return element_of(node.value(place), lambda: node.tensor(place), at)

    return element


def _dynamic(node: Node) -> tuple[Value, ...]:
    """To uint8, with the scale and the zero that the data ask for; 0 has a number of its own."""
    data = node.tensor(0)
    low, high = (f(data, name=f"{node.stage}_{word}") for f, word in ((topi.min, "low"), (topi.max, "high")))
    nothing = te.const(0.0, "float32")

    def scale_of(*i: Expr) -> Expr:
        span = te.max(high(*i), nothing) - te.min(low(*i), nothing)
        return te.select(binary("eq", span, nothing), te.const(1.0, "float32"), span / te.const(255.0, "float32"))

    scale: Tensor = te.compute((), scale_of, name=f"{node.stage}_scale")
    zero: Tensor = te.compute(
        (), lambda *i: saturated(-te.min(low(*i), nothing) / scale(*i), None, "uint8"), name=f"{node.stage}_zero"
    )
    made = node.compute(node.shape(0), lambda *i: saturated(data(*i) / scale(), zero(), "uint8"))
    return made, scale, zero


def _matmul_integer(node: Node) -> Value:
    return integer_product(node, node.integers(0, 2), node.integers(1, 3))


def _conv_integer(node: Node) -> Value:
    return integer_convolution(node, node.integers(0, 2), node.integers(1, 3))


def _qlinear_matmul(node: Node) -> Value:
    sums = integer_product(node, node.integers(0, 2), node.integers(3, 5))
    return _requantized(node, sums, (1, 4, 6), 7, len(shape_of(sums)) - 1)


def _qlinear_conv(node: Node) -> Value:
    sums = integer_convolution(node, node.integers(0, 2), node.integers(3, 5))
    if node.has(8):
        bias, plain = node.tensor(8), sums
        sums = te.compute(plain.shape, lambda *i: plain(*i) + bias(i[1]), name=f"{node.stage}_bias")
    return _requantized(node, sums, (1, 4, 6), 7, 1)


def _requantized(node: Node, sums: Tensor, scales: tuple[int, int, int], zero: int, axis: int) -> Tensor:
    """Sums times the scales of both factors over that of the result, which are numbers or one for each of an axis."""
    if np.prod(node.shape(scales[0])) != 1 or np.prod(node.shape(scales[2])) != 1:
        raise Unsupported(f"{node.op} with several scales of the data or of the result")
    held = node.value(zero)

    def element(*index: Expr) -> Expr:
        left, right, out = (
            element_of(node.value(p), lambda p=p: node.tensor(p), [index[axis]] * len(node.shape(p)))  # type: ignore[misc]
            for p in scales
        )
        moved = cast(sums(*index), "float32") * (cast(left, "float32") * cast(right, "float32") / cast(out, "float32"))
        return saturated(moved, element_of(held, lambda: node.tensor(zero), ()), str(held.dtype))

    made: Tensor = te.compute(sums.shape, element, name=f"{node.stage}_out")
    return made


RULES: dict[str, Rule] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
