"""Sums over windows that users declare, under any names: the library's forms, and the right values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.schedules.windows import window_sum
from tensorlang.te.operation import ComputeOp, Tensor
from tests.topi.images import given, run
from tests.topi.programs import Array, Given

Case = tuple[Tensor, list[Given], Array]


def _taps(image: Array, k: int, rows: int, columns: int, dilation: int = 1, stride: int = 1) -> Array:
    """Of images [..., y, x], the elements of windows: [k, k, ..., rows, columns]."""
    steps = range(0, k * dilation, dilation)
    high, wide = (rows - 1) * stride + 1, (columns - 1) * stride + 1
    return np.stack([[image[..., v : v + high : stride, u : u + wide : stride] for u in steps] for v in steps])


def _dilated(channels_last: bool) -> Case:
    """Without a batch, two pixels between taps; or channels along memory, and weights in an order of their own."""
    D, W = given("D", 6, 13, 20), given("W", 40, 3, 3, 6)
    q, v, u = (te.reduce_axis((0, n), w) for n, w in ((6, "q"), (3, "v"), (3, "u")))
    wanted = np.einsum("vucyx,fvuc->fyx", _taps(D[1], 3, 9, 16, 2), W[1])

    def term(f: Any, y: Any, x: Any) -> Any:
        return te.sum(D[0][q, y + v * 2, x + u * 2] * W[0][f, v, u, q], axis=[q, v, u])

    if channels_last:
        made = te.compute((9, 16, 40), lambda y, x, f: term(f, y, x), name="out")
        return made, [D, W], wanted.transpose(1, 2, 0)
    return te.compute((40, 9, 16), term, name="out"), [D, W], wanted


def _max_plus() -> Case:
    """Another sum, along rows only."""
    D, W = given("D", 4, 30), given("W", 20, 4, 5)
    c, t = te.reduce_axis((0, 4), "c"), te.reduce_axis((0, 5), "t")
    made = te.compute((20, 26), lambda f, p: te.max(D[0][c, p + t] + W[0][f, c, t], axis=[c, t]), name="out")
    parts = np.lib.stride_tricks.sliding_window_view(D[1], 5, axis=1)
    return made, [D, W], (parts[None] + W[1][:, :, None]).max((1, 3))


def _filtered() -> Case:
    """One image, one filter."""
    D, W = given("D", 14, 37), given("W", 3, 3)
    v, u = te.reduce_axis((0, 3), "v"), te.reduce_axis((0, 3), "u")
    made = te.compute((12, 35), lambda y, x: te.sum(D[0][y + v, x + u] * W[0][v, u], axis=[v, u]), name="out")
    return made, [D, W], np.einsum("vuyx,vu->yx", _taps(D[1], 3, 12, 35), W[1])


def _pooled() -> Case:
    """Sums of every other window, channels along memory, behind them a choice."""
    D = given("D", 13, 11, 24)
    v, u = te.reduce_axis((0, 3), "v"), te.reduce_axis((0, 3), "u")
    sums = te.compute((6, 5, 24), lambda y, x, c: te.sum(D[0][2 * y + v, 2 * x + u, c], axis=[v, u]), name="sums")
    made = te.compute((6, 5, 24), lambda y, x, c: te.max(sums[y, x, c], 1.0), name="out")
    total = _taps(D[1].transpose(2, 0, 1), 3, 6, 5, stride=2).sum((0, 1))
    return made, [D], np.maximum(total.transpose(1, 2, 0), 1)


def _chosen() -> Case:
    """Zeros around the image are a choice in the terms, which vectors of pixels make at once."""
    D, W = given("D", 4, 7, 9), given("W", 20, 4, 3, 3)
    q, v, u = (te.reduce_axis((0, n), w) for n, w in ((4, "q"), (3, "v"), (3, "u")))

    def term(f: Any, y: Any, x: Any) -> Any:
        high, wide = y + v - 1, x + u - 1
        inside = te.all(high >= 0, high < 7, wide >= 0, wide < 9)
        return te.sum(te.if_then_else(inside, D[0][q, high, wide], 0.0) * W[0][f, q, v, u], axis=[q, v, u])

    wanted = np.einsum("vucyx,fcvu->fyx", _taps(np.pad(D[1], ((0, 0), (1, 1), (1, 1))), 3, 7, 9), W[1])
    return te.compute((20, 7, 9), term, name="out"), [D, W], wanted


CASES: dict[str, tuple[Callable[[], Case], str]] = {
    "dilated": (lambda: _dilated(False), "windows.pixels"),
    "channels last": (lambda: _dilated(True), "windows.pixels"),
    "max-plus": (_max_plus, "windows.pixels"),
    "filter": (_filtered, "windows.rows"),
    "pooling": (_pooled, "windows.pixels"),
    "choice": (_chosen, "reuse."),
}


@pytest.mark.parametrize("name", CASES)
def test_windows_of_users(name: str) -> None:
    make, form = CASES[name]
    output, inputs, wanted = make()
    assert any(note.form.startswith(form) for note in topi.schedule(output, tuned=False).forms)
    np.testing.assert_array_equal(run(output, *inputs), wanted)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_by_hand_is_scheduled_as_the_library_s(groups: int) -> None:
    """Step by step, whatever its axes are called."""
    data, weight = given("data", 1, 8, 10, 12)[0], given("weight", 64, 8 // groups, 3, 3)[0]
    c, h, w = (te.reduce_axis((0, n), word) for n, word in ((8 // groups, "c"), (3, "h"), (3, "w")))

    def term(b: Any, o: Any, i: Any, j: Any) -> Any:
        channel = c.var if groups == 1 else te.floordiv(o, 64 // groups) * (8 // groups) + c
        return te.sum(data[b, channel, i + h, j + w] * weight[o, c, h, w], axis=[c, h, w])

    mine = te.compute((1, 64, 8, 10), term, name="mine")
    steps = [
        [type(step) for step in topi.schedule(made, tuned=False).trace.steps]
        for made in (mine, topi.conv2d(data, weight, groups=groups))
    ]
    assert steps[0] == steps[1]


def test_what_slides_is_told_from_what_does_not() -> None:
    def found(output: Tensor) -> object:
        op = te.create_schedule(output.op).program[output.op.name]
        assert isinstance(op, ComputeOp)
        windows = window_sum(op)
        return windows and (windows.outputs, windows.y, windows.x, windows.inputs, windows.features)

    A, B = given("A", 9, 9)[0], given("B", 9, 9)[0]
    v, u = te.reduce_axis((0, 3), "v"), te.reduce_axis((0, 3), "u")
    images, filters = given("images", 2, 6, 9, 9)[0], given("filters", 12, 1, 3, 3)[0]
    assert found(topi.matmul(A, B)) is None
    assert (
        found(te.compute((7, 7), lambda y, x: te.sum(A[y + v, x + u] * B[y + v, x + u], axis=[v, u]), name="o")) is None
    )
    assert found(te.compute((7, 7), lambda y, x: te.sum(A[y + v, y + u], axis=[v, u]), name="o")) is None
    assert found(topi.depthwise_conv2d_nchw(images, given("each", 6, 2, 3, 3)[0])) == (("ff",), "yy", "xx", (), 2)
    assert found(topi.conv2d(images, filters, groups=6)) == (("ff",), "yy", "xx", ("rc",), 2)
    assert found(topi.max_pool2d(images, 3)) == ((), "yy", "xx", (), 1)
