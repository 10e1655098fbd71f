"""What the workloads compute: inputs, results in float64, arithmetic operations and bytes, by operator.

Every contestant has a builder by the same names. Arrays are by name: what is not an input is the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Options = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]

WIDTHS = {"float32": 4, "bfloat16": 2, "int8": 1}
EXPONENTIAL = 10
"""Operations that an exponential or an error function is counted as."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The exact result of float64 inputs, its shape, and the operations that it takes.

    `rounds_to`: the dtype of a result that is rounded on purpose.
    """

    reference: Callable[[Arrays, Options], Array]
    shape: Callable[[Shapes, Options], tuple[int, ...]]
    operations: Callable[[Shapes, Options], float]
    rounds_to: str = ""


_erf = np.frompyfunc(math.erf, 1, 1)


def matmul(given: Arrays, options: Options) -> Array:
    """A @ B, batched or not."""
    return np.asarray(given["A"] @ given["B"])


def dense_gelu(given: Arrays, options: Options) -> Array:
    """gelu(x @ W + b), with the error function."""
    z = given["x"] @ given["W"] + given["b"]
    erf = np.asarray(_erf(z / math.sqrt(2)), np.float64)
    return np.asarray(z * (0.5 + 0.5 * erf))


def conv2d(given: Arrays, options: Options) -> Array:
    """A convolution of an image in NCHW with filters in OIHW, and with a bias and relu if there is a bias."""
    x, w = given["x"], given["w"]
    stride, padding, groups = options["stride"], options["padding"], options["groups"]
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    n, _, height, width = windows.shape[:4]
    split = windows.reshape(n, groups, -1, *windows.shape[2:])
    filters = w.reshape(groups, -1, *w.shape[1:])
    made = np.einsum("ngchwij,gocij->ngohw", split, filters, optimize=True).reshape(n, -1, height, width)
    return np.asarray(np.maximum(made + given["bias"][:, None, None], 0) if "bias" in given else made)


def quantized_conv2d(given: Arrays, options: Options) -> Array:
    """A convolution with bias, times a scale, as unsigned bytes: what is less than zero is cut off as by relu."""
    made = conv2d({"x": given["x"], "w": given["w"]}, options) + given["bias"][:, None, None]
    return np.asarray(np.clip(np.rint(made * options["scale"]), 0, 255))


def _conv2d_operations(shapes: Shapes, options: Options) -> float:
    return 2.0 * math.prod(conv2d_shape(shapes, options)) * math.prod(shapes["w"][1:])


def conv2d_shape(shapes: Shapes, options: Options) -> tuple[int, ...]:
    """Of the image that is made."""
    n, _, *image = shapes["x"]
    o, _, *window = shapes["w"]
    made = [(i + 2 * options["padding"] - k) // options["stride"] + 1 for i, k in zip(image, window, strict=True)]
    return (n, o, *made)


def softmax(given: Arrays, options: Options) -> Array:
    """Of every row."""
    e = np.exp(given["x"] - given["x"].max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def layer_norm(given: Arrays, options: Options) -> Array:
    """Of every row, scaled and shifted."""
    x = given["x"]
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + options["epsilon"])
    return np.asarray(centred / deviation * given["gamma"] + given["beta"])


def attention(given: Arrays, options: Options) -> Array:
    """softmax(Q Kᵀ / sqrt(d)) V, by head."""
    q, k, v = given["q"], given["k"], given["v"]
    return np.asarray(softmax({"x": q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])}, {}) @ v)


def jacobi(given: Arrays, options: Options) -> Array:
    """Every inner point becomes the mean of itself and its four neighbours, so many times."""
    a = given["x"].copy()
    for _ in range(options["steps"]):
        inner = a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
        a[1:-1, 1:-1] = 0.2 * inner
    return a


TAPS = (0.03, 0.1, 0.22, 0.3, 0.22, 0.1, 0.03)
"""Weights of a filter."""


def blurred(x: Any) -> Any:
    """Weighted sums of neighbours along rows, and then down columns, where all of them are there.

    Of arrays of any library that slices and adds as NumPy does.
    """
    reach = len(TAPS) - 1
    rows: Any = sum(weight * x[:, k : x.shape[1] - reach + k] for k, weight in enumerate(TAPS))
    return sum(weight * rows[k : x.shape[0] - reach + k] for k, weight in enumerate(TAPS))


def blur(given: Arrays, options: Options) -> Array:
    """The same of the image."""
    return np.asarray(blurred(given["x"]))


def gradients(x: Any) -> tuple[Any, Any]:
    """Along rows and down columns: differences of neighbours two apart, weighed by 1, 2, 1 across."""
    across, down = x[:, 2:] - x[:, :-2], x[2:] - x[:-2]
    gx = (across[:-2] + 2 * across[1:-1] + across[2:]) * (1 / 12)
    return gx, (down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]) * (1 / 12)


def corner_measure(x: Any) -> Any:
    """Harris' measure of corners, of arrays of any library that slices and adds as NumPy does."""

    def sums(a: Any) -> Any:
        height, width = a.shape
        return sum(a[v : height - 2 + v, u : width - 2 + u] for v in range(3) for u in range(3))

    gx, gy = gradients(x)
    xx, yy, xy = sums(gx * gx), sums(gy * gy), sums(gx * gy)
    return xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy)


