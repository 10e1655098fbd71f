"""What every contestant is given: the workload, and its arrays on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from benchmarks.gpu.operators import Array
from benchmarks.gpu.workloads import Workload
from tensorlang import nd


@dataclass(frozen=True, slots=True)
class Given:
    """A workload and its inputs by name."""

    workload: Workload
    arrays: Mapping[str, nd.NDArray]

    def data(self, *names: str) -> list[Any]:
        """The device library's own objects for inputs."""
        return [self.arrays[name].data for name in names]


Builder: TypeAlias = Callable[[Given], Mapping[str, Callable[[], Any]]]
"""Prepares calls that return the result, by a word that tells them apart (empty where there is one)."""


def values(result: Any) -> Array:
    """The elements of what a call has returned, in float32: of NumPy, tensorlang, CuPy, or PyTorch."""
    if isinstance(result, nd.NDArray):
        return np.asarray(result.numpy(), np.float32)
    if hasattr(result, "detach"):
        found: Array = result.detach().float().cpu().numpy()
        return found
    taken = np.asarray(result.get() if hasattr(result, "get") else result)
    return np.asarray(taken.view(ml_dtypes.bfloat16) if taken.dtype == np.uint16 else taken, np.float32)
