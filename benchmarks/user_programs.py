"""Programs that users write and no library has, in te, with what they mean in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.operators import TAPS
from benchmarks.peers.serve import Array
from tensorlang import te
from tensorlang.te.operation import Tensor

Made = tuple[list[Tensor], Callable[..., Array]]
"""The tensors, the output last, and what the output is of the inputs."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of some `sizes`; `small` ones are for tests."""

    name: str
    make: Callable[..., Made]
    sizes: tuple[int, ...]
    small: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'×'.join(map(str, self.sizes))}"


def inputs(tensors: Sequence[Tensor], seed: int = 0) -> list[Array]:
    """Values of the inputs: from -1 to 1, bytes from 0 to 255."""
    rng = np.random.default_rng(seed)
    shapes = [tuple(int(str(extent)) for extent in t.shape) for t in tensors[:-1]]
    return [
        rng.integers(0, 256, shape, np.uint8) if t.dtype == "uint8" else rng.uniform(-1, 1, shape).astype(t.dtype)
        for t, shape in zip(tensors, shapes, strict=False)
    ]


def max_plus(m: int, n: int, k: int) -> Made:
    """The product of matrices over (max, +): longest paths."""
    A, B, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), "r")
    C = te.compute((m, n), lambda i, j: te.max(A[i, r] + B[r, j], axis=r), name="C")
    return [A, B, C], lambda a, b: np.stack([(row[:, None] + b).max(0) for row in a])


def bilateral(h: int, w: int) -> Made:
    """A bilateral filter of 5×5 pixels: near ones weigh more, and ones of like brightness."""
    image = te.placeholder((h, w), name="image")
    sharp, wide = -8.0, -0.125

    def weight(y: Any, x: Any, v: Any, u: Any) -> Any:
        change = image[y + v, x + u] - image[y + 2, x + 2]
        apart = (v - 2) * (v - 2) + (u - 2) * (u - 2)
        return te.exp(change * change * sharp + apart.astype("float32") * wide)

    def sums(name: str, element: Callable[..., Any]) -> Any:
        v, u = te.reduce_axis((0, 5), "v"), te.reduce_axis((0, 5), "u")
        return te.compute((h - 4, w - 4), lambda y, x: te.sum(element(y, x, v, u), axis=[v, u]), name=name)

    top = sums("top", lambda y, x, v, u: weight(y, x, v, u) * image[y + v, x + u])
    total = sums("total", weight)
    out = te.compute((h - 4, w - 4), lambda y, x: top[y, x] / total[y, x], name="filtered")

    def filtered(a: Array) -> Array:
        parts = np.lib.stride_tricks.sliding_window_view(a, (5, 5)).astype("float64")
        v, u = np.mgrid[-2:3, -2:3]
        weights = np.exp(sharp * (parts - parts[..., 2:3, 2:3]) ** 2 + wide * (v**2 + u**2))
        return np.asarray((weights * parts).sum((-1, -2)) / weights.sum((-1, -2)))

    return [image, out], filtered


