"""Depthwise convolutions on a GPU, in both layouts."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import te, topi
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tests.topi.gpu.device_runs import TARGETS, compiled, needs_nvrtc
from tests.topi.images import relu_of

targets = pytest.mark.parametrize("target", TARGETS)


def layer(
    n: int, c: int, size: tuple[int, int], k: int, last: bool = False, m: int = 1, **options: Any
) -> list[Tensor]:
    """Images, weights and their depthwise convolution."""
    data = te.placeholder((n, *size, c) if last else (n, c, *size), name="data")
    weight = te.placeholder((k, k, c, m) if last else (c, m, k, k), name="weight")
    function = topi.depthwise_conv2d_nhwc if last else topi.depthwise_conv2d_nchw
    return [data, weight, function(data, weight, **options)]


@targets
@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((2, 3, (9, 11), 3), {"padding": 1}),
        ((2, 5, (9, 11), 3, True), {"padding": 1}),
        ((1, 3, (8, 9), 5, False, 2), {"stride": 2, "padding": 2}),
        ((1, 35, (6, 5), 3, True, 2), {"dilation": 2, "padding": "SAME"}),
    ],
)
def test_values(args: tuple[Any, ...], options: dict[str, Any], target: str) -> None:
    tensors = layer(*args, **options)
    s = topi.schedule(tensors[-1], "opencl" if target == "opencl" else "cuda -arch=sm_80", tuned=False)
    check_schedule(s, tensors, targets=(target,))


@targets
def test_what_follows_is_computed_in_the_tile(target: str) -> None:
    data, weight, conv = layer(1, 4, (6, 7), 3, padding=1)
    bias = te.placeholder((4,), name="bias")
    out = relu_of(conv, bias)
    s = topi.schedule(out, "opencl" if target == "opencl" else "cuda -arch=sm_80", tuned=False)
    assert s.state.stages["depthwise_conv2d"].scope == "local"
    check_schedule(s, [data, weight, bias, out], targets=(target,))


@needs_nvrtc
@pytest.mark.parametrize("last", [False, True])
def test_no_kernel_spills(last: bool) -> None:
    *inputs, out = layer(1, 32, (112, 112), 3, last, padding=1)
    for text, report in compiled(out, *inputs):
        assert report.registers <= 64 and ("__shared__" in text) == (not last)
