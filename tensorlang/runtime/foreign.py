"""Tensors of other libraries as their own C functions describe them: no copy, no capsule, no view.

For code in Python, which asks by ctypes; `exchange` has the tables for machine code.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from tensorlang.runtime import exchange


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class Described(NamedTuple):
    """What a library says of a tensor: DLPack's number for the kind of its device, and that device's own.

    `strides` count elements; `dtype` is "" for one that tensorlang has not.
    """

    device_type: int
    device: int
    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def described(value: Any) -> Described | None:
    """Ask a tensor's library; None where its very type has no functions in C that we know, or they refuse it."""
    kind: type = type(value)
    describe, _ = _functions(kind)
    if describe is None:
        return None
    told = _Tensor()
    try:
        if describe(value, ctypes.addressof(told)):
            return None
    except Exception:  # what its Python says of such a tensor is for people to read
        return None
    rank, given = told.rank, told.strides
    shape = tuple(told.shape[:rank])
    strides = tuple(given[:rank]) if given else tuple(math.prod(shape[axis + 1 :]) for axis in range(rank))
    dtype = exchange.KEYS.get(told.dtype, "")
    return Described(told.device_type, told.device, (told.data or 0) + told.offset, dtype, shape, strides)


def current_stream(kind: type, device_type: int, device: int) -> int | None:
    """The stream that the library of a tensor type works on now on a device; None where it does not tell."""
    _, ask = _functions(kind)
    held = ctypes.c_void_p()
    if ask is None or ask(device_type, device, ctypes.addressof(held)):
        return None
    return held.value or 0


@cache
def _functions(kind: type) -> tuple[Callable[..., int] | None, Callable[..., int] | None]:
    """What describes a tensor of a type, and what tells the stream of a device; None for what there is not."""
    table = exchange.table_of(kind)
    if table is None:
        return None, None
    describe = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
    current = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)
    return (
        describe(table.describe) if table.describe else None,
        current(table.stream) if table.stream else None,
    )
