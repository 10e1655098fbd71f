"""What `tensorlang.nd` asks of the devices of a target kind: arrays, and copies of them."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class DeviceMemory(Protocol):
    """Arrays on the devices of a kind, which are numbered from 0, for `tensorlang.nd`. Each kind has one `MEMORY`.

    A missing package is a MissingDependency, a missing device a TargetError.
    """

    def count(self) -> int:
        """How many devices this machine has; 0 where the package or its driver is missing."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], number: int) -> Any:
        """A new array, uninitialised: of that dtype, or of the bits of it where the library has no such dtype."""

    def copy_in(self, array: Any, values: npt.NDArray[Any]) -> None:
        """Fill an array from a NumPy array of its shape and size of element."""

    def copy_out(self, array: Any) -> npt.NDArray[Any]:
        """The elements as a new NumPy array of the dtype that the array has there."""

    def synchronize(self, number: int) -> None:
        """Return when the device has done all that it was told through `tensorlang`."""


def device_memory(kind: str) -> DeviceMemory:
    """The memory of the devices of a target kind, `opencl` or `cuda`."""
    found: DeviceMemory = importlib.import_module(f"tensorlang.target.{kind}.memory").MEMORY
    return found