def grouped_decode(heads: int, groups: int, keys: int, depth: int) -> Made:
    """Attention of one new token, some heads to a group of keys and values."""
    q, each = te.placeholder((heads, depth), name="q"), heads // groups
    K, V = (te.placeholder((groups, keys, depth), name=name) for name in "KV")
    c, s, t, r = (te.reduce_axis((0, n), w) for n, w in ((depth, "c"), (keys, "s"), (keys, "t"), (keys, "r")))
    scale = depth**-0.5
    score = te.compute((heads, keys), lambda h, m: te.sum(q[h, c] * K[h // each, m, c], axis=c), name="score")
    most = te.compute((heads,), lambda h: te.max(score[h, s] * scale, axis=s), name="most")
    weight = te.compute((heads, keys), lambda h, m: te.exp(score[h, m] * scale - most[h]), name="weight")
    total = te.compute((heads,), lambda h: te.sum(weight[h, t], axis=t), name="total")
    mixed = te.compute((heads, depth), lambda h, d: te.sum(weight[h, r] * V[h // each, r, d], axis=r), name="mixed")
    out = te.compute((heads, depth), lambda h, d: mixed[h, d] / total[h], name="out")

    def attended(a: Array, k: Array, v: Array) -> Array:
        scores = scale * np.einsum("ghc,gmc->ghm", a.reshape(groups, each, depth), k, dtype="float64")
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.asarray(np.einsum("ghm,gmd->ghd", weights, v).reshape(heads, depth))

    return [q, K, V, out], attended


def gemv(m: int, k: int) -> Made:
    """A matrix times a vector."""
    A, x, r = te.placeholder((m, k), name="A"), te.placeholder((k,), name="x"), te.reduce_axis((0, k), "r")
    return [A, x, te.compute((m,), lambda i: te.sum(A[i, r] * x[r], axis=r), name="y")], lambda a, v: a @ v


def distances(m: int, n: int, k: int) -> Made:
    """Squared distances of all pairs of points."""
    P, Q, r = te.placeholder((m, k), name="P"), te.placeholder((n, k), name="Q"), te.reduce_axis((0, k), "r")

    def element(i: Any, j: Any) -> Any:
        apart = P[i, r] - Q[j, r]
        return te.sum(apart * apart, axis=r)

    out = te.compute((m, n), element, name="distance")
    return [P, Q, out], lambda p, q: np.stack([((row - q.astype("float64")) ** 2).sum(1) for row in p])


def weighted_median(h: int, w: int) -> Made:
    """The weighted median of a pixel and its four neighbours: the least of which half of the weight is not greater."""
    image, weights = te.placeholder((h, w), name="image"), (1, 2, 3, 2, 1)
    at = ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1))

    def element(y: Any, x: Any) -> Any:
        values = [image[y + v, x + u] for v, u in at]
        result: Any = te.const(float("inf"), "float32")
        for value in values:
            below = [te.select(other <= value, float(n), 0.0) for other, n in zip(values, weights, strict=True)]
            enough = below[0] + below[1] + below[2] + below[3] + below[4] >= sum(weights) / 2
            result = te.minimum(result, te.select(enough, value, float("inf")))
        return result

    def median(a: Array) -> Array:
        values = np.stack([a[v : v + h - 2, u : u + w - 2] for v, u in at])
        order = np.argsort(values, 0)
        heavy = np.cumsum(np.asarray(weights)[order], 0) >= sum(weights) / 2
        return np.asarray(np.take_along_axis(np.take_along_axis(values, order, 0), heavy.argmax(0)[None], 0)[0])

    return [image, te.compute((h - 2, w - 2), element, name="median")], median


def dilated(channels: int, size: int, dilation: int) -> Made:
    """A convolution of 3×3 by hand: zeros around, and steps of `dilation` pixels between its taps."""
    D, W = te.placeholder((channels, size, size), name="D"), te.placeholder((channels, channels, 3, 3), name="W")
    c, v, u = te.reduce_axis((0, channels), "c"), te.reduce_axis((0, 3), "v"), te.reduce_axis((0, 3), "u")

    def padded(b: Any, y: Any, x: Any) -> Any:
        rows, columns = y - dilation, x - dilation
        inside = te.all(rows >= 0, rows < size, columns >= 0, columns < size)
        return te.if_then_else(inside, D[b, rows, columns], te.const(0, "float32"))

    P = te.compute((channels, size + 2 * dilation, size + 2 * dilation), padded, name="P")
    out = te.compute(
        (channels, size, size),
        lambda f, y, x: te.sum(P[c, y + v * dilation, x + u * dilation] * W[f, c, v, u], axis=[c, v, u]),
        name="out",
    )

    def convolved(d: Array, w: Array) -> Array:
        wide = np.pad(d, ((0, 0), (dilation,) * 2, (dilation,) * 2))
        taps = [wide[:, k * dilation :, m * dilation :][:, :size, :size] for k in range(3) for m in range(3)]
        return np.asarray(np.einsum("tcyx,fct->fyx", np.stack(taps), w.reshape(channels, channels, 9), optimize=True))

    return [D, W, out], convolved


@te.hybrid.script
def counted(data: Any) -> Any:
    """How often each byte occurs."""
    bins = te.output_tensor((256,), "int32")
    for b in range(256):
        bins[b] = 0
    for i in range(data.shape[0]):
        bins[data[i].astype("int32")] += 1
    return bins


def histogram(n: int) -> Made:
    """How often each byte occurs."""
    data = te.placeholder((n,), "uint8", "data")
    return [data, counted(data)], lambda a: np.bincount(a, minlength=256)


def batch_statistics(images: int, channels: int, size: int) -> Made:
    """Mean and variance of each channel, side by side."""
    D, shape = te.placeholder((images, channels, size, size), name="D"), (channels,)
    count = images * size * size

    def sums(name: str, element: Callable[[Any], Any]) -> Any:
        n, y, x = (te.reduce_axis((0, extent), word) for extent, word in ((images, "n"), (size, "y"), (size, "x")))
        return te.compute(shape, lambda c: te.sum(element(D[n, c, y, x]), axis=[n, y, x]), name=name)

    total, squares = sums("total", lambda value: value), sums("squares", lambda value: value * value)

    def element(c: Any, which: Any) -> Any:
        mean = total[c] * (1 / count)
        return te.select(which < 1, mean, squares[c] * (1 / count) - mean * mean)

    out = te.compute((channels, 2), element, name="statistics")
    return [D, out], lambda d: np.stack([d.mean((0, 2, 3), "float64"), d.var((0, 2, 3), "float64")], 1)


def rope(positions: int, heads: int, depth: int) -> Made:
    """Rotary embedding: halves of each head turned by angles of the position."""
    half = depth // 2
    X = te.placeholder((positions, heads, depth), name="X")
    C, S = (te.placeholder((positions, half), name=name) for name in ("cosine", "sine"))

    def element(p: Any, h: Any, d: Any) -> Any:
        angle, sign = d % half, te.select(d < half, -1.0, 1.0)
        return X[p, h, d] * C[p, angle] + X[p, h, (d + half) % depth] * S[p, angle] * sign

    def turned(x: Array, c: Array, s: Array) -> Array:
        a, b, c, s = x[..., :half], x[..., half:], c[:, None], s[:, None]
        return np.concatenate([a * c - b * s, b * c + a * s], -1)

    return [X, C, S, te.compute((positions, heads, depth), element, name="turned")], turned


def running_maximum(rows: int, n: int) -> Made:
    """The greatest value so far along each row."""
    X = te.placeholder((rows, n), name="X")

    def so_far(self: Any, i: Any, j: Any) -> Any:
        return te.if_then_else(j > 0, te.maximum(self[i, j - 1], X[i, j]), X[i, j])

    return [X, te.recurrence((rows, n), so_far, name="greatest")], lambda x: np.maximum.accumulate(x, 1)


def corners(h: int, w: int) -> Made:
    """Harris' measure of corners: squares of gradients, summed over 3×3 pixels."""
    image = te.placeholder((h, w), name="image")

    def gradient(name: str, y: int, x: int) -> Any:
        """Along rows or down columns: differences of neighbours two apart, weighed by 1, 2, 1 across."""

        def at(i: Any, j: Any) -> Any:
            pairs = [(image[i + y * 2 + x * s, j + x * 2 + y * s], image[i + x * s, j + y * s]) for s in range(3)]
            (a, b), (c, d), (e, f) = pairs
            return (a - b + (c - d) * 2.0 + e - f) * (1 / 12)

        return te.compute((h - 2, w - 2), at, name=name)

    gx, gy = gradient("gx", 0, 1), gradient("gy", 1, 0)

    def sums(name: str, a: Any, b: Any) -> Any:
        square = te.compute((h - 2, w - 2), lambda i, j: a[i, j] * b[i, j], name=f"{name}.square")
        places = [(v, u) for v in range(3) for u in range(3)]
        return te.compute(
            (h - 4, w - 4), lambda i, j: sum((square[i + v, j + u] for v, u in places), start=0.0), name=name
        )

    xx, yy, xy = sums("xx", gx, gx), sums("yy", gy, gy), sums("xy", gx, gy)

    def measure(i: Any, j: Any) -> Any:
        trace = xx[i, j] + yy[i, j]
        return xx[i, j] * yy[i, j] - xy[i, j] * xy[i, j] - trace * trace * 0.04

    def reference(a: Array) -> Array:
        a = a.astype("float64")
        across, down = ((d[:-2] + 2 * d[1:-1] + d[2:]) / 12 for d in (a[:, 2:] - a[:, :-2], (a[2:] - a[:-2]).T))
        x, y = across, down.T
        xx, yy, xy = (
            np.lib.stride_tricks.sliding_window_view(square, (3, 3)).sum((-1, -2)) for square in (x * x, y * y, x * y)
        )
        return np.asarray(xx * yy - xy * xy - 0.04 * (xx + yy) ** 2)

    return [image, te.compute((h - 4, w - 4), measure, name="corners")], reference


def unsharp(h: int, w: int) -> Made:
    """An image made sharper: twice of it, less a blur of 7×7 pixels along rows and then down columns."""
    image, weights = te.placeholder((h, w), name="image"), TAPS
    rows = te.compute(
        (h, w - 6), lambda i, j: sum((image[i, j + k] * f for k, f in enumerate(weights)), start=0.0), name="rows"
    )
    blur = te.compute(
        (h - 6, w - 6), lambda i, j: sum((rows[i + k, j] * f for k, f in enumerate(weights)), start=0.0), name="blur"
    )
    out = te.compute((h - 6, w - 6), lambda i, j: image[i + 3, j + 3] * 2.0 - blur[i, j], name="sharp")

    def reference(a: Array) -> Array:
        parts = np.lib.stride_tricks.sliding_window_view(a.astype("float64"), (7, 7))
        return np.asarray(2 * a[3:-3, 3:-3] - np.einsum("ijyx,y,x->ij", parts, weights, weights))

    return [image, out], reference


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program("max-plus", max_plus, (256, 256, 256), (9, 20, 7)),
        Program("bilateral", bilateral, (512, 512), (11, 23)),
        Program("grouped-decode", grouped_decode, (32, 8, 2048, 128), (4, 2, 19, 8)),
        Program("gemv", gemv, (4096, 4096), (13, 21)),
        Program("distances", distances, (512, 512, 128), (9, 7, 5)),
        Program("weighted-median", weighted_median, (1080, 1920), (9, 21)),
        Program("dilated-conv", dilated, (64, 56, 2), (5, 9, 2)),
        Program("histogram", histogram, (1 << 18,), (777,)),
        Program("batch-statistics", batch_statistics, (32, 64, 56), (3, 5, 7)),
        Program("rope", rope, (2048, 32, 128), (5, 3, 8)),
        Program("running-maximum", running_maximum, (512, 2048), (5, 37)),
        Program("corners", corners, (1028, 1028), (11, 23)),
        Program("unsharp", unsharp, (1030, 1030), (13, 29)),
    )
}
