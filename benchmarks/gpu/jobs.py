"""What processes of their own do: measure a workload on the device, describe the device, compile a workload."""

from __future__ import annotations

import gc
import sys
from functools import cache
from typing import Any

from benchmarks.gpu.compiled import Resources, resources
from benchmarks.gpu.contest import Outcome, measure
from benchmarks.gpu.device import CudaDevice
from benchmarks.gpu.peers import LIBRARIES
from benchmarks.gpu.workloads import named
from tensorlang.target.cuda import runtime


@cache
def _device() -> CudaDevice:
    return CudaDevice()


def describe() -> dict[str, Any]:
    """What the device says of itself."""
    return _device().describe()


def measured(name: str, seconds: float) -> Outcome:
    """The figures of a workload, with the device's memory free again afterwards."""
    try:
        return measure(named(name), _device(), LIBRARIES, seconds)
    finally:
        gc.collect()
        runtime.cupy().get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


def compiled(name: str, architecture: str) -> list[Resources]:
    """What the kernels of a workload take on an architecture."""
    return resources(named(name), architecture)
