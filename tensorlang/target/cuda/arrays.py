"""Whatever a user passes as an array, as CuPy sees it: device memory without a copy, host memory as NumPy."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, shown
from tensorlang.nd import NDArray
from tensorlang.runtime.arrays import UnusableArray, as_array, protocol_errors
from tensorlang.runtime.device_arrays import CheckedArray, DeviceArray
from tensorlang.runtime.foreign import Described, current_stream, described
from tensorlang.target.cuda import runtime

_CUDA, _CUDA_MANAGED = 2, 13
"""DLPack's numbers for the memory of a CUDA device, and for memory that moves to where it is used."""


@dataclass(frozen=True, slots=True)
class Held:
    """A CuPy array over a user's memory; `stream` is the one that its library works on now, if that is not CuPy's."""

    array: Any
    stream: Any = None


def device_or_host_array(value: Any) -> CheckedArray:
    """Return a view of an array-like without copying; TypeError says why that cannot be done.

    Device memory: CuPy arrays, and tensors that speak DLPack or have a `__cuda_array_interface__` (PyTorch, Numba);
    those whose type has DLPack's table of C functions, as PyTorch's has, are asked by these. All else is for
    `as_array`, which knows memory of the CPU.
    """
    if isinstance(value, NDArray) and value.device.kind == "cuda":
        value = value.data
    if isinstance(value, np.ndarray):
        return as_array(value)
    with protocol_errors(value):
        return _by_protocol(value)


def _by_protocol(value: Any) -> CheckedArray:
    """What another library's array says of itself."""
    if hasattr(value, "is_neg"):
        _refuse_views(value)
    if (told := described(value)) is not None and told.device_type in (_CUDA, _CUDA_MANAGED) and told.dtype:
        return _of_description(value, told)
    kind = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else None
    if kind not in (_CUDA, _CUDA_MANAGED) and not hasattr(value, "__cuda_array_interface__"):
        return as_array(value)
    cupy = runtime.cupy()
    if isinstance(value, cupy.ndarray):
        return _described(Held(value))
    if type(value).__module__.partition(".")[0] == "torch":
        return _described(_from_torch(value))
    if kind is None:
        return _described(Held(cupy.asarray(value)))
    return _described(Held(cupy.from_dlpack(value)))


def _refuse_views(tensor: Any) -> None:
    """UnusableArray for a tensor of PyTorch whose values are not those in memory, or whose gradient would be lost."""
    torch = sys.modules.get("torch")
    if tensor.requires_grad and (torch is None or torch.is_grad_enabled()):
        raise UnusableArray("it requires a gradient; pass tensor.detach(), or call inside torch.no_grad()")
    if tensor.is_neg():
        raise UnusableArray("it is a view of the negatives of what is in memory; pass tensor.resolve_neg()")


def _of_description(value: Any, told: Described) -> DeviceArray:
    """A CuPy array over memory that its library has described."""
    cupy, dtype = runtime.cupy(), stored_dtype(told.dtype)
    strides = tuple(s * dtype.itemsize for s in told.strides)
    reach = sum((e - 1) * s for e, s in zip(told.shape, strides, strict=True)) + dtype.itemsize
    memory = cupy.cuda.UnownedMemory(told.address, reach, value, told.device)
    array = cupy.ndarray(told.shape, dtype, cupy.cuda.MemoryPointer(memory, 0), strides)
    stream = current_stream(type(value), told.device_type, told.device)
    held = Held(array, None if stream is None else foreign_stream(stream))
    return DeviceArray(held, "cuda", dtype, told.shape, strides, ("cuda", told.device), told.address)


def _from_torch(tensor: Any) -> Held:
    """A tensor's memory, with PyTorch's current stream; what CuPy lacks (bfloat16, float8) goes as its bits.

    For a PyTorch without the table of C functions, and for types made of its tensors.
    """
    torch = sys.modules["torch"]
    stream = foreign_stream(torch.cuda.current_stream(tensor.device).cuda_stream)
    held = dtypes.TABLE.get(str(tensor.dtype).removeprefix("torch."))
    bits = held if held is not None and held.is_extension else None
    with runtime.cupy().cuda.Device(tensor.device.index), stream:
        viewed = tensor.view(getattr(torch, f"int{bits.bits}")) if bits else tensor
        array = runtime.cupy().from_dlpack(viewed)
    return Held(array.view(np.dtype(bits.bits_dtype)) if bits else array, stream)


@dataclass(frozen=True, slots=True)
class _ForeignStream:
    """A stream of another library, by CUDA's protocol for them."""

    pointer: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.pointer


def foreign_stream(pointer: int) -> Any:
    """A stream of another library as CuPy's."""
    return runtime.cupy().cuda.Stream.from_external(_ForeignStream(pointer))


def as_stream(stream: Any) -> Any:
    """A stream that was given, as CuPy's; ArgumentError for what is none."""
    if hasattr(stream, "ptr"):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        return runtime.cupy().cuda.Stream.from_external(stream)
    if hasattr(stream, "cuda_stream"):
        return foreign_stream(stream.cuda_stream)
    raise ArgumentError(f"expected a CUDA stream, as cupy.cuda.Stream() makes one, got {shown(stream)}")


def _described(held: Held) -> DeviceArray:
    array = held.array
    memory = ("cuda", int(array.device.id))
    return DeviceArray(held, "cuda", array.dtype, array.shape, array.strides, memory, int(array.data.ptr))


def device_number(array: DeviceArray) -> int:
    """The device that an array is on."""
    number: int = array.value.array.device.id
    return number


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """What CuPy keeps an array of a dtype as: bfloat16 and float8 are their bits there."""
    held = dtypes.info(dtype)
    return np.dtype(held.bits_dtype) if held.is_extension else held.numpy


@contextlib.contextmanager
def on(device: int, stream: Any) -> Iterator[None]:
    """Make a device and a stream those that CuPy works on."""
    with runtime.cupy().cuda.Device(device), stream:
        yield
