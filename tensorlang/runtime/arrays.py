"""Whatever a user passes as an array, as a NumPy array over the same memory."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from tensorlang.nd import NDArray

Array: TypeAlias = np.ndarray[Any, Any]

_CPU = 1
"""DLPack's number for CPU memory."""


def as_array(value: Any) -> Array:
    """Return a view of an array-like without copying; TypeError says why that cannot be done.

    Taken: NumPy arrays, objects with `__array_interface__`, and CPU tensors that speak DLPack (PyTorch, JAX).
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, NDArray):
        return value.data
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        raise TypeError(f"expected an array, got {type(value).__name__}; np.asarray makes one")
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if device != _CPU:
        raise TypeError(f"expected an array in CPU memory, got one on DLPack device type {int(device)}; copy it over")
    try:
        return _from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"this {type(value).__name__} cannot be used without a copy: {error}") from None


def _from_dlpack(value: Any) -> Array:
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        # NumPy's DLPack reader does not know bfloat16: take the same bytes as integers.
        import importlib

        bits = value.view(importlib.import_module("torch").int16)
        return np.from_dlpack(bits).view(ml_dtypes.bfloat16)
    return np.from_dlpack(value)


def address(array: Array) -> int:
    """The address of an array's first element."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer
