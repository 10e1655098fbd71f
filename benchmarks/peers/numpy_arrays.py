"""NumPy, written as a user of NumPy would, into given arrays where that is possible."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.operators import TAPS, corner_measure
from benchmarks.peers import numpy_vocabulary
from benchmarks.peers.serve import Array, Builder, Call, Given


def matmul(given: Given) -> Call:
    """BLAS for float32."""
    given.only("float32")
    a, b = given["A"], given["B"]
    c = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype)
    return lambda: np.matmul(a, b, out=c)


def dense_gelu(given: Given) -> Call:
    """NumPy has no error function: formula 7.1.26 of Abramowitz and Stegun (1.5e-7)."""
    x, w, b = given["x"], given["W"], given["b"]
    coefficients = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)

    def call() -> Array:
        z = x @ w
        z += b
        y = np.abs(z)
        y *= np.float32(1 / math.sqrt(2))
        t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * y)
        p = np.full_like(t, coefficients[0])
        for c in coefficients[1:]:
            p *= t
            p += np.float32(c)
        p *= t
        p *= np.exp(-y * y)
        erf = np.copysign(np.float32(1) - p, z)
        return np.asarray(np.float32(0.5) * z * (np.float32(1) + erf))

    return call


def conv2d(given: Given) -> Call:
    """Windows gathered into a matrix, and a matmul for every group."""
    x, w, options = given["x"], given["w"], given.options
    padding, stride, groups = options["padding"], options["stride"], options["groups"]
    n, c, height, width = x.shape
    padded = np.zeros((n, c, height + 2 * padding, width + 2 * padding), x.dtype)
    inside = padded[:, :, padding : padding + height, padding : padding + width]
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    rows, columns = windows.shape[2:4]
    gathered = windows.transpose(0, 1, 4, 5, 2, 3)
    matrix = np.empty(gathered.shape, x.dtype)
    filters = w.reshape(groups, w.shape[0] // groups, -1)

    def call() -> Array:
        inside[...] = x
        matrix[...] = gathered
        y = filters @ matrix.reshape(groups, -1, rows * columns)
        y = y.reshape(1, -1, rows, columns)
        if "bias" in given.arrays:
            y += given["bias"][:, None, None]
            np.maximum(y, 0, out=y)
        return np.asarray(y)

    return call


def softmax(given: Given) -> Call:
    """Three passes over memory."""
    x = given["x"]
    y = np.empty_like(x)

    def call() -> Array:
        np.subtract(x, x.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        np.divide(y, y.sum(axis=1, keepdims=True), out=y)
        return y

    return call


def layer_norm(given: Given) -> Call:
    """In a scratch array."""
    x, gamma, beta, epsilon = given["x"], given["gamma"], given["beta"], np.float32(given.options["epsilon"])
    y = np.empty_like(x)

    def call() -> Array:
        np.subtract(x, x.mean(axis=1, keepdims=True), out=y)
        variance = np.einsum("ij,ij->i", y, y)[:, None] / np.float32(x.shape[1])
        np.divide(y, np.sqrt(variance + epsilon), out=y)
        np.multiply(y, gamma, out=y)
        np.add(y, beta, out=y)
        return y

    return call


def attention(given: Given) -> Call:
    """With all scores in memory."""
    q, k, v = given["q"], given["k"], given["v"]
    scale = np.float32(1 / math.sqrt(q.shape[-1]))

    def call() -> Array:
        scores = (q * scale) @ k.swapaxes(1, 2)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        made = scores @ v
        made /= scores.sum(axis=-1, keepdims=True)
        return np.asarray(made)

    return call


def jacobi(given: Given) -> Call:
    """Two arrays that take turns."""
    x, steps = given["x"], given.options["steps"]
    fifth = np.float32(0.2)

    def call() -> Array:
        a, b = x.copy(), x.copy()
        for _ in range(steps):
            inner = b[1:-1, 1:-1]
            np.add(a[1:-1, 1:-1], a[1:-1, :-2], out=inner)
            for other in (a[1:-1, 2:], a[2:, 1:-1], a[:-2, 1:-1]):
                np.add(inner, other, out=inner)
            np.multiply(inner, fifth, out=inner)
            a, b = b, a
        return a

    return call


def blur(given: Given) -> Call:
    """Weighted sums of shifted arrays, in place."""
    x, reach = given["x"], len(TAPS) - 1
    height, width = (n - reach for n in x.shape)
    rows, made, term = (np.empty((n, width), np.float32) for n in (height + reach, height, height + reach))
    weights = [np.float32(weight) for weight in TAPS]

    def call() -> Array:
        np.multiply(x[:, :width], weights[0], out=rows)
        for k, weight in enumerate(weights[1:], 1):
            np.add(rows, np.multiply(x[:, k : k + width], weight, out=term), out=rows)
        np.multiply(rows[:height], weights[0], out=made)
        for k, weight in enumerate(weights[1:], 1):
            np.add(made, np.multiply(rows[k : k + height], weight, out=term[:height]), out=made)
        return made

    return call


def corners(given: Given) -> Call:
    """Shifted arrays, added up."""
    return lambda: np.asarray(corner_measure(given["x"]))


BUILDERS: dict[str, Builder] = {
    "matmul": matmul,
    "dense_gelu": dense_gelu,
    "conv2d": conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    "jacobi": jacobi,
    "blur": blur,
    "corners": corners,
    **numpy_vocabulary.BUILDERS,
}
