"""Arrays in classic te's dress: NDArray is an array that knows its device, of NumPy on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.names import lookup
from tensorlang.runtime import memory
from tensorlang.runtime.capsules import capsule_of
from tensorlang.runtime.device_memory import DeviceMemory, device_memory
from tensorlang.runtime.memory import aligned_empty

_CPU = "cpu"


_OTHERS = ("aocl", "aocl_sw_emu", "ext_dev", "hexagon", "metal", "rocm", "sdaccel", "vulkan", "webgpu")
"""Kinds of devices that classic programs ask for and skip where there is none."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device by kind and number: the CPU, or a device of target cuda or opencl."""

    kind: str = _CPU
    device_id: int = 0

    @property
    def exist(self) -> bool:
        """Whether this machine has the device."""
        if self.kind in _OTHERS:
            return False
        return 0 <= self.device_id < (1 if self.kind == _CPU else _memory(self).count())

    def sync(self) -> None:
        """Return when all kernels have finished that were called; on the CPU they have when their call returns."""
        if self.kind != _CPU:
            _memory(self).synchronize(self.device_id)

    def __str__(self) -> str:
        return f"{self.kind}({self.device_id})"


def device(dev_type: str, dev_id: int = 0) -> Device:
    """Return the device of a target kind (`llvm`, `cpu`, `interpreter`, `cuda`, `opencl`) by its number.

    OpenCL devices are numbered GPUs first. Whether the machine has the device is `.exist`: False for kinds that classic
    te has and tensorlang has not (`metal`, `vulkan`, ...). Raises TargetError for another kind.
    """
    from tensorlang.target.kinds import KINDS, capabilities  # declares intrinsics, which te alone does not need

    kind = str(dev_type).split()[0] if str(dev_type).split() else ""
    if kind in _OTHERS:
        return Device(kind, dev_id)
    if kind not in (_CPU, *KINDS):
        raise TargetError(f"unknown device {dev_type!r}; known: {', '.join((_CPU, *KINDS))}")
    return Device(kind if capabilities(kind).device else _CPU, dev_id)


def cpu(dev_id: int = 0) -> Device:
    """Return the CPU."""
    return Device(_CPU, dev_id)


def cuda(dev_id: int = 0) -> Device:
    """Return a CUDA device by its number; `.exist` says whether this machine has it, a driver and CuPy."""
    return Device("cuda", dev_id)


gpu = cuda


def opencl(dev_id: int = 0) -> Device:
    """Return an OpenCL device by its number, GPUs first."""
    return Device("opencl", dev_id)


def enabled(target: str) -> bool:
    """Whether this machine runs kernels of a target: it has a device of that kind, and what drives it.

    False also for the targets of classic te that tensorlang does not have.
    """
    try:
        return device(target).exist
    except TargetError:
        return False


