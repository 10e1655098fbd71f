"""Layers that are more than one product, against NumPy, and gradients against those of te."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.errors import DefinitionError, KernelError
from tests.device_targets import on_cuda, on_opencl
from tests.topi.calls import Call, check, floats, ran, whole
from tests.topi.programs import Array

TIME, BATCH, INPUTS, HIDDEN = 4, 3, 5, 2


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def lstm(
    x: Array,
    wi: Array,
    wh: Array,
    bias: Array | float = 0.0,
    firsts: tuple[Array, Array] | None = None,
    proj: Array | None = None,
    peepholes: tuple[Array, ...] = (),
    layout: str = "IFGO",
) -> tuple[Array, Array]:
    x, wi, wh = (a.astype(np.float64) for a in (x, wi, wh))
    hidden = len(wi) // 4
    h, c = firsts or (np.zeros((x.shape[1], wh.shape[1])), np.zeros((x.shape[1], hidden)))
    hs, cs = [], []
    for step in x:
        gates = (step @ wi.T + h @ wh.T + bias).reshape(len(step), 4, hidden)
        i, f, g, o = (gates[:, layout.index(letter)] for letter in "IFGO")
        if peepholes:
            i, f = i + peepholes[0] * c, f + peepholes[1] * c
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o + peepholes[2] * c if peepholes else o) * np.tanh(c)
        h = h if proj is None else h @ proj.T
        hs.append(h)
        cs.append(c)
    return np.array(hs), np.array(cs)


def gru(x: Array, wi: Array, wh: Array, bi: Array | float = 0.0, bh: Array | float = 0.0) -> Array:
    h, made = np.zeros((x.shape[1], wh.shape[1])), []
    for step in x.astype(np.float64):
        a, b = (v.reshape(len(step), 3, len(wi) // 3) for v in (step @ wi.T + bi, h @ wh.T + bh))
        reset, update = sigmoid(a[:, 0] + b[:, 0]), sigmoid(a[:, 1] + b[:, 1])
        h = update * h + (1 - update) * np.tanh(a[:, 2] + reset * b[:, 2])
        made.append(h)
    return np.array(made)


def weights(gates: int, *more: tuple[int, ...]) -> Callable[[int], list[Array]]:
    shapes = [(TIME, BATCH, INPUTS), (gates * HIDDEN, INPUTS), (gates * HIDDEN, HIDDEN), *more]
    return lambda n: [np.random.default_rng(k).normal(size=s).astype(np.float32) for k, s in enumerate(shapes)]


def between(image: Array, y: float, x: float) -> Array:
    _, high, wide = image.shape
    if not (0 <= y < high and 0 <= x < wide):
        return np.zeros(len(image))
    y, x = min(y, high - 1), min(x, wide - 1)
    top, left = int(y), int(x)
    rows, columns = (top, min(top + 1, high - 1)), (left, min(left + 1, wide - 1))
    parts = image[:, rows][:, :, columns]
    return np.asarray(np.einsum("cyx,y,x->c", parts, [1 - y + top, y - top], [1 - x + left, x - left]))


def deformed(x: Array, moves: Array, w: Array, groups: int) -> Array:
    n, _, rows, columns = moves.shape
    _, inputs, kh, kw = w.shape
    own = moves.reshape(n, groups, kh * kw, 2, rows, columns)
    read = np.zeros((n, inputs, kh, kw, rows, columns))
    for b, g, a, k, i, j in np.ndindex(n, groups, kh, kw, rows, columns):
        down, right = own[b, g, a * kw + k, :, i, j]
        part = slice(g * inputs // groups, (g + 1) * inputs // groups)
        read[b, part, a, k, i, j] = between(x[b, part], i * 2 - 1 + a + down, j * 2 - 1 + k + right)
    return np.asarray(np.einsum("bcklij,fckl->bfij", read, w))


def moved_images(groups: int, _: int) -> list[Array]:
    return [floats(2, 4, 5, 6), floats(2, 18 * groups, 3, 3) * 1.5, floats(6, 4, 3, 3)]


def boxes_of_images(_: int) -> list[Array]:
    boxes = [[0.13, 0.2, 0.9, 0.7], [0.77, 0.9, 0.2, 0.12], [-0.3, 0.4, 0.6, 1.4]]
    return [floats(2, 3, 6, 7), np.array(boxes, np.float32), np.array([1, 0, 1], np.int32)]


def cropped(x: Array, boxes: Array, images: Array, size: tuple[int, int], method: str) -> Array:
    made = np.full((len(boxes), x.shape[1], *size), 7.0)
    for r, i, j in np.ndindex(len(boxes), *size):
        at = []
        for d, k in enumerate((i, j)):
            low, high = (float(boxes[r, d + 2 * side]) * (x.shape[2 + d] - 1) for side in (0, 1))
            at.append((low + high) / 2 if size[d] == 1 else low + k * (high - low) / (size[d] - 1))
        if all(0 <= place <= n - 1 for place, n in zip(at, x.shape[2:], strict=True)):
            at = [float(np.rint(place)) for place in at] if method == "nearest_neighbor" else at
            made[r, :, i, j] = between(x[images[r]], *at)
    return made


def places(n: int) -> list[Array]:
    return [floats(2, 3, 5, 6), np.linspace(-1.4, 1.4, 2 * 2 * 3 * 7, dtype=np.float32).reshape(2, 2, 3, 7)]


def mirrored(place: Array, m: int, corners: bool) -> Array:
    """Places in pixels, mirrored at the borders of an image again and again."""
    low, high = (0, m - 1) if corners else (-0.5, m - 0.5)
    while np.any((place < low) | (place > high)):
        place = np.where(place < low, 2 * low - place, np.where(place > high, 2 * high - place, place))
    return place


def cubic(d: float) -> float:
    d = abs(d)
    if d < 1:
        return 1.25 * d**3 - 2.25 * d**2 + 1
    return -0.75 * d**3 + 3.75 * d**2 - 6 * d + 3 if d < 2 else 0


def sampled(x: Array, grid: Array, method: str, padding: str, corners: bool) -> Array:
    made, rank = np.zeros((*x.shape[:2], *grid.shape[2:])), grid.shape[1]
    for n, *point in np.ndindex(len(x), *grid.shape[2:]):
        weights = []
        for to, m in zip(grid[index(n, slice(None, None, -1), *point)].astype(float), x.shape[2:], strict=True):
            place = (to + 1) / 2 * (m - 1) if corners else ((to + 1) * m - 1) / 2
            if method != "bicubic" and padding != "zeros":
                place = mirrored(place, m, corners) if padding == "reflection" else place
                place = np.clip(place, 0, m - 1)
            pixels = np.arange(np.floor(place) - 1, np.floor(place) + 3) if method != "nearest" else [np.rint(place)]
            shares = {"nearest": lambda d: 1.0, "bilinear": lambda d: max(0, 1 - abs(d)), "bicubic": cubic}[method]
            held = np.zeros(m)
            for pixel in map(float, pixels):
                if padding != "zeros" or 0 <= pixel < m:
                    own = mirrored(np.array(pixel), m, corners) if padding == "reflection" else pixel
                    held[int(np.clip(own, 0, m - 1))] += shares(place - pixel)
            weights.append(held)
        letters = "ijk"[:rank]
        made[index(n, slice(None), *point)] = np.einsum(f"c{letters},{','.join(letters)}->c", x[n], *weights)
    return made


def dilated(x: Array, shape: Array) -> Array:
    made = np.full((*x.shape[:2], 3, 4), -np.inf)
    for i, j, y, k in np.ndindex(3, 4, *shape.shape[1:]):
        row, column = i * 2 + y * 2 - 1, j * 2 + k - 1
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            made[:, :, i, j] = np.maximum(made[:, :, i, j], x[:, :, row, column] + shape[:, y, k])
    return made


def index(*parts: Any) -> Any:
    return parts


def correlated(x: Array, y: Array, size: int, most: int, gap: int, multiply: bool) -> Array:
    n, _, high, wide = x.shape
    border, radius = most + size // 2, most // gap
    a, b = (np.pad(v.astype(np.float64), ((0, 0), (0, 0), (2, 2), (2, 2))) for v in (x, y))
    rows, columns = (high + 4 - 2 * border + 1) // 2, (wide + 4 - 2 * border + 1) // 2
    made = np.zeros((n, (2 * radius + 1) ** 2, rows, columns))
    for q, i, j in np.ndindex(*made.shape[1:]):
        down, right = (k * gap for k in (q // (2 * radius + 1) - radius, q % (2 * radius + 1) - radius))
        top, left = i * 2 + most, j * 2 + most
        one = a[:, :, top : top + size, left : left + size]
        other = b[:, :, top + down : top + down + size, left + right : left + right + size]
        made[:, q, i, j] = (one * other if multiply else np.abs(one - other)).mean((1, 2, 3))
    return made


def likelihood(x: Array, at: Array, w: Array, how: str) -> Array:
    seen = at != 3
    each = np.where(seen, -np.take_along_axis(x, at[:, None], 1)[:, 0] * w[at], 0)
    total = np.where(seen, w[at], 0).sum()
    return np.asarray(each if how == "none" else each.sum() / (total if how == "mean" else 1))


def targets(n: int) -> list[Array]:
    return [floats(n, 5, 3), whole(n, 3), np.abs(floats(5)) + 1]


def bits_of(x: Array, bits: int, polar: bool) -> Array:
    """Integers as sums over bits, which count -1 for 0 where `polar`."""
    parts = [(x.astype(np.int64) >> k & 1) * (2 if polar else 1) - polar for k in range(bits)]
    return np.asarray(sum(part << k for k, part in enumerate(parts)))


def bitserial(x: Array, w: Array, unipolar: bool) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
    )
    return np.asarray(np.einsum("ncijyx,fcyx->nfij", windows[:, :, ::2, ::2], bits_of(w, 1, unipolar))).astype(np.int16)


def packed(x: Array) -> Array:
    words = [np.packbits((x >> k & 1).astype(np.uint8), axis=1) for k in range(2)]
    return np.stack(words, 2)


def largest(grads: Array, x: Array) -> Array:
    made = np.zeros_like(x)
    for b, c, i, j in np.ndindex(*grads.shape):
        window = x[b, c, i * 2 : i * 2 + 2, j * 2 : j * 2 + 2]
        y, k = np.unravel_index(window.argmax(), (2, 2))
        made[b, c, i * 2 + y, j * 2 + k] += grads[b, c, i, j]
    return made


def depthwise_gradient(w: Array, grads: Array) -> Array:
    made = np.zeros((len(grads), 6, 5, 3))
    for i, j, y, x in np.ndindex(*grads.shape[1:3], *w.shape[:2]):
        row, column = i * 2 + y - 1, j * 2 + x - 1
        if 0 <= row < 6 and 0 <= column < 5:
            made[:, row, column] += (grads[:, i, j].reshape(-1, 3, 2) * w[y, x]).sum(-1)
    return made


def depthwise_weight(x: Array, grads: Array) -> Array:
    made = np.zeros((3, 3, 3, 2))
    for i, j, y, k in np.ndindex(*grads.shape[1:3], 3, 3):
        row, column = i * 2 + y - 1, j * 2 + k - 1
        if 0 <= row < 6 and 0 <= column < 5:
            made[y, k] += (grads[:, i, j].reshape(-1, 3, 2) * x[:, row, column, :, None]).sum(0)
    return made


CALLS: dict[str, Call] = {
    "lstm": Call(topi.nn.lstm, lstm, weights(4)),
    "lstm backwards, of another layout": Call(
        lambda x, wi, wh: topi.lstm(x, wi, wh, reverse=True, weight_layout="OGIF"),
        lambda x, wi, wh: lstm(x[::-1], wi, wh, layout="OGIF"),
        weights(4),
    ),
    "lstm with all it may have": Call(
        topi.lstm,
        lambda x, wi, wh, bi, bh, h, c, p, i, f, o: lstm(x, wi, wh, bi + bh, (h, c), p, (i, f, o)),
        lambda n: [
            *weights(4)(n)[:2],
            *[floats(8, 4), floats(8), floats(8) + 1, floats(BATCH, 4), floats(BATCH, 2), floats(4, 2)],
            *[floats(BATCH, 2) + k for k in range(3)],
        ],
    ),
    "gru": Call(topi.gru, gru, weights(3)),
    "gru with biases": Call(topi.gru, gru, weights(3, (3 * HIDDEN,), (3 * HIDDEN,))),
    **{
        f"deformable convolution in {groups}": Call(
            lambda x, m, w, g=groups: topi.nn.deformable_conv2d_nchw(x, m, w, 2, 1, 1, g, 1, None),
            lambda x, m, w, g=groups: deformed(x, m, w, g),
            partial(moved_images, groups),
        )
        for groups in (1, 2)
    },
    "deformable convolution of channels behind": Call(
        lambda x, m, w: topi.nn.deformable_conv2d_nhwc(x, m, w, 2, 1),
        lambda x, m, w: np.moveaxis(
            deformed(np.moveaxis(x, 3, 1), np.moveaxis(m, 3, 1), w.transpose(3, 2, 0, 1), 1), 1, 3
        ),
        lambda n: [floats(2, 5, 6, 4), floats(2, 3, 3, 18), floats(3, 3, 4, 6)],
    ),
    **{
        f"crops, {method}": Call(
            lambda x, b, i, method=method: topi.image.crop_and_resize(x, b, i, (3, 4), "NCHW", method, 7.0),
            lambda x, b, i, method=method: cropped(x, b, i, (3, 4), method),
            boxes_of_images,
        )
        for method in ("bilinear", "nearest_neighbor")
    },
    **{
        f"samples, {method}, {padding}, {corners}": Call(
            lambda x, g, how=(method, "NCHW", padding, corners): topi.image.grid_sample(x, g, *how),
            lambda x, g, how=(method, padding, corners): sampled(x, g, *how),
            places,
        )
        for method, padding, corners in (
            ("bilinear", "zeros", True),
            ("bilinear", "border", False),
            ("nearest", "zeros", False),
            ("nearest", "border", True),
            ("bilinear", "reflection", True),
            ("bicubic", "zeros", False),
            ("bicubic", "reflection", False),
        )
    },
    "dilations": Call(
        lambda x, f: topi.image.dilation2d_nchw(x, f, 2, (1, 1), (2, 1)),
        dilated,
        lambda n: [floats(2, 3, 7, 8), floats(3, 3, 3)],
    ),
    "samples of volumes": Call(
        lambda x, g: topi.image.grid_sample(x, g, "bilinear", "NCDHW", "border", False),
        lambda x, g: sampled(x, g, "bilinear", "border", False),
        lambda n: [floats(2, 3, 4, 5, 3), floats(2, 3, 2, 3, 2)],
    ),
    "affine grids": Call(
        lambda m: topi.image.affine_grid(m, (3, 4)),
        lambda m: np.einsum(
            "ndk,khw->ndhw", m, [*np.meshgrid(np.linspace(-1, 1, 4), np.linspace(-1, 1, 3)), np.ones((3, 4))]
        ),
        lambda n: [floats(2, 2, 3)],
    ),
    "crops of channels behind": Call(
        lambda x, b, i: topi.image.crop_and_resize(x, b, i, (1, 4), "NHWC", extrapolation_value=7.0),
        lambda x, b, i: np.moveaxis(cropped(np.moveaxis(x, 3, 1), b, i, (1, 4), "bilinear"), 1, 3),
        lambda n: [np.moveaxis(boxes_of_images(n)[0], 1, 3).copy(), *boxes_of_images(n)[1:]],
    ),
    **{
        f"correlation {word}": Call(
            lambda x, y, multiply=multiply: topi.nn.correlation_nchw(x, y, 3, 2, 2, 2, 2, multiply),
            lambda x, y, multiply=multiply: correlated(x, y, 3, 2, 2, multiply),
            lambda n: [floats(2, 3, 7, 8), floats(2, 3, 7, 8) + 0.5],
        )
        for word, multiply in (("of products", True), ("of differences", False))
    },
    **{
        f"likelihood, {how}": Call(
            lambda x, at, w, how=how: topi.nn.nll_loss(x, at, w, how, 3),
            lambda x, at, w, how=how: likelihood(x, at, w, how),
            targets,
        )
        for how in ("none", "sum", "mean")
    },
    "likelihood of one": Call(
        lambda x, at, w: topi.nn.nll_loss(x, at, w, "sum"),
        lambda x, at, w: -x[at] * w[at],
        lambda n: [floats(5), np.array(2), np.abs(floats(5))],
    ),
    "words of bits": Call(
        lambda x: topi.nn.bitpack(x, 2, 1, 2, "uint8"), packed, lambda n: [whole(3, 16, 2, high=4).astype(np.uint8)]
    ),
    **{
        f"bitserial product {word}": Call(
            lambda x, w, polar=polar: topi.nn.bitserial_dense(x, w, 2, 1, "uint8", "int16", polar),
            lambda x, w, polar=polar: (x.astype(np.int64) @ bits_of(w, 1, polar).T).astype(np.int16),
            lambda n: [whole(3, 24, high=4).astype(np.uint8), whole(5, 24, high=2).astype(np.uint8)],
        )
        for word, polar in (("of signs", True), ("of bits", False))
    },
    "bitserial convolution": Call(
        lambda x, w: topi.nn.bitserial_conv2d_nchw(x, w, 2, 1, 2, 1, "uint8"),
        lambda x, w: bitserial(x, w, True),
        lambda n: [whole(2, 8, 5, 6, high=4).astype(np.uint8), whole(3, 8, 3, 3, high=2).astype(np.uint8)],
    ),
    "bitserial convolution of channels behind": Call(
        lambda x, w: topi.nn.bitserial_conv2d_nhwc(x, w, 2, 1, 2, 1, "uint8", unipolar=False),
        lambda x, w: bitserial(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), False).transpose(0, 2, 3, 1),
        lambda n: [whole(2, 5, 6, 8, high=4).astype(np.uint8), whole(3, 3, 8, 3, high=2).astype(np.uint8)],
    ),
    "gradient of a largest element": Call(
        lambda g, x: topi.nn.pool_grad(g, x, 2, 2, 0, "max"),
        largest,
        lambda n: [floats(2, 3, 2, 3), floats(2, 3, 4, 6)],
    ),
    "gradient of a mean": Call(
        lambda g, x: topi.nn.pool_grad(g, x, [2, 2], [2, 2], [0, 0, 0, 0], "avg"),
        lambda g, x: g.repeat(2, 2).repeat(2, 3) / 4,
        lambda n: [floats(2, 3, 2, 3), floats(2, 3, 4, 6)],
    ),
    "gradient of depthwise data": Call(
        lambda w, g: topi.nn.depthwise_conv2d_backward_input_nhwc(w, g, (2, 3, 3, 6), (2, 6, 5, 3), 2, 1),
        depthwise_gradient,
        lambda n: [floats(3, 3, 3, 2), floats(2, 3, 3, 6)],
    ),
    "gradient of depthwise weights": Call(
        lambda x, g: topi.nn.depthwise_conv2d_backward_weight_nhwc(x, g, (2, 3, 3, 6), (3, 3, 3, 2), (2, 2), 1),
        depthwise_weight,
        lambda n: [floats(2, 6, 5, 3), floats(2, 3, 3, 6)],
    ),
}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", 5)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", ["interpreter", on_opencl, on_cuda])
@pytest.mark.parametrize("name", CALLS)
def test_calls_on_devices(name: str, target: str) -> None:
    check(CALLS[name], target, 5)


EMPTY: dict[str, Callable[[Array], Array]] = {
    "lstm": lambda a: a[:, :0] if a.ndim == 3 else a,
    "gru": lambda a: a[:, :0] if a.ndim == 3 else a,
    "correlation of products": lambda a: a[:0],
    "likelihood, sum": lambda a: a[:0] if a.ndim > 1 else a,
    "deformable convolution in 1": lambda a: a[:0] if len(a) == 2 else a,
}
"""How inputs of calls lose their batch."""


@pytest.mark.parametrize("name", EMPTY)
def test_calls_without_elements(name: str) -> None:
    arrays = [EMPTY[name](a) for a in CALLS[name].inputs(5)]
    check(CALLS[name]._replace(inputs=lambda _: arrays), "llvm", 0)


def test_targets_that_are_no_class_are_found_when_the_kernel_runs() -> None:
    with pytest.raises(KernelError):
        ran(CALLS["likelihood, sum"], "llvm", [floats(1, 5, 3), np.full((1, 3), 5, np.int32), floats(5)])


X, W = te.placeholder((4, 3, 5), name="X"), te.placeholder((8, 5), name="W")
D: Any = te.placeholder((1, 2, 8, 8), name="D")
V: Any = te.placeholder((1, 3, 4, 4, 4), name="V")
BYTES = te.placeholder((2, 12), "uint8", name="bytes")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lstm of other weights": (lambda: topi.lstm(X, W, W), "weights \\[4 \\* hidden, inputs\\]"),
    "lstm of another layout": (
        lambda: topi.lstm(X, W, te.placeholder((8, 2)), weight_layout="IFG"),
        "the letters IFGO",
    ),
    "lstm of another bias": (lambda: topi.lstm(X, W, te.placeholder((8, 2)), te.placeholder((7,))), r"shape \(8,\)"),
    "lstm without a function": (
        lambda: topi.lstm(X, W, te.placeholder((8, 2)), f_act=3),  # type: ignore[arg-type]
        "takes a function for f_act, got int 3",
    ),
    "gru of other weights": (lambda: topi.gru(X, W, W), "weights \\[3 \\* hidden, inputs\\]"),
    "offsets of another shape": (lambda: topi.deformable_conv2d_nchw(D, D, D), "wants offsets"),
    "a grid of another layout": (lambda: topi.grid_sample(D, D, layout="NHWC"), "border or reflection"),
    "a shape of another channel": (lambda: topi.dilation2d_nchw(D, V, 1, 0, 1), "shapes .channels, rows, columns."),
    "a shape that does not fit": (
        lambda: topi.dilation2d_nchw(D, te.placeholder((2, 9, 1)), 1, 0, 1),
        "which fits into the image",
    ),
    "cubes of volumes": (lambda: topi.grid_sample(V, V, "bicubic", "NCDHW"), r"\(of NCHW\) bicubic"),
    "a grid of three coordinates": (
        lambda: topi.grid_sample(D, te.placeholder((1, 3, 2, 2))),
        r"a grid \[n, 2, \.\.\.\]",
    ),
    "a grid of one row": (lambda: topi.affine_grid(te.placeholder((1, 2, 3)), (1, 4)), "of at least 2"),
    "a grid of no matrices": (lambda: topi.affine_grid(X, (2, 2)), r"matrices \[n, 2, 3\]"),
    "crops of another layout": (
        lambda: topi.crop_and_resize(D, W, te.placeholder((8,), "int32"), (2, 2), "CHWN"),
        "NCHW or NHWC",
    ),
    "crops without boxes": (
        lambda: topi.crop_and_resize(D, W, te.placeholder((8,), "int32"), (2, 2)),
        "a size of two numbers",
    ),
    "an even window": (lambda: topi.correlation_nchw(D, D, 2, 1, 1, 1, 0, True), "an odd kernel_size"),
    "targets of floats": (lambda: topi.nll_loss(X, X, W), "integers \\[n, ...\\]"),
    "another word": (
        lambda: topi.nll_loss(te.placeholder((4, 5)), te.placeholder((4,), "int32"), te.placeholder((5,)), "max"),
        "none, mean or sum",
    ),
    "words that are not full": (lambda: topi.bitpack(BYTES, 1, 1, 1, "uint8"), "a multiple of 8 along axis 1"),
    "a gradient of another shape": (
        lambda: topi.pool_grad(D, D, 2, 2, 0, "max"),
        "the gradient of the result has its shape",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DefinitionError, match=message):
        call()