def corners(given: Arrays, options: Options) -> Array:
    """Squares and products of gradients, summed over 3 × 3 pixels."""
    return np.asarray(corner_measure(given["x"]))


def _cropped(border: int) -> Callable[[Shapes, Options], tuple[int, ...]]:
    return lambda shapes, _: tuple(n - border for n in shapes["x"])


def _same(name: str) -> Callable[[Shapes, Options], tuple[int, ...]]:
    return lambda shapes, _: shapes[name]


def _product(first: str, second: str) -> Callable[[Shapes, Options], tuple[int, ...]]:
    return lambda shapes, _: (*shapes[first][:-1], shapes[second][-1])


def _per_element(count: float) -> Callable[[Shapes, Options], float]:
    return lambda shapes, _: count * math.prod(shapes["x"])


def _attention_operations(shapes: Shapes, options: Options) -> float:
    heads, tokens, depth = shapes["q"]
    return heads * tokens * tokens * (4.0 * depth + EXPONENTIAL + 4)


def _gelu_operations(shapes: Shapes, options: Options) -> float:
    (m, k), (_, n) = shapes["x"], shapes["W"]
    return m * n * (2.0 * k + EXPONENTIAL + 5)


OPERATORS: dict[str, Operator] = {
    "matmul": Operator(matmul, _product("A", "B"), lambda shapes, _: 2.0 * math.prod(shapes["A"]) * shapes["B"][-1]),
    "dense_gelu": Operator(dense_gelu, _product("x", "W"), _gelu_operations),
    "conv2d": Operator(conv2d, conv2d_shape, _conv2d_operations),
    "quantized_conv2d": Operator(quantized_conv2d, conv2d_shape, _conv2d_operations, "uint8"),
    "softmax": Operator(softmax, _same("x"), _per_element(EXPONENTIAL + 4)),
    "layer_norm": Operator(layer_norm, _same("x"), _per_element(8)),
    "attention": Operator(attention, _same("q"), _attention_operations),
    "jacobi": Operator(jacobi, _same("x"), lambda shapes, options: 5.0 * options["steps"] * math.prod(shapes["x"])),
    "blur": Operator(blur, _cropped(len(TAPS) - 1), _per_element(4.0 * len(TAPS) - 2)),
    "corners": Operator(corners, _cropped(4), _per_element(50.0)),
}


def draw(shapes: Shapes, dtype: str) -> dict[str, Array]:
    """Random inputs of these shapes, the same each time; those of bfloat16 as float32."""
    rng = np.random.default_rng(0)
    if dtype == "int8":
        return {name: rng.integers(-128, 128, shape, np.int8) for name, shape in shapes.items()}
    arrays = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    if dtype == "bfloat16":
        return {name: (a.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) for name, a in arrays.items()}
    return arrays
