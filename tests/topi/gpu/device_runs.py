"""Programs of the library under the rules for GPUs: run where there are threads, and compiled by NVRTC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, topi
from tensorlang.schedule import Schedule
from tensorlang.target.cuda.report import KernelReport
from tensorlang.te.operation import Tensor
from tests.device_targets import DEVICE_TARGETS as TARGETS
from tests.target.cuda.compiled import ARCHITECTURES, needs_nvrtc
from tests.topi.programs import Array, Given, close, shape_of

__all__ = [
    "TARGETS",
    "compiled",
    "each_architecture",
    "needs_nvrtc",
    "numbers",
    "rules_for",
    "run_on",
    "runs",
    "scheduled",
]

GPU = "cuda -arch=sm_80"
each_architecture = pytest.mark.parametrize("arch", ARCHITECTURES)


def rules_for(target: str) -> str:
    """The target whose rules schedule what runs on `target`: a device's own, an Ampere's for the interpreter."""
    return GPU if target == "interpreter" else target


def scheduled(*outputs: Tensor, arch: str = "sm_80") -> Schedule:
    """What the rules for GPUs make of outputs."""
    return topi.schedule(outputs, f"cuda -arch={arch}", tuned=False)


def run_on(target: str, output: Tensor, shape: Sequence[int], *inputs: Given) -> Array:
    """What the schedule of one output, whose shape that is, makes of arrays."""
    s = topi.schedule(output, rules_for(target), tuned=False)
    kernel = tensorlang.build(s, [*(tensor for tensor, _ in inputs), output], target=target)
    made = np.full(shape, 77, dtypes.info(output.dtype).numpy)
    kernel(*(array for _, array in inputs), made)
    return made


def runs(target: str, output: Tensor, wanted: Array, *inputs: Given) -> None:
    """Check that a schedule computes an array, which was made in float64."""
    close(run_on(target, output, wanted.shape, *inputs), wanted)


def numbers(tensor: Tensor) -> Array:
    """Small whole numbers, whose sums are exact."""
    rng, info = np.random.default_rng(7), dtypes.info(tensor.dtype)
    return rng.integers(0 if tensor.dtype == "uint8" else -3, 4, shape_of(tensor)).astype(info.numpy)


def compiled(output: Tensor, *inputs: Tensor, archs: Sequence[str] = ARCHITECTURES) -> list[tuple[str, KernelReport]]:
    """The kernels of a schedule for each architecture, none of which spills or has an array in local memory."""
    found: list[tuple[str, KernelReport]] = []
    for arch in archs:
        kernel: Any = tensorlang.build(scheduled(output, arch=arch), [*inputs, output], target=f"cuda -arch={arch}")
        report = kernel.report
        assert report.clean, report
        assert all(k.stack == 0 for k in report.kernels), report
        found += [(kernel.source("cuda"), k) for k in report.kernels]
    return found
