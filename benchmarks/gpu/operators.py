"""What the GPU workloads compute: the program, the result by NumPy in float32, and the arithmetic operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te, topi

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Options = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]
Inputs = Mapping[str, te.Tensor]

EPSILON = 1e-5
_EXPONENTIAL = 10
"""Operations that an exponential or an error function is counted as."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The result of some inputs as a tensor, and as an array; `operations` counts a multiply-add as two."""

    result: Callable[[Inputs, str, Options], te.Tensor]
    reference: Callable[[Arrays, Options], Array]
    operations: Callable[[Shapes, Options], float]


def rounded(x: te.Tensor, dtype: str, name: str = "rounded") -> te.Tensor:
    """A tensor in another dtype."""
    if x.dtype == dtype:
        return x
    made: te.Tensor = te.compute(x.shape, lambda *i: x[i].astype(dtype), name=name)
    return made


def after_product(product: te.Tensor, given: Inputs, dtype: str) -> te.Tensor:
    """What follows a product in float32: bias and GELU if there is a bias; all rounded once."""
    if "bias" not in given:
        return rounded(product, dtype)
    bias = given["bias"]
    biased = te.compute(product.shape, lambda i, j: product[i, j] + bias[j].astype("float32"), name="biased")
    return rounded(topi.gelu(biased), dtype)


def _matmul(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    """A @ B, added up in float32."""
    return after_product(topi.matmul(given["A"], given["B"], out_dtype="float32"), given, dtype)


def _dense(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    """A @ B.T, added up in float32."""
    return after_product(topi.matmul(given["A"], given["B"], transpose_b=True, out_dtype="float32"), given, dtype)


def _dense_reference(given: Arrays, options: Options) -> Array:
    return np.asarray(given["A"] @ given["B"].T)


def _dense_operations(shapes: Shapes, options: Options) -> float:
    (m, k), (n, _) = shapes["A"], shapes["B"]
    return 2.0 * m * n * k


def _matmul_reference(given: Arrays, options: Options) -> Array:
    return np.asarray(given["A"] @ given["B"])


def _matmul_gelu_reference(given: Arrays, options: Options) -> Array:
    """The error function by the approximation 7.1.26 of Abramowitz and Stegun, right to 1.5e-7."""
    z = given["A"] @ given["B"] + given["bias"]
    x = np.abs(z) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * x)
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    polynomial = np.zeros_like(t)
    for factor in factors:
        polynomial = (polynomial + np.float32(factor)) * t
    erf = np.copysign(1 - polynomial * np.exp(-x * x), z)
    return np.asarray(z * (0.5 + 0.5 * erf), np.float32)


def _matmul_operations(shapes: Shapes, options: Options) -> float:
    (m, k), (_, n) = shapes["A"], shapes["B"]
    return 2.0 * m * n * k


def _softmax(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    return topi.softmax(given["x"])


def _softmax_reference(given: Arrays, options: Options) -> Array:
    powers = np.exp(given["x"] - given["x"].max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _layer_norm(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    return topi.layer_norm(given["x"], given["gamma"], given["beta"], epsilon=EPSILON)


def _layer_norm_reference(given: Arrays, options: Options) -> Array:
    centred = given["x"] - given["x"].mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + np.float32(EPSILON)) * given["gamma"] + given["beta"])


def _transpose(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    return topi.transpose(given["x"])


def _transpose_reference(given: Arrays, options: Options) -> Array:
    return np.ascontiguousarray(given["x"].T)


def _chain(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    """relu(a * b + c), in three stages."""
    a, b, c = given["a"], given["b"], given["c"]
    product = te.compute(a.shape, lambda *i: a[i] * b[i], name="product")
    total = te.compute(a.shape, lambda *i: product[i] + c[i], name="total")
    return topi.relu(total)


def _chain_reference(given: Arrays, options: Options) -> Array:
    return np.asarray(np.maximum(given["a"] * given["b"] + given["c"], 0))


def _conv2d(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    """NHWC data, HWIO weights, with a border that keeps the image."""
    padding = options["padding"]
    return rounded(topi.nn.conv2d_nhwc(given["x"], given["w"], 1, padding, out_dtype="float32"), dtype)


def _conv2d_reference(given: Arrays, options: Options) -> Array:
    """One product for each place in the window."""
    x, w, padding = given["x"], given["w"], options["padding"]
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    n, height, width, _ = x.shape
    made = np.zeros((n, height, width, w.shape[3]), np.float32)
    for row in range(w.shape[0]):
        for column in range(w.shape[1]):
            made += padded[:, row : row + height, column : column + width] @ w[row, column]
    return made


def _conv2d_operations(shapes: Shapes, options: Options) -> float:
    return 2.0 * math.prod(shapes["x"][:3]) * math.prod(shapes["w"])


def _attention(given: Inputs, dtype: str, options: Options) -> te.Tensor:
    """Scores and sums in float32; on tensor cores where the dtype is one of theirs."""
    return topi.attention(given["q"], given["k"], given["v"], out_dtype=dtype)


def _attention_reference(given: Arrays, options: Options) -> Array:
    """One head after the other."""
    heads = []
    for q, k, v in zip(given["q"], given["k"], given["v"], strict=True):
        powers = np.exp(q @ k.T * np.float32(q.shape[1] ** -0.5))
        heads.append(powers @ v / powers.sum(axis=-1, keepdims=True))
    return np.stack(heads)


def _attention_operations(shapes: Shapes, options: Options) -> float:
    heads, queries, depth = shapes["q"]
    return 4.0 * heads * queries * shapes["k"][1] * depth


def _per_element(operations: float, name: str) -> Callable[[Shapes, Options], float]:
    return lambda shapes, options: operations * math.prod(shapes[name])


OPERATORS: Mapping[str, Operator] = {
    "matmul": Operator(_matmul, _matmul_reference, _matmul_operations),
    "dense": Operator(_dense, _dense_reference, _dense_operations),
    "matmul_gelu": Operator(_matmul, _matmul_gelu_reference, _matmul_operations),
    "softmax": Operator(_softmax, _softmax_reference, _per_element(_EXPONENTIAL + 4, "x")),
    "layer_norm": Operator(_layer_norm, _layer_norm_reference, _per_element(8, "x")),
    "transpose": Operator(_transpose, _transpose_reference, _per_element(0, "x")),
    "chain": Operator(_chain, _chain_reference, _per_element(3, "a")),
    "conv2d": Operator(_conv2d, _conv2d_reference, _conv2d_operations),
    "attention": Operator(_attention, _attention_reference, _attention_operations),
}
