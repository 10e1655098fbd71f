"""Arrays in the memory of a device, as the checks of a call see them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.runtime.arrays import Array

_STORED_AS = {d.name: (d.bits_dtype,) for d in dtypes.TABLE.values() if d.is_extension} | {"bool": ("uint8", "int8")}
"""dtypes that libraries of devices lack -> what holds their bits there."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What NumPy's `flags` tell of an array, as far as calls ask."""

    c_contiguous: bool
    aligned: bool = True
    writeable: bool = True


@dataclass(frozen=True, slots=True)
class DeviceArray:
    """An array that a device library made: `value` is its object, the rest what it says of itself.

    `kind` is the target kind that can use it; `strides` are bytes. `memory` tells one piece of memory from another, and
    `start` is the byte in it where the first element lies.
    """

    value: Any
    kind: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    memory: Hashable
    start: int

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def flags(self) -> Flags:
        """Whether the elements lie side by side, and each at a multiple of its size."""
        step, packed = self.dtype.itemsize, True
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            packed = packed and (extent == 1 or stride == step)
            step *= extent
        return Flags(packed or not self.nbytes, self.start % self.dtype.alignment == 0)


CheckedArray: TypeAlias = Array | DeviceArray


def holds(array: CheckedArray, dtype: np.dtype[Any]) -> bool:
    """Whether the elements are of a dtype, or are its bits where the array's library has no such dtype."""
    if array.dtype == dtype:
        return True
    return isinstance(array, DeviceArray) and array.dtype.name in _STORED_AS.get(dtype.name, ())


def share_memory(a: CheckedArray, b: CheckedArray) -> bool:
    """Whether two contiguous arrays have a byte in common."""
    if isinstance(a, DeviceArray) and isinstance(b, DeviceArray):
        if a.memory != b.memory or not a.nbytes or not b.nbytes:
            return False
        return a.start < b.start + b.nbytes and b.start < a.start + a.nbytes
    if isinstance(a, DeviceArray) or isinstance(b, DeviceArray):
        return False
    return np.may_share_memory(a, b)
