"""Whatever a user passes as an array, as a NumPy array over the same memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import TensorlangError
from tensorlang.nd import NDArray
from tensorlang.runtime.capsules import array_of

Array: TypeAlias = np.ndarray[Any, Any]

_CPU = 1
"""DLPack's number for CPU memory."""


def as_array(value: Any) -> Array:
    """Return a view of an array-like without copying, exactly an ndarray; TypeError says why that cannot be done.

    Taken: NumPy arrays, NDArrays, objects with `__array_interface__`, and CPU tensors that speak DLPack (PyTorch, JAX).
    Masked arrays are not: a kernel would read what the mask hides. What subclasses say of themselves is not believed.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise UnusableArray(
            "expected an array, got a masked one, whose mask a kernel does not see; pass a.filled(value), or a.data if "
            "the mask does not matter"
        )
    if isinstance(value, np.ndarray):
        return np.ndarray.view(value, np.ndarray)
    if isinstance(value, NDArray):
        if not isinstance(value.data, np.ndarray):
            raise UnusableArray(
                f"expected an array in CPU memory, got one on {value.device}; pass what its .numpy() returns"
            )
        return as_array(value.data)
    with protocol_errors(value):
        return _by_protocol(value)


@contextmanager
def protocol_errors(value: Any) -> Iterator[None]:
    """What another library's array raises when it is asked for its memory becomes an UnusableArray that names it."""
    try:
        yield
    except (UnusableArray, TensorlangError):
        raise
    except Exception as error:
        said = f"{error}" or type(error).__name__
        raise UnusableArray(f"this {type(value).__name__} cannot be used without a copy: {said}") from error


class UnusableArray(TypeError):
    """An argument that is no array over memory that a kernel can use: why not, and what to pass."""


def _by_protocol(value: Any) -> Array:
    """The memory of another library's array, by `__array_interface__` or DLPack."""
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if not hasattr(value, "__dlpack__"):
        raise UnusableArray(f"expected an array, got {type(value).__name__}; {_made(value)}")
    device = int(value.__dlpack_device__()[0]) if hasattr(value, "__dlpack_device__") else _CPU
    if device != _CPU:
        raise UnusableArray(f"expected an array in CPU memory, got one on DLPack device type {device}; copy it over")
    if type(value).__module__.split(".")[0] == "torch":
        return _from_torch(value)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):  # older NumPys raise the latter for a dtype that they lack
        found = array_of(value)
        if found is None:
            raise
        return found


def _made(value: Any) -> str:
    """How to make an array in the place of what is none."""
    return "np.empty makes one" if value is None else "np.asarray makes one"


def plain_arrays(values: Sequence[Any]) -> list[Array] | None:
    """Views of all values as plain ndarrays; None when they all are already, or one cannot be, or is a number."""
    if all(type(v) is np.ndarray for v in values) or any(isinstance(v, np.generic) for v in values):
        return None
    try:
        return [as_array(v) for v in values]
    except TypeError:
        return None


def _from_torch(tensor: Any) -> Array:
    """The tensor's own view: NumPy takes an older tensor's DLPack capsule as read-only, and lacks some dtypes."""
    if tensor.requires_grad:
        if sys.modules["torch"].is_grad_enabled():
            raise TypeError("it requires a gradient; pass tensor.detach(), or call inside torch.no_grad()")
        tensor = tensor.detach()
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
