"""Whatever a user passes as an array, as a NumPy array over the same memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.nd import NDArray

Array: TypeAlias = np.ndarray[Any, Any]

_CPU = 1
"""DLPack's number for CPU memory."""


def as_array(value: Any) -> Array:
    """Return a view of an array-like without copying; TypeError says why that cannot be done.

    Taken: NumPy arrays, NDArrays, objects with `__array_interface__`, and CPU tensors that speak DLPack (PyTorch, JAX).
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, NDArray):
        if not isinstance(value.data, np.ndarray):
            raise TypeError(
                f"expected an array in CPU memory, got one on {value.device}; pass what its .numpy() returns"
            )
        return value.data
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        raise TypeError(f"expected an array, got {type(value).__name__}; np.asarray makes one")
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if device != _CPU:
        raise TypeError(f"expected an array in CPU memory, got one on DLPack device type {int(device)}; copy it over")
    try:
        return _from_torch(value) if type(value).__module__.split(".")[0] == "torch" else np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"this {type(value).__name__} cannot be used without a copy: {error}") from None


def plain_arrays(values: Sequence[Any]) -> list[Array] | None:
    """Views of all values as plain ndarrays; None when they all are already, or one cannot be."""
    if all(type(v) is np.ndarray for v in values):
        return None
    try:
        return [as_array(v).view(np.ndarray) for v in values]
    except TypeError:
        return None


def _from_torch(tensor: Any) -> Array:
    """The tensor's own view: NumPy takes an older tensor's DLPack capsule as read-only, and lacks some dtypes."""
    if tensor.requires_grad:
        raise TypeError("it requires a gradient; pass tensor.detach()")
    held = dtypes.TABLE.get(str(tensor.dtype).removeprefix("torch."))
    if held is not None and held.is_extension:
        bits = getattr(sys.modules["torch"], f"int{held.bits}")
        return _from_torch(tensor.view(bits)).view(held.numpy)
    view: Array = tensor.numpy()
    return view


def address(array: Array) -> int:
    """The address of an array's first element."""
    pointer: int = array.__array_interface__["data"][0]
    return pointer
