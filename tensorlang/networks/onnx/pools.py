"""Pooling over any number of spatial dimensions, and what images do not need: windows of volumes, norms of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorlang import te
from tensorlang.ir.expr import Expr, binary
from tensorlang.networks.network import Array
from tensorlang.networks.node import Node
from tensorlang.te.operation import Tensor


def windows_of(
    extents: Sequence[int],
    kernel: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
    sides: Sequence[int],
    up: bool,
) -> list[int]:
    """How many windows there are along each dimension; `up`: also one that reaches beyond the padding at the end."""
    found = []
    for d, (n, k, s, g) in enumerate(zip(extents, kernel, steps, gaps, strict=True)):
        room = n + sides[d] + sides[d + len(extents)] - ((k - 1) * g + 1)
        count = (-(-room // s) if up else room // s) + 1
        found.append(count - (up and (count - 1) * s >= n + sides[d]))
    return found


def pooled(
    node: Node,
    kind: str,
    kernel: Sequence[int],
    steps: Sequence[int],
    gaps: Sequence[int],
    sides: Sequence[int],
    order: int = 2,
) -> Tensor:
    """The largest element of each window (`max`), the mean (`avg`), or the norm of some order (`lp`)."""
    data, (n, c, *extents) = node.tensor(0), node.shape(0)
    counts = windows_of(extents, kernel, steps, gaps, sides, bool(node.attrs.get("ceil_mode")))
    axes = [te.reduce_axis((0, k), f"k{d}") for d, k in enumerate(kernel)]

    def element(b: Expr, channel: Expr, *at: Expr) -> Expr:
        places, inside = [], []
        for d, (v, k) in enumerate(zip(at, axes, strict=True)):
            place = v * steps[d] + k * gaps[d] - sides[d]
            places.append(place)
            inside += [binary("ge", place, 0), binary("lt", place, extents[d])]
        value = data(b, channel, *places)
        if kind == "max":
            return te.max(value, axis=axes, where=te.all(*inside))
        value = value if kind == "avg" else te.abs(value) if order == 1 else _power(te.abs(value), order)
        return te.sum(value, axis=axes, where=te.all(*inside))

    made = node.compute((n, c, *counts), element)
    if kind == "max":
        return made
    if kind == "avg":
        counted = bool(node.attrs.get("count_include_pad"))
        shares = node.weights.tensor(_shares(counts, extents, kernel, steps, gaps, sides, counted).astype(data.dtype))
        return _again(node, made, lambda x, *at: x * shares(*at))
    root = 1 / order
    return _again(node, made, lambda x, *at: te.sqrt(x) if order == 2 else te.pow(x, te.const(root, x.dtype)))


def _power(x: Expr, order: int) -> Expr:
    return x * x if order == 2 else te.pow(x, te.const(order, x.dtype))


def _again(node: Node, made: Tensor, function: Callable[..., Expr]) -> Tensor:
    whole: Tensor = te.compute(made.shape, lambda *i: function(made(*i), *i[2:]), name=f"{node.stage}_out")
    return whole


def _shares(
    counts: Sequence[int], extents: Sequence[int], kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int],
    sides: Sequence[int], counted: bool,
) -> Array:  # fmt: skip
    """One over the number of elements in each window, with those of the padding where these are counted."""
    whole = np.ones((), np.float64)
    for d, (count, n, k, s, g) in enumerate(zip(counts, extents, kernel, steps, gaps, strict=True)):
        places = np.arange(count)[:, None] * s + np.arange(k) * g - sides[d]
        low, high = (-sides[d], n + sides[d + len(extents)]) if counted else (0, n)
        inside = ((places >= low) & (places < high)).sum(1)
        whole = np.multiply.outer(whole, inside)
    return np.asarray(1 / np.maximum(whole, 1))


def global_norm(node: Node) -> Tensor:
    """The norm of all elements of a channel."""
    data, shape, order = node.tensor(0), node.shape(0), int(node.attrs.get("p", 2))
    axes = [te.reduce_axis((0, n), f"k{d}") for d, n in enumerate(shape[2:])]

    def element(b: Expr, channel: Expr, *at: Expr) -> Expr:
        value = te.abs(data(b, channel, *axes))
        return te.sum(value if order == 1 else _power(value, order), axis=axes)

    made = node.compute((*shape[:2], *[1] * len(axes)), element)
    return _again(node, made, lambda x, *at: te.pow(x, te.const(1 / order, x.dtype)) if order != 2 else te.sqrt(x))


def slices(data: Tensor, shape: Sequence[int], groups: int, depth: tuple[int, int, int, int, int], name: str) -> Tensor:
    """A volume as images, channels last: one for each window along the depth, with the slices that it sees as channels.

    `shape` is [batch, channels, depth, height, width]; `depth`: windows, slices of each, step, gap and padding.
    """
    (n, c, d, h, w), (count, taps, step, gap, side) = shape, depth
    each = c // groups

    def element(image: Expr, y: Expr, x: Expr, channel: Expr) -> Expr:
        part, own = binary("floordiv", channel, each), binary("floormod", channel, each)
        group, tap = binary("floordiv", part, taps), binary("floormod", part, taps)
        at = binary("floormod", image, count) * step + tap * gap - side
        value = data(binary("floordiv", image, count), group * each + own, at, y, x)
        inside = te.all(binary("ge", at, 0), binary("lt", at, d))
        return te.if_then_else(inside, value, te.const(0, value.dtype))

    made: Tensor = te.compute((n * count, h, w, c * taps), element, name=name)
    return made
