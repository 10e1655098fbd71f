"""Numba: plain loops, with fast math; in parallel on more than one thread."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from benchmarks.operators import TAPS
from benchmarks.peers.serve import Builder, Call, Given, Unsupported

prange = numba.prange


def compiled(function: Any, given: Given) -> Any:
    """The function, compiled."""
    numba.set_num_threads(given.threads)
    return numba.njit(parallel=given.threads > 1, fastmath=True)(function)


def row_softmax(x: Any, y: Any) -> None:
    """Three passes over a row in the cache."""
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            y[i, j] = math.exp(x[i, j] - top)
            total += y[i, j]
        scale = np.float32(1) / total
        for j in range(x.shape[1]):
            y[i, j] *= scale


def softmax(given: Given) -> Call:
    """Of rows."""
    x, run = given["x"], compiled(row_softmax, given)
    y = np.empty_like(x)

    def call() -> Any:
        run(x, y)
        return y

    return call


def norm_rows(x: Any, gamma: Any, beta: Any, epsilon: Any, y: Any) -> None:
    """Three passes over a row in the cache."""
    share = np.float32(1) / np.float32(x.shape[1])
    for i in prange(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total * share
        squares = np.float32(0)
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = np.float32(1) / np.sqrt(squares * share + epsilon)
        for j in range(x.shape[1]):
            y[i, j] = (x[i, j] - mean) * scale * gamma[j] + beta[j]


def layer_norm(given: Given) -> Call:
    """Of rows."""
    x, epsilon, run = given["x"], np.float32(given.options["epsilon"]), compiled(norm_rows, given)
    y = np.empty_like(x)

    def call() -> Any:
        run(x, given["gamma"], given["beta"], epsilon, y)
        return y

    return call


def half_step(a: Any, b: Any) -> None:
    """One step, from an array to another."""
    for i in prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = np.float32(0.2) * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])


def jacobi(given: Given) -> Call:
    """Step by step."""
    x, steps, run = given["x"], given.options["steps"], compiled(half_step, given)

    def call() -> Any:
        a, b = x.copy(), x.copy()
        for _ in range(steps):
            run(a, b)
            a, b = b, a
        return a

    return call


def depthwise(x: Any, w: Any, stride: int, y: Any) -> None:
    """A padded image, channel by channel."""
    for c in prange(y.shape[1]):
        for i in range(y.shape[2]):
            for j in range(y.shape[3]):
                y[0, c, i, j] = 0
            for u in range(w.shape[2]):
                for v in range(w.shape[3]):
                    for j in range(y.shape[3]):
                        y[0, c, i, j] += x[0, c, i * stride + u, j * stride + v] * w[c, 0, u, v]


def conv2d(given: Given) -> Call:
    """Depthwise ones; of the others, loops without tiles say nothing."""
    x, w, padding, stride = given["x"], given["w"], given.options["padding"], given.options["stride"]
    if given.options["groups"] != x.shape[1] or w.shape[0] != x.shape[1] or "bias" in given.arrays:
        raise Unsupported("depthwise convolutions only")
    n, c, height, width = x.shape
    padded = np.zeros((n, c, height + 2 * padding, width + 2 * padding), np.float32)
    made = [(e + 2 * padding - k) // stride + 1 for e, k in zip((height, width), w.shape[2:])]
    y, run = np.empty((n, c, *made), np.float32), compiled(depthwise, given)

    def call() -> Any:
        padded[:, :, padding : padding + height, padding : padding + width] = x
        run(padded, w, stride, y)
        return y

    return call


def filter_rows_and_columns(x: Any, weights: Any, rows: Any, y: Any) -> None:
    """All rows, then all columns."""
    for i in prange(rows.shape[0]):
        for j in range(rows.shape[1]):
            total = np.float32(0)
            for k in range(7):
                total += x[i, j + k] * weights[k]
            rows[i, j] = total
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            total = np.float32(0)
            for k in range(7):
                total += rows[i + k, j] * weights[k]
            y[i, j] = total


def blur(given: Given) -> Call:
    """Two passes."""
    x, run, reach = given["x"], compiled(filter_rows_and_columns, given), len(TAPS) - 1
    height, width = (n - reach for n in x.shape)
    rows, y = np.empty((height + reach, width), np.float32), np.empty((height, width), np.float32)
    weights = np.array(TAPS, np.float32)

    def call() -> Any:
        run(x, weights, rows, y)
        return y

    return call


def measured(x: Any, gx: Any, gy: Any, y: Any) -> None:
    """Gradients of all pixels, then sums of their products."""
    twelfth, some = np.float32(1 / 12), np.float32(0.04)
    for i in prange(gx.shape[0]):
        for j in range(gx.shape[1]):
            left = x[i, j] + x[i + 1, j] + x[i + 1, j] + x[i + 2, j]
            right = x[i, j + 2] + x[i + 1, j + 2] + x[i + 1, j + 2] + x[i + 2, j + 2]
            above = x[i, j] + x[i, j + 1] + x[i, j + 1] + x[i, j + 2]
            below = x[i + 2, j] + x[i + 2, j + 1] + x[i + 2, j + 1] + x[i + 2, j + 2]
            gx[i, j] = (right - left) * twelfth
            gy[i, j] = (below - above) * twelfth
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            xx = yy = xy = np.float32(0)
            for v in range(3):
                for u in range(3):
                    a, b = gx[i + v, j + u], gy[i + v, j + u]
                    xx += a * a
                    yy += b * b
                    xy += a * b
            y[i, j] = xx * yy - xy * xy - some * (xx + yy) * (xx + yy)


def corners(given: Given) -> Call:
    """Two passes."""
    x, run = given["x"], compiled(measured, given)
    height, width = x.shape
    gx, gy = (np.empty((height - 2, width - 2), np.float32) for _ in range(2))
    y = np.empty((height - 4, width - 4), np.float32)

    def call() -> Any:
        run(x, gx, gy, y)
        return y

    return call


BUILDERS: dict[str, Builder] = {
    "conv2d": conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "jacobi": jacobi,
    "blur": blur,
    "corners": corners,
}
