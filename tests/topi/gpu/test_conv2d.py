"""Convolutions on a GPU: layouts, windows and groups against the reference, and what NVRTC makes of common ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import config, te, topi
from tensorlang.schedule import Schedule
from tensorlang.schedules.gpu.convolution import ConvolutionTile, tile_of, windows_of
from tensorlang.schedules.windows import convolution
from tensorlang.target import parse
from tensorlang.te.operation import ComputeOp, Tensor
from tensorlang.testing import check_schedule
from tests.topi.gpu.device_runs import TARGETS, compiled, each_architecture, needs_nvrtc, rules_for, run_on, scheduled
from tests.topi.images import given, relu_of
from tests.topi.test_windows import CASES as WINDOWS
from tests.topi.test_windows import Case

targets = pytest.mark.parametrize("target", TARGETS)


def layer(n: int, c: int, size: tuple[int, int], o: int, k: int, layout: str = "NCHW", **options: Any) -> list[Tensor]:
    """Images, weights and their convolution."""
    groups = options.get("groups", 1)
    high, wide = size
    data = te.placeholder((n, c, high, wide) if layout == "NCHW" else (n, high, wide, c), name="data")
    weight = te.placeholder((o, c // groups, k, k) if layout == "NCHW" else (k, k, c // groups, o), name="weight")
    return [data, weight, topi.conv2d(data, weight, data_layout=layout, **options)]


def check(target: str, args: list[Tensor]) -> None:
    """Run the schedule of the last tensor, and compare with the reference."""
    s: Schedule = topi.schedule(args[-1], rules_for(target), tuned=False)
    check_schedule(s, args, targets=(target,))


def tile(args: list[Tensor]) -> ConvolutionTile:
    op = args[-1].op
    assert isinstance(op, ComputeOp)
    original = te.create_schedule(op).original[op.name]
    assert isinstance(original, ComputeOp)
    return tile_of(convolution(original), parse("cuda -arch=sm_80"))


CASES: dict[str, tuple[tuple[int, int, tuple[int, int], int, int], dict[str, Any]]] = {
    "padded": ((1, 5, (9, 10), 12, 3), {"padding": 1}),
    "channels last": ((2, 5, (9, 10), 12, 3), {"padding": 1, "layout": "NHWC"}),
    "strides": ((1, 4, (11, 10), 12, 3), {"strides": 2, "padding": 1}),
    "dilation": ((1, 4, (11, 12), 9, 3), {"dilation": 2, "padding": "SAME"}),
    "one by one": ((2, 16, (7, 7), 20, 1), {}),
    "groups": ((1, 8, (7, 7), 8, 3), {"groups": 2, "padding": 1}),
    "large windows": ((1, 3, (14, 15), 16, 5), {"strides": 2, "padding": 2}),
    "uneven padding": ((1, 3, (6, 7), 9, 3), {"padding": (0, 1, 2, 0)}),
}


@pytest.mark.sampled(2)
@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, target: str) -> None:
    sizes, options = CASES[case]
    check(target, layer(*sizes, **options))


def _by_channels() -> Case:
    """Windows over each channel, three pixels apart, axes in an order of their own."""
    D, W = given("D", 20, 33, 6), given("W", 3, 3, 6)
    v, u = te.reduce_axis((0, 3), "v"), te.reduce_axis((0, 3), "u")
    made = te.compute(
        (6, 31, 6),
        lambda y, x, q: te.sum(D[0][y * 3 + v, x + u, q] * W[0][v, u, q], axis=[v, u]),
        name="out",
    )
    windows = np.lib.stride_tricks.sliding_window_view(D[1], (3, 3), axis=(0, 1))[::3, :, :, :, :]
    return made, [D, W], np.einsum("yxqvu,vuq->yxq", windows, W[1])


USERS: dict[str, tuple[Callable[[], Case], str]] = {
    "dilated": (WINDOWS["dilated"][0], "windows.pixels"),
    "channels last": (WINDOWS["channels last"][0], "windows.pixels"),
    "by channels": (_by_channels, "windows.channels"),
}


@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize("name", USERS)
def test_windows_of_users(name: str, target: str) -> None:
    make, form = USERS[name]
    output, inputs, wanted = make()
    assert [note.form for note in scheduled(output).forms] == [form]
    np.testing.assert_array_equal(run_on(target, output, wanted.shape, *inputs), wanted)


@pytest.mark.sampled(1)
@targets
def test_blocks_of_channels(target: str) -> None:
    data, weight = te.placeholder((1, 2, 6, 7, 4), name="data"), te.placeholder((3, 2, 3, 3, 4, 8), name="weight")
    check(target, [data, weight, topi.conv2d_NCHWc(data, weight, padding=1)])


@pytest.mark.sampled(1)
@targets
def test_packed_weights(target: str) -> None:
    data, weight = te.placeholder((1, 3, 6, 7), name="data"), te.placeholder((2, 3, 3, 3, 8), name="weight")
    check(target, [data, weight, topi.conv2d(data, weight, padding=1, kernel_layout="OHWI8o", channels=13)])


@pytest.mark.sampled(1)
@targets
def test_what_follows_is_computed_in_the_tile(target: str) -> None:
    data, weight, conv = layer(1, 6, (6, 7), 10, 3, padding=1)
    bias = te.placeholder((10,), name="bias")
    out = relu_of(conv, bias)
    assert scheduled(out).state.stages["conv2d"].storage.scope == "local"
    check(target, [data, weight, bias, out])


def test_a_symbolic_number_of_images() -> None:
    data, weight = te.placeholder((te.var("n"), 3, 6, 6), name="data"), te.placeholder((10, 3, 3, 3), name="weight")
    out = topi.conv2d(data, weight, padding=1)
    check_schedule(scheduled(out), [data, weight, out], {"n": 2}, targets=("interpreter",))


def test_windows_are_read_off_the_definition() -> None:
    *_, out = layer(1, 3, (20, 21), 9, 5, strides=(2, 3), dilation=(1, 2), padding=(4, 3, 2, 1))
    op = te.create_schedule(out.op).original["conv2d"]
    assert isinstance(op, ComputeOp)
    found = windows_of(convolution(op))
    assert (found.kernel, found.stride, found.reach, found.before) == ((5, 5), (2, 3), (5, 9), (4, 3))
    assert found.pixels(4, 2) == 11 * 12


def test_tiles_suit_the_image() -> None:
    even, small = tile(layer(1, 64, (56, 56), 64, 3, padding=1)), tile(layer(1, 512, (7, 7), 512, 3, padding=1))
    assert 64 <= even.threads <= 256 and even.held >= 16
    assert small.rows.extent <= 8 and small.columns.extent <= 8
    assert even.depth * even.stages <= 64


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.covering(1)
@each_architecture
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 64, (7, 7), 128, 3), {"padding": 1}),
        ((1, 256, (56, 56), 64, 1), {}),
        ((1, 64, (56, 56), 64, 3), {"padding": 1, "layout": "NHWC"}),
    ],
)
def test_no_kernel_spills(
    sizes: tuple[int, int, tuple[int, int], int, int], options: dict[str, Any], arch: str
) -> None:
    *inputs, out = layer(*sizes, **options)
    with config.override(check=False):
        found = compiled(out, *inputs, archs=[arch])
    for text, report in found:
        assert "__shared__" in text and report.registers <= 255
