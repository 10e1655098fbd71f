"""Tensor maps: what the tensor memory accelerator of compute capability 9.0 must know of an array to copy tiles of it.

The limits are those of `cuTensorMapEncodeTiled` (CUDA Driver API, "Tensor Map Object Management").
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, InternalError, TargetError
from tensorlang.target.c_source.source import BoxMap
from tensorlang.target.cuda.runtime import driver

_TYPES = {
    "bool": 0,
    "uint8": 0,
    "int8": 0,
    "uint16": 1,
    "int16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "float8_e4m3fn": 0,
    "float8_e5m2": 0,
}
"""CUtensorMapDataType; bytes of all kinds are copied as unsigned ones."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
"""Span of the swizzle in bytes -> CUtensorMapSwizzle."""
_NOT_INTERLEAVED, _L2_128_BYTES, _ZEROS_OUTSIDE = 0, 2, 0
_MOST_DIMENSIONS, _MOST_BOX, _ALIGNMENT = 5, 256, 16
_MOST_EXTENT, _MOST_STRIDE = 2**32, 2**40
_BYTES, _OWN_ALIGNMENT = 128, 64
_KEPT = 256

OPAQUE = np.dtype([("opaque", "<u8", (16,))])
"""A tensor map as the argument of a kernel: `const __grid_constant__`, by value."""


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Tiles of an array in device memory; dimensions are outermost first, as in a shape.

    `pointer` is the address of the first element, `strides` are bytes, `box` the elements of a tile, and `swizzle` the
    bytes of the rows in which 16-byte chunks change places: 0, 32, 64 or 128.
    """

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128


def check_box(dtype: str, box: tuple[int, ...], swizzle: int) -> None:
    """Raise TargetError unless tiles of this shape can be copied."""
    inner = box[-1] * dtypes.info(dtype).bytes if box else 0
    why = ""
    if not 1 <= len(box) <= _MOST_DIMENSIONS:
        why = f"it has {len(box)} dimensions; 1 to {_MOST_DIMENSIONS} are possible"
    elif swizzle not in _SWIZZLES:
        why = f"the swizzle is {swizzle} bytes; it is one of {', '.join(map(str, _SWIZZLES))}"
    elif not all(1 <= side <= _MOST_BOX for side in box):
        why = f"a side is 1 to {_MOST_BOX} elements long"
    elif inner % _ALIGNMENT:
        why = f"its rows are {inner} bytes, and must be a multiple of {_ALIGNMENT}"
    elif swizzle and inner > swizzle:
        why = f"its rows are {inner} bytes, and a swizzle of {swizzle} bytes takes rows of at most that"
    if why:
        raise TargetError(f"a tile of {'x'.join(map(str, box))} {dtype} cannot be copied by a tensor map: {why}")


def check_array(tiles: TensorMap) -> None:
    """Raise ArgumentError unless the array lies in memory as the copies need it."""
    size = dtypes.info(tiles.dtype).bytes
    wrong = [s for s in tiles.strides[:-1] if s % _ALIGNMENT or not 0 < s < _MOST_STRIDE]
    why = ""
    if tiles.pointer % _ALIGNMENT:
        why = f"it begins at address {tiles.pointer:#x}, and must at a multiple of {_ALIGNMENT} bytes; copy it"
    elif tiles.strides[-1:] != (size,):
        why = f"neighbours of its last dimension are {tiles.strides[-1]} bytes apart, and must be {size}"
    elif wrong:
        text = f"its strides {tiles.strides} must be multiples of {_ALIGNMENT} bytes below 2**40, the last one excepted"
        why = f"{text}; pad its rows"
    elif not all(1 <= extent <= _MOST_EXTENT for extent in tiles.shape):
        why = "every extent is 1 to 2**32"
    if why:
        raise ArgumentError(f"an array of shape {tiles.shape} and dtype {tiles.dtype} cannot be copied in tiles: {why}")


def map_of(array: Any, boxes: BoxMap) -> Any:
    """The map of an array of CuPy, as `encoded` gives it; of an array without elements, which nothing is copied from,
    one that says nothing.
    """
    shape = tuple(int(extent) for extent in array.shape)
    if 0 in shape:
        return np.zeros((), OPAQUE)[()]
    size = dtypes.info(boxes.dtype).bytes
    strides = tuple(size * prod(shape[k + 1 :]) for k in range(len(shape)))
    return encoded(TensorMap(int(array.data.ptr), boxes.dtype, shape, strides, boxes.box, boxes.span))


def _data_type(dtype: str) -> int:
    """What the elements are copied as: by their own type, or as integers as wide."""
    return _TYPES.get(dtype, _TYPES[f"uint{dtypes.info(dtype).bits}"])


@lru_cache(maxsize=_KEPT)
def encoded(tiles: TensorMap) -> Any:
    """The map as a scalar of dtype OPAQUE, which CuPy passes to a kernel by value.

    It holds the address, so an array that has moved needs another one. ArgumentError or TargetError say what does not
    fit, TargetError that there is no driver to ask, or one that does not know of maps.
    """
    if not len(tiles.shape) == len(tiles.strides) == len(tiles.box):
        raise InternalError(f"shape, strides and box of a tensor map have different lengths: {tiles}")
    check_box(tiles.dtype, tiles.box, tiles.swizzle)
    check_array(tiles)
    room = np.zeros(_BYTES + _OWN_ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _OWN_ALIGNMENT
    rank = len(tiles.shape)
    encode = getattr(driver(), "cuTensorMapEncodeTiled", None)
    if encode is None:
        raise TargetError(
            "this CUDA driver has no tensor maps (cuTensorMapEncodeTiled), which bulk copies need; update it to one of "
            "CUDA 12, or leave bulk_copy out of the schedule"
        )
    status = encode(
        ctypes.c_void_p(room.ctypes.data + start),
        _data_type(tiles.dtype),
        rank,
        ctypes.c_void_p(tiles.pointer),
        (ctypes.c_uint64 * rank)(*reversed(tiles.shape)),
        (ctypes.c_uint64 * max(1, rank - 1))(*reversed(tiles.strides[:-1])),
        (ctypes.c_uint32 * rank)(*reversed(tiles.box)),
        (ctypes.c_uint32 * rank)(*(1 for _ in tiles.box)),
        _NOT_INTERLEAVED,
        _SWIZZLES[tiles.swizzle],
        _L2_128_BYTES,
        _ZEROS_OUTSIDE,
    )
    if status:
        raise InternalError(f"cuTensorMapEncodeTiled answers {status} to {tiles}")
    return room[start : start + _BYTES].copy().view(OPAQUE)[0]
