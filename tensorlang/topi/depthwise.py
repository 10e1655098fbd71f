"""Depthwise convolutions: every channel is convolved by itself, with one window of weights or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, as_expr, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi import layouts
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, rounded_once
from tensorlang.topi.conv2d import conv2d_reference
from tensorlang.topi.layouts import layout
from tensorlang.topi.operator import Operator
from tensorlang.topi.windows import OUTPUT_AXES, Padding, Pair, sliding, window_sizes, windows

Array = npt.NDArray[Any]


@checked
def depthwise_conv2d_nchw(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
    name: str = "depthwise_conv2d",
    zero_point: int = 0,
    weight_zero_point: int = 0,
) -> Tensor:
    """Return the convolution of each channel of NCHW data with its own weights [c, multiplier, kh, kw].

    Output channel `c * multiplier + m` is channel c with weights [c, m]. Sums are of `out_dtype`, by default the dtype
    of the data; those of narrow floats are added up in float32 and rounded once. Of bytes: with `out_dtype` int32 the
    zero points are subtracted from data, whose padding they are, and from weights. DefinitionError when the shapes do
    not fit.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.depthwise_conv2d_nchw, np.ones((1, 1, 2, 2)), np.ones((1, 1, 2, 2))).tolist()
        [[[[4.0]]]]
    """
    zeros = _Zeros(zero_point, weight_zero_point)
    return _depthwise(data, weight, "NCHW", "CMHW", stride, padding, dilation, out_dtype, name, zeros)


@checked
def depthwise_conv2d_nhwc(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    out_dtype: str | None = None,
    name: str = "depthwise_conv2d",
    zero_point: int = 0,
    weight_zero_point: int = 0,
) -> Tensor:
    """Return the convolution of each channel of NHWC data with its own weights [kh, kw, c, multiplier].

    Otherwise as `depthwise_conv2d_nchw`.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.depthwise_conv2d_nhwc, np.ones((1, 2, 2, 1)), np.ones((2, 2, 1, 1))).tolist()
        [[[[4.0]]]]
    """
    zeros = _Zeros(zero_point, weight_zero_point)
    return _depthwise(data, weight, "NHWC", "HWCM", stride, padding, dilation, out_dtype, name, zeros)


@checked
def depthwise_conv2d_NCHWc(
    data: Tensor,
    weight: Tensor,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    layout: str = "",
    out_layout: str = "",
    out_dtype: str | None = None,
    name: str = "depthwise_conv2d_NCHWc",
) -> Tensor:
    """Return `depthwise_conv2d_nchw` of blocked data [n, c / b, h, w, b] with weights [o / p, 1, kh, kw, 1, p].

    The output has blocks of p channels; layouts that are given, such as NCHW16c, have to agree. DefinitionError when
    shapes do not fit.

        >>> from tensorlang import te, topi
        >>> data, weight = te.placeholder((1, 2, 6, 6, 8)), te.placeholder((4, 1, 3, 3, 1, 8))
        >>> topi.nn.depthwise_conv2d_NCHWc(data, weight).shape
        (1, 4, 4, 4, 8)
    """
    known = [extent_of(n) for x, axes in ((data, (1, 4)), (weight, (0, 1, 4, 5))) for n in x.shape[: max(axes) + 1]]
    if data.ndim != 5 or weight.ndim != 6 or None in known:
        raise DefinitionError(f"{name} wants data of 5 and weights of 6 dimensions, got {data} and {weight}")
    (chunks, block), (outer, one, also_one, inner) = (
        [extent_of(x.shape[d]) or 0 for d in axes] for x, axes in ((data, (1, 4)), (weight, (0, 1, 4, 5)))
    )
    agreed = layout in ("", f"NCHW{block}c") and out_layout in ("", f"NCHW{inner}c")
    if (one, also_one) != (1, 1) or not chunks * block or (outer * inner) % (chunks * block) or not agreed:
        raise DefinitionError(f"{name}: {weight} does not fit {data} in the layouts {layout!r} and {out_layout!r}")
    images, times = layouts.layout(f"NCHW{block}c", "NCHW", ("C",)), outer * inner // (chunks * block)
    slide = sliding(data, images, *windows(window_sizes(weight, 2, 3), stride, padding, dilation))

    def sums(name: str, dtype: str) -> Tensor:
        def body(n: Expr, o: Expr, y: Expr, x: Expr, i: Expr) -> Expr:
            c, _ = _channel(o * inner + i, as_expr(times))
            value, where = slide.element({"N": n, "C": c, "H": y, "W": x}, dtype)
            factor = cast(weight(o, 0, slide.y, slide.x, 0, i), dtype)
            return te.sum(value * factor, axis=[slide.y, slide.x], where=where)

        return computed((data.shape[0], outer, slide.rows, slide.columns, inner), body, name)

    return rounded_once(name, out_dtype or data.dtype, sums)


@dataclass(frozen=True, slots=True)
class _Zeros:
    """What is subtracted from data and weights."""

    data: int
    weight: int


def _depthwise(
    data: Tensor,
    weight: Tensor,
    data_layout: str,
    kernel_layout: str,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    out_dtype: str | None,
    name: str,
    zeros: _Zeros,
) -> Tensor:
    images, kernels = layout(data_layout, "NCHW"), layout(kernel_layout, "CMHW")
    if data.ndim != 4 or weight.ndim != 4 or not same(images.extent(data, "C"), kernels.extent(weight, "C")):
        raise DefinitionError(f"a depthwise convolution wants weights for each channel, got {data} and {weight}")
    sizes = window_sizes(weight, *(kernels.letters.index(letter) for letter in "HW"))
    slide = sliding(data, images, *windows(sizes, stride, padding, dilation))
    times, dtype = kernels.extent(weight, "M"), out_dtype or data.dtype
    if zeros != _Zeros(0, 0) and dtype != "int32":
        raise DefinitionError(f"{name}: zero points are subtracted in int32, got the dtype {dtype}")

    def body(index: Sequence[Expr], dtype: str) -> Expr:
        at = dict(zip(images.letters, index, strict=True))
        c, m = _channel(at["C"], times)
        beside = te.const(zeros.data, dtype) if images.letters[-1] == "W" else None
        value, where = slide.element({**at, "C": c}, dtype, beside)
        factor = cast(weight(*kernels.index({"C": c, "M": m, "H": slide.y.var, "W": slide.x.var})), dtype)
        value = value - zeros.data if zeros.data else value
        factor = factor - zeros.weight if zeros.weight else factor
        return te.sum(value * factor, axis=[slide.y, slide.x], where=where)

    channels = simplify(images.extent(data, "C") * times)
    extents = {"N": images.extent(data, "N"), "C": channels, "H": slide.rows, "W": slide.columns}
    shape, names = zip(*((extents[letter], OUTPUT_AXES[letter]) for letter in images.letters), strict=True)

    def sums(name: str, dtype: str) -> Tensor:
        made: Tensor = te.compute(shape, lambda *index: body(index, dtype), name=name, varargs_names=names)
        return made

    return rounded_once(name, dtype, sums)


def _channel(o: Expr, times: Expr) -> tuple[Expr, Expr]:
    """The input channel of an output channel, and the number of its weights."""
    if isinstance(times, Const) and times.value == 1:
        return o, as_expr(0)
    return binary("floordiv", o, times), binary("floormod", o, times)


def _workload(
    n: int,
    c: int,
    h: int,
    w: int,
    k: int,
    dtype: str = "float32",
    stride: Pair = 1,
    padding: Padding = "SAME",
    dilation: Pair = 1,
) -> list[Tensor]:
    """A window of k * k, its middle on every pixel."""
    data, weight = te.placeholder((n, c, h, w), dtype, "data"), te.placeholder((c, 1, k, k), dtype, "weight")
    return [data, weight, depthwise_conv2d_nchw(data, weight, stride, padding, dilation)]


def depthwise_reference(
    data: Array, weight: Array, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1
) -> Array:
    """The depthwise convolution of NCHW data with weights [c, multiplier, kh, kw], as a convolution in groups."""
    channels, times, *window = weight.shape
    return conv2d_reference(data, weight.reshape(channels * times, 1, *window), stride, padding, dilation, channels)


def _workload_reference(
    data: Array, weight: Array, stride: Pair = 1, padding: Padding = "SAME", dilation: Pair = 1
) -> list[Array]:
    return [depthwise_reference(data, weight, stride, padding, dilation)]


def depthwise_numpy(
    data: Array, weight: Array, out: Array, stride: Pair = 1, padding: Padding = "SAME", dilation: Pair = 1
) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    down, right = windows(weight.shape[2:], stride, padding, dilation)
    padded = np.pad(data, ((0, 0), (0, 0), (down.before, down.after), (right.before, right.after)))
    rows, columns = out.shape[2:]
    out[...] = 0
    for y in range(down.size):
        for x in range(right.size):
            seen = padded[:, :, y * down.dilation :: down.stride, x * right.dilation :: right.stride]
            out += seen[:, :, :rows, :columns] * weight[:, 0, y, x, None, None]


OPERATORS = (
    Operator(
        "depthwise_conv2d",
        ("N", "C", "H", "W", "K"),
        _workload,
        _workload_reference,
        depthwise_numpy,
        {"stride": 1, "padding": "SAME", "dilation": 1},
    ),
)