class NDArray:
    """A contiguous array of a fixed shape and dtype; kernels read and write it in place.

    `data` is the memory: a NumPy array, on a GPU one of CuPy or pyopencl. `dtype` is that of its elements where it is
    not what `data` says: device libraries hold bfloat16 and float8 as their bits.
    """

    __slots__ = ("_dtype", "data", "device")

    def __init__(self, data: Any, device: Device | None = None, dtype: str | None = None) -> None:
        self.data = data
        self.device = device or Device()
        self._dtype = dtypes.canonical(data.dtype) if dtype is None else dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> str:
        return self._dtype

    @property
    def ndim(self) -> int:
        return len(self.data.shape)

    @property
    def _values(self) -> npt.NDArray[Any]:
        """The elements in CPU memory: the memory itself, or a copy of a GPU's."""
        if isinstance(self.data, np.ndarray):
            return self.data
        return _memory(self.device).copy_out(self.data).view(dtypes.info(self._dtype).numpy)

    @property
    def ctx(self) -> Device:
        """The device, by its older name."""
        return self.device

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array, once the kernels called before have finished."""
        return self._values.copy() if isinstance(self.data, np.ndarray) else self._values

    def asnumpy(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array (the older name of `numpy`)."""
        return self.numpy()

    def copyfrom(self, source: Any) -> NDArray:
        """Fill from an array of the same shape, converting its dtype; ArgumentError if the shapes differ.

        Unsigned integers as wide as the elements of a bfloat16 or float8 array are their bits.
        """
        values = self._from_bits(np.asarray(source))
        if values.shape != self.shape:
            raise ArgumentError(f"copyfrom needs shape {self.shape}, got {values.shape}")
        if isinstance(self.data, np.ndarray):
            self.data[...] = values.astype(self.data.dtype)
        else:
            element = dtypes.info(self._dtype).numpy
            _memory(self.device).copy_in(self.data, np.ascontiguousarray(values.astype(element)))
        return self

    def _from_bits(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values as they are, or those that bits stand for: NumPy has no name for bfloat16 and float8."""
        info = dtypes.info(self._dtype)
        are_bits = info.is_extension and values.dtype == np.dtype(f"uint{info.bits}")
        return values.view(info.numpy) if are_bits else values

    def copyto(self, target: NDArray | Device, mem_scope: str | None = None) -> NDArray:
        """Copy into another NDArray of the same shape and dtype, or to a device; return the copy."""
        if mem_scope not in (None, "global"):
            raise ArgumentError(f"copyto: mem_scope must be global, got {mem_scope!r}")
        if isinstance(target, Device):
            return array(self._values, target)
        if not isinstance(target, NDArray):
            raise ArgumentError(f"copyto needs an NDArray or a device, got {type(target).__name__}")
        if target.dtype != self.dtype:
            raise ArgumentError(f"copyto needs dtype {self.dtype}, got {target.dtype}")
        return target.copyfrom(self._values)

    def same_as(self, other: object) -> bool:
        """Whether both are the same memory."""
        return isinstance(other, NDArray) and self.data is other.data

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        values = self._values
        values[index] = np.asarray(value)
        if values is not self.data:
            self.copyfrom(values)

    def __len__(self) -> int:
        return len(self.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = self._values
        same = dtype is None or np.dtype(dtype) == values.dtype
        if copy is False and (not same or values is not self.data):
            raise ValueError(f"an NDArray of {self.dtype} on {self.device} cannot be seen as {dtype} without a copy")
        return values.copy() if copy and same else values if same else values.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return capsule_of(self.data, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.data.__dlpack_device__()
        return int(kind), int(number)

    def __repr__(self) -> str:
        return f"<tensorlang.nd.NDArray shape={self.shape}, {self.device}>\n{self._values!r}"


def empty(
    shape: int | tuple[int, ...] | list[int],
    dtype: Any = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """Return an array of undefined values, aligned to 64 bytes; TargetError when there is no such device."""
    if mem_scope not in (None, "global"):
        raise ArgumentError(f"empty: mem_scope must be global, got {mem_scope!r}")
    extents = tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)
    if any(n < 0 for n in extents):
        raise ArgumentError(f"empty: extents are zero or more, got {extents}")
    element = dtypes.info(dtypes.canonical(dtype)).numpy
    if device is not None and device.kind != _CPU:
        made = _memory(device).empty(extents, element, device.device_id)
        return NDArray(made, device, dtypes.canonical(element))
    return NDArray(aligned_empty(extents, element), device)


def empty_together(like: Iterable[Any]) -> list[npt.NDArray[Any]]:
    """NumPy arrays of undefined values in one block, each of the shape and dtype of something: a tensor, an array.

    For what is read once in a call, as weights and caches are: the system is asked for huge pages for a block of 2 MB
    and more, also where each array alone is smaller. Each begins at a multiple of 64 bytes. ArgumentError for shapes
    that are not fixed.

    Example:
        >>> import numpy as np
        >>> codes, scales = empty_together([np.ones((2, 3), np.uint8), np.ones(5, np.float16)])
        >>> codes.shape, scales.dtype
        ((2, 3), dtype('float16'))
    """
    wanted = list[tuple[tuple[int, ...], Any]]()
    for each in like:
        extents = [str(extent) for extent in each.shape]
        if not all(map(str.isdecimal, extents)):
            raise ArgumentError(
                f"empty_together: {each} has no fixed shape; make an array of the sizes that it is to have"
            )
        wanted.append((tuple(map(int, extents)), dtypes.info(dtypes.canonical(each.dtype)).numpy))
    return memory.empty_together(wanted)


def array(arr: Any, device: Device | None = None, mem_scope: str | None = None) -> NDArray:
    """Return a copy of an array, or of anything NumPy makes one of, aligned to 64 bytes."""
    values = np.asarray(arr)
    made = empty(values.shape, values.dtype, device, mem_scope)
    return made.copyfrom(values)


def numpyasarray(np_data: npt.NDArray[Any]) -> NDArray:
    """Return a view of a NumPy array, without a copy."""
    return NDArray(np_data)


def _memory(device: Device) -> DeviceMemory:
    """The memory of a GPU's kind."""
    return device_memory(device.kind)


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
