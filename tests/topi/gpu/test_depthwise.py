"""Depthwise convolutions on a GPU, in both layouts."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.target.cuda.sass import disassembler
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule
from tests.topi.gpu.device_runs import TARGETS, compiled, each_architecture, needs_nvrtc, rules_for, scheduled
from tests.topi.images import relu_of

targets = pytest.mark.parametrize("target", TARGETS)


def layer(
    n: int,
    c: Any,
    size: tuple[int, int],
    k: int,
    last: bool = False,
    m: int = 1,
    dtype: str = "float32",
    **options: Any,
) -> list[Tensor]:
    """Images, weights and their depthwise convolution."""
    data = te.placeholder((n, *size, c) if last else (n, c, *size), dtype, name="data")
    weight = te.placeholder((k, k, c, m) if last else (c, m, k, k), dtype, name="weight")
    function = topi.depthwise_conv2d_nhwc if last else topi.depthwise_conv2d_nchw
    return [data, weight, function(data, weight, **options)]


@pytest.mark.sampled(3)
@pytest.mark.covering(1)
@targets
@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((2, 3, (9, 11), 3), {"padding": 1}),
        ((2, 5, (9, 11), 3, True), {"padding": 1}),
        ((1, 3, (8, 9), 5, False, 2), {"stride": 2, "padding": 2}),
        ((1, 35, (6, 5), 3, True, 2), {"dilation": 2, "padding": "SAME"}),
        ((2, 8, (9, 11), 3, True), {"stride": 2, "padding": 1}),
        ((1, 24, (5, 6), 3, True), {"padding": (0, 1, 2, 0), "dtype": "float16"}),
    ],
)
def test_values(args: tuple[Any, ...], options: dict[str, Any], target: str) -> None:
    tensors = layer(*args, **options)
    s = topi.schedule(tensors[-1], rules_for(target), tuned=False)
    check_schedule(s, tensors, targets=(target,))


@pytest.mark.sampled(1)
@targets
def test_what_follows_is_computed_in_the_tile(target: str) -> None:
    data, weight, conv = layer(1, 4, (6, 7), 3, padding=1)
    bias = te.placeholder((4,), name="bias")
    out = relu_of(conv, bias)
    s = topi.schedule(out, rules_for(target), tuned=False)
    assert s.state.stages["depthwise_conv2d"].storage.scope == "local"
    check_schedule(s, [data, weight, bias, out], targets=(target,))


def test_a_symbolic_number_of_channels() -> None:
    tensors = layer(1, te.var("c"), (5, 6), 3, True, padding=1)
    check_schedule(scheduled(tensors[-1]), tensors, {"c": 9}, targets=("interpreter",))


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_channels_that_lie_together_are_moved_together(dtype: str) -> None:
    tensors = layer(16, 96, (28, 28), 3, True, dtype=dtype, padding=1)
    kernel: Any = tensorlang.build(scheduled(tensors[-1]), tensors, target="cuda -arch=sm_80")
    if disassembler() is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm")
    found = set(re.findall(r"\b(?:LD|ST)G[.A-Z0-9]*", kernel.source("sass")))
    assert found == {"LDG.E.128.CONSTANT", "STG.E.128"} and kernel.report.clean


@pytest.mark.sampled(1)
@needs_nvrtc
@pytest.mark.covering(1)
@each_architecture
@pytest.mark.parametrize("last", [False, True])
def test_no_kernel_spills(last: bool, arch: str) -> None:
    *inputs, out = layer(1, 32, (112, 112), 3, last, padding=1)
    for text, report in compiled(out, *inputs, archs=[arch]):
        assert report.registers <= 64 and ("__shared__" in text) == (not last)
