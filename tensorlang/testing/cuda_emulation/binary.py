"""How the arguments of a launch lie in memory: the structures of `runtime.h`."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError

_MAP_MAGIC = 0x7E4504A9
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_MOST_BOX = 256
POINTER, INTEGER, REAL, TENSOR_MAP = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """An argument for a parameter that is a tensor map (128 bytes, by value): boxes of an array for bulk copies.

    `box` is the extent of a box along each dimension of the array, outermost first as in its shape. `swizzle`: how
    wide the pattern is in which a box lies in shared memory, in bytes: 0, 32, 64 or 128.
    """

    array: npt.NDArray[Any]
    box: tuple[int, ...]
    swizzle: int = 0

    def __post_init__(self) -> None:
        rank, inner = self.array.ndim, self.box[-1] * self.array.itemsize if self.box else 0
        if len(self.box) != rank or not 1 <= rank <= 5:
            raise ArgumentError(f"a tensor map takes a box of the array's rank, 1 to 5; got {self.box} for rank {rank}")
        if self.swizzle not in _SWIZZLES:
            raise ArgumentError(f"boxes are swizzled by 0, 32, 64 or 128 bytes, got {self.swizzle}")
        if not all(1 <= extent <= _MOST_BOX for extent in self.box) or inner % 16:
            raise ArgumentError(f"a box has sides of 1 to 256 and rows of a multiple of 16 bytes, got {self.box}")
        if self.swizzle and inner > self.swizzle:
            raise ArgumentError(f"rows of a box swizzled by {self.swizzle} bytes have at most as many, got {inner}")
        if any(stride % 16 for stride in self.array.strides[:-1]):
            raise ArgumentError(f"rows of an array behind a tensor map lie 16 bytes apart, got {self.array.strides}")


class Dim3(ctypes.Structure):
    """Blocks or threads along x, y, z."""

    _fields_: ClassVar = [(axis, ctypes.c_uint32) for axis in "xyz"]


class Settings(ctypes.Structure):
    """What a launch is, but for its arguments."""

    _fields_: ClassVar = [
        ("grid", Dim3),
        ("block", Dim3),
        ("seed", ctypes.c_uint64),
        ("dynamic_bytes", ctypes.c_uint64),
        ("dynamic_alignment", ctypes.c_uint64),
        ("late", ctypes.c_int),
    ]


class Array(ctypes.Structure):
    """An array of the caller."""

    _fields_: ClassVar = [
        ("host", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("item_bytes", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("device", ctypes.c_void_p),
    ]


class _Map(ctypes.Structure):
    _fields_: ClassVar = [
        *((name, ctypes.c_uint32) for name in ("magic", "rank", "item_bytes", "swizzle")),
        ("base", ctypes.c_void_p),
        *((name, ctypes.c_uint32 * 5) for name in ("extent", "box", "stride")),
        ("unused", ctypes.c_uint32 * 11),
    ]


class Value(ctypes.Structure):
    """An argument, of one of the four kinds."""

    _fields_: ClassVar = [
        ("kind", ctypes.c_int32),
        ("array", ctypes.c_int32),
        ("integer", ctypes.c_int64),
        ("real", ctypes.c_double),
        ("map", _Map),
    ]


def encoded(map: TensorMap) -> _Map:
    """Return a tensor map as the machine reads it: innermost dimension first, strides in bytes."""
    made = _Map(_MAP_MAGIC, map.array.ndim, map.array.itemsize, _SWIZZLES[map.swizzle])
    rows = zip(reversed(map.array.shape), reversed(map.box), reversed(map.array.strides), strict=True)
    for k, (extent, box, stride) in enumerate(rows):
        made.extent[k], made.box[k], made.stride[k] = extent, box, stride
    return made


def whole(array: np.ndarray[Any, Any]) -> None:
    """Raise ArgumentError unless an array is one piece of memory that can be written."""
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ArgumentError("arrays of an emulated kernel are contiguous and can be written; pass array.copy()")
