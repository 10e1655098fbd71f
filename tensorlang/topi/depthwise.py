"""Depthwise convolutions: every channel is convolved by itself, with one window of weights or several."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, as_expr, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.operation import Tensor
from tensorlang.topi.conv2d import conv2d_reference
from tensorlang.topi.operator import Operator, Rule
from tensorlang.topi.sliding import along_row, schedule_sliding
from tensorlang.topi.windows import Padding, Pair, window_sizes, windows

Array = npt.NDArray[Any]
DEPTHWISE = "depthwise_conv2d"


def depthwise_conv2d_nchw(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
    name: str = "depthwise_conv2d",
) -> Tensor:
    """Return the convolution of each channel of NCHW data with its own weights [c, multiplier, kh, kw].

    Output channel `c * multiplier + m` is channel c with weights [c, m]. DefinitionError when the shapes do not fit.
    """
    _check(data, weight, 1, 0)
    down, right = windows(window_sizes(weight, 2, 3), stride, padding, dilation)
    batch, depth, high, wide = data.shape
    times, rows, columns = weight.shape[1], down.count(high), right.count(wide)
    y, x = te.reduce_axis((0, down.size), "ry"), te.reduce_axis((0, right.size), "rx")
    dtype = out_dtype or data.dtype

    def body(nn: Expr, ff: Expr, yy: Expr, xx: Expr) -> Expr:
        c, m = _channel(ff, times)
        pixel = cast(data(nn, c, down.at(yy, y), right.at(xx, x)), dtype)
        inside = along_row(pixel, right.inside(xx, x, wide, columns), cast(0, dtype))
        above = down.inside(yy, y, high, rows)
        return te.sum(inside * cast(weight(c, m, y, x), dtype), axis=[y, x], where=te.all(*above) if above else None)

    shape, attrs = (batch, simplify(depth * times), rows, columns), {"sharing": _number(times)}
    made: Tensor = te.compute(shape, body, name=name, tag=DEPTHWISE, attrs=attrs)
    return made


def depthwise_conv2d_nhwc(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
    name: str = "depthwise_conv2d",
) -> Tensor:
    """Return the convolution of each channel of NHWC data with its own weights [kh, kw, c, multiplier]."""
    _check(data, weight, 3, 2)
    down, right = windows(window_sizes(weight, 0, 1), stride, padding, dilation)
    batch, high, wide, depth = data.shape
    times, rows, columns = weight.shape[3], down.count(high), right.count(wide)
    y, x = te.reduce_axis((0, down.size), "ry"), te.reduce_axis((0, right.size), "rx")
    dtype = out_dtype or data.dtype

    def body(nn: Expr, yy: Expr, xx: Expr, ff: Expr) -> Expr:
        c, m = _channel(ff, times)
        pixel, factor = data(nn, down.at(yy, y), right.at(xx, x), c), weight(y, x, c, m)
        tests = down.inside(yy, y, high, rows) + right.inside(xx, x, wide, columns)
        return te.sum(cast(pixel, dtype) * cast(factor, dtype), axis=[y, x], where=te.all(*tests) if tests else None)

    made: Tensor = te.compute((batch, rows, columns, simplify(depth * times)), body, name=name, tag=DEPTHWISE)
    return made


def _check(data: Tensor, weight: Tensor, channel: int, own: int) -> None:
    if data.ndim != 4 or weight.ndim != 4 or not same(data.shape[channel], weight.shape[own]):
        raise DefinitionError(f"a depthwise convolution wants weights for each channel, got {data} and {weight}")


def _channel(o: Expr, times: Expr) -> tuple[Expr, Expr]:
    """The input channel of an output channel, and the number of its weights."""
    if isinstance(times, Const) and times.value == 1:
        return o, as_expr(0)
    return binary("floordiv", o, times), binary("floormod", o, times)


def _number(extent: Expr) -> int:
    return int(extent.value) if isinstance(extent, Const) else 1


def _workload(n: int, c: int, h: int, w: int, k: int, dtype: str = "float32") -> list[Tensor]:
    """A window of k * k, its middle on every pixel."""
    data, weight = te.placeholder((n, c, h, w), dtype, "data"), te.placeholder((c, 1, k, k), dtype, "weight")
    return [data, weight, depthwise_conv2d_nchw(data, weight, 1, "SAME")]


def depthwise_reference(
    data: Array, weight: Array, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1
) -> Array:
    """The depthwise convolution of NCHW data with weights [c, multiplier, kh, kw], as a convolution in groups."""
    channels, times, *window = weight.shape
    return conv2d_reference(data, weight.reshape(channels * times, 1, *window), stride, padding, dilation, channels)


def _same_reference(data: Array, weight: Array) -> list[Array]:
    return [depthwise_reference(data, weight, 1, "SAME")]


def depthwise_numpy(data: Array, weight: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    down, right = windows(weight.shape[2:], 1, "SAME", 1)
    padded = np.pad(data, ((0, 0), (0, 0), (down.before, down.after), (right.before, right.after)))
    out[...] = 0
    for y in range(down.size):
        for x in range(right.size):
            out += padded[:, :, y : y + out.shape[2], x : x + out.shape[3]] * weight[:, 0, y, x, None, None]


OPERATORS = (Operator("depthwise_conv2d", ("N", "C", "H", "W", "K"), _workload, _same_reference, depthwise_numpy),)
RULES: dict[str, Rule] = {DEPTHWISE: schedule_sliding}
