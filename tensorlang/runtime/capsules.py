"""DLPack's capsules of dtypes that NumPy's own `from_dlpack` and `__dlpack__` lack: bfloat16, and floats of 8 bits."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.runtime.exchange import KEYS, key_of

Array = npt.NDArray[Any]
_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    """DLTensor. The dtype is one number: code, bits and lanes."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _Held:
    """The memory of a capsule, which stays its owner as long as an array looks at it."""

    def __init__(self, capsule: object, interface: dict[str, Any]) -> None:
        self._capsule = capsule
        self.__array_interface__ = interface


def array_of(value: Any) -> Array | None:
    """The memory of another library's array of a dtype that NumPy's `from_dlpack` lacks; None for other dtypes."""
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = value.__dlpack__()
    tensor, is_writable = _described(capsule)
    held = dtypes.TABLE.get(KEYS.get(tensor.dtype, ""))
    if held is None or not held.is_extension:
        return None
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(held.bytes * n for n in tensor.strides[: tensor.ndim]) if tensor.strides else None
    interface = {
        "data": ((tensor.data or 0) + tensor.byte_offset, not is_writable),
        "shape": shape,
        "strides": strides,
        "typestr": f"|u{held.bytes}" if held.bytes == 1 else f"<u{held.bytes}",
        "version": 3,
    }
    return np.asarray(_Held(capsule, interface)).view(held.numpy)


def capsule_of(array: Array, **options: Any) -> object:
    """DLPack's capsule of an array: NumPy's, of bits alone with the dtype written in where NumPy has none for it."""
    held = dtypes.TABLE[dtypes.canonical(array.dtype)]
    if not held.is_extension:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{held.bytes}").__dlpack__(**options)
    tensor, _ = _described(capsule)
    tensor.dtype = key_of(held)
    return capsule


def _described(capsule: object) -> tuple[_Tensor, bool]:
    """What a capsule holds, and whether it may be written to: older ones do not say."""
    wanted = (ctypes.py_object, ctypes.c_char_p)
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, *wanted)(("PyCapsule_IsValid", ctypes.pythonapi))
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, *wanted)(("PyCapsule_GetPointer", ctypes.pythonapi))
    if is_valid(capsule, _VERSIONED):
        managed = _Versioned.from_address(pointer(capsule, _VERSIONED))
        return managed.tensor, not managed.flags & _READ_ONLY
    return _Tensor.from_address(pointer(capsule, _PLAIN)), False
