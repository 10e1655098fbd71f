"""Windows that slide over images: convolutions, pooling, and images in other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.networks.network import Value
from tensorlang.networks.node import shape_of
from tensorlang.networks.places import reshaped
from tensorlang.networks.refusal import Unsupported
from tensorlang.networks.torch.call import Call, Rule
from tensorlang.te.operation import Tensor


def _convolution(call: Call) -> Value:
    dims = len(call.shape) - 2
    padding, output_padding = _each(call["padding"], dims), _each(call["output_padding"], dims)
    inputs = [call["input"], call["weight"], *([] if call["bias"] is None else [call["bias"]])]
    attributes: dict[str, Any] = {
        "strides": _each(call["stride"], dims),
        "dilations": _each(call["dilation"], dims),
        "group": call["groups"],
        "pads": padding * 2,
    }
    if call["transposed"]:
        return call.onnx("ConvTranspose", *inputs, output_padding=output_padding, **attributes)
    return call.onnx("Conv", *inputs, **attributes)


def _each(numbers: Sequence[int], dims: int) -> list[int]:
    """A number for each dimension."""
    return list(numbers) * dims if len(numbers) == 1 else list(numbers)


def _pooled(op: str, dims: int) -> Rule:
    def rule(call: Call) -> Value | tuple[Value | None, ...]:
        call.only_first("where the largest elements are")
        if call.given.get("divisor_override"):
            raise Unsupported("with a divisor of its own")
        kernel = _each(call["kernel_size"], dims)
        attributes: dict[str, Any] = {
            "kernel_shape": kernel,
            "strides": _each(call["stride"] or kernel, dims),
            "pads": _each(call["padding"], dims) * 2,
            "ceil_mode": int(call["ceil_mode"]),
        }
        if op == "AveragePool":
            attributes["count_include_pad"] = int(call["count_include_pad"])
        else:
            attributes["dilations"] = _each(call["dilation"], dims)
        made = call.onnx(op, _batched(call, dims), part="images", **attributes)
        whole = reshaped(made, call.shape, call.stage)
        return whole if len(call.made) == 1 else (whole, None)

    return rule


def _batched(call: Call, dims: int) -> Tensor:
    """Images with a batch in front, of one where there is none."""
    data = call.tensor(call["self"])
    shape = shape_of(data)
    return data if len(shape) == dims + 2 else reshaped(data, (1, *shape), f"{call.stage}_batch")


def _adaptive_mean(call: Call) -> Value:
    """Means of windows that reach from `floor(i * n / m)` to `ceil((i + 1) * n / m)`, for m of n elements."""
    data = call.tensor(call["self"])
    *front, high, wide = shape_of(data)
    rows, columns = call.shape[-2:]
    if (rows, columns) == (1, 1):
        return call.onnx("ReduceMean", data, np.array([-2, -1]))
    if not high % rows and not wide % columns and len(front) == 2:
        size = [high // rows, wide // columns]
        return call.onnx("AveragePool", data, kernel_shape=size, strides=size)
    axes = [
        te.reduce_axis((0, _longest(n, m)), f"k{m}_{d}") for d, (n, m) in enumerate(((high, rows), (wide, columns)))
    ]

    def element(*index: Expr) -> Any:
        *outer, y, x = index
        ends = [_window(v, n, m) for v, n, m in ((y, high, rows), (x, wide, columns))]
        places = [start + k for (start, _), k in zip(ends, axes, strict=True)]
        inside = [binary("lt", place, end) for place, (_, end) in zip(places, ends, strict=True)]
        return te.sum(data(*outer, *places), axis=axes, where=te.all(*inside))

    total = call.compute(call.shape, element, "total")

    def mean(*index: Expr) -> Expr:
        (top, bottom), (left, right) = _window(index[-2], high, rows), _window(index[-1], wide, columns)
        return total(*index) / cast((bottom - top) * (right - left), total.dtype)

    return call.compute(call.shape, mean)


def _window(at: Expr, old: int, new: int) -> tuple[Expr, Expr]:
    return binary("floordiv", at * old, new), binary("floordiv", (at + 1) * old + (new - 1), new)


def _longest(old: int, new: int) -> int:
    return max(-(-(k + 1) * old // new) - k * old // new for k in range(new))


def _resized(mode: str, coordinates: str, dims: int, **attributes: Any) -> Rule:
    def rule(call: Call) -> Value:
        data = call["input"] if "input" in call.given else call["self"]
        corners = bool(call.given.get("align_corners"))
        how = "align_corners" if corners else coordinates
        rest = {"mode": mode, "coordinate_transformation_mode": how, **attributes}
        scales = _scales(call, dims)
        if scales is not None and not corners:
            return call.onnx("Resize", data, None, np.array([1.0, 1.0, *scales]), **rest)
        return call.onnx("Resize", data, None, None, np.array(call.shape), **rest)

    return rule


def _scales(call: Call, dims: int) -> list[float] | None:
    """Factors of extents that are given as such."""
    given = call.given.get("scale_factors")
    if given is None:
        named = [call.given.get(name) for name in (("scales_h", "scales_w") if dims == 2 else ("scales",))]
        return None if None in named else [float(n) for n in named if n is not None]
    return [float(n) for n in given]


def _sampled(call: Call) -> Value:
    mode = ("linear", "nearest", "cubic")[call["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[call["padding_mode"]]
    corners = int(call["align_corners"])
    return call.onnx("GridSample", call["input"], call["grid"], mode=mode, padding_mode=padding, align_corners=corners)


RULES: dict[str, Rule] = {
    "_adaptive_avg_pool2d.default": _adaptive_mean,
    "adaptive_avg_pool2d.default": _adaptive_mean,
    "avg_pool1d.default": _pooled("AveragePool", 1),
    "avg_pool2d.default": _pooled("AveragePool", 2),
    "avg_pool3d.default": _pooled("AveragePool", 3),
    "convolution.default": _convolution,
    "grid_sampler_2d.default": _sampled,
    "max_pool2d.default": _pooled("MaxPool", 2),
    "max_pool2d_with_indices.default": _pooled("MaxPool", 2),
    "max_pool3d_with_indices.default": _pooled("MaxPool", 3),
    "_upsample_bilinear2d_aa.default": _resized("linear", "half_pixel", 2, antialias=1, exclude_outside=1),
    "_upsample_bilinear2d_aa.vec": _resized("linear", "half_pixel", 2, antialias=1, exclude_outside=1),
    "_upsample_nearest_exact1d.default": _resized("nearest", "half_pixel", 1, nearest_mode="round_prefer_ceil"),
    "_upsample_nearest_exact2d.default": _resized("nearest", "half_pixel", 2, nearest_mode="round_prefer_ceil"),
    "_upsample_nearest_exact2d.vec": _resized("nearest", "half_pixel", 2, nearest_mode="round_prefer_ceil"),
    "upsample_bicubic2d.default": _resized("cubic", "half_pixel", 2),
    "upsample_bicubic2d.vec": _resized("cubic", "half_pixel", 2),
    "upsample_bilinear2d.default": _resized("linear", "half_pixel", 2),
    "upsample_bilinear2d.vec": _resized("linear", "half_pixel", 2),
    "upsample_linear1d.default": _resized("linear", "half_pixel", 1),
    "upsample_linear1d.vec": _resized("linear", "half_pixel", 1),
    "upsample_nearest1d.default": _resized("nearest", "asymmetric", 1, nearest_mode="floor"),
    "upsample_nearest1d.vec": _resized("nearest", "asymmetric", 1, nearest_mode="floor"),
    "upsample_nearest2d.default": _resized("nearest", "asymmetric", 2, nearest_mode="floor"),
    "upsample_nearest2d.vec": _resized("nearest", "asymmetric", 2, nearest_mode="floor"),
}
