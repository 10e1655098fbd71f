"""Arrays in classic te's dress: NDArray is a NumPy array that knows its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.names import lookup

_ALIGNMENT = 64
_CPU_KINDS = ("cpu", "llvm", "interpreter")


@dataclass(frozen=True, slots=True)
class Device:
    """A device by kind and number. The CPU is the one device there is."""

    kind: str = "cpu"
    device_id: int = 0

    @property
    def exist(self) -> bool:
        """Whether this machine has the device."""
        return self.device_id == 0

    def sync(self) -> None:
        """Return at once: kernels have finished when their call returns."""

    def __str__(self) -> str:
        return f"{self.kind}({self.device_id})"


def device(dev_type: str, dev_id: int = 0) -> Device:
    """Return the device of a target kind (`llvm`, `cpu`, `interpreter`); TargetError for any other."""
    kind = str(dev_type).split()[0] if str(dev_type).split() else ""
    if kind not in _CPU_KINDS:
        raise TargetError(f"unknown device {dev_type!r}; known: {', '.join(_CPU_KINDS)}")
    return Device("cpu", dev_id)


def cpu(dev_id: int = 0) -> Device:
    """Return the CPU."""
    return Device("cpu", dev_id)


class NDArray:
    """A contiguous array of a fixed shape and dtype; kernels read and write it in place. `data` is the memory."""

    __slots__ = ("data", "device")

    def __init__(self, data: npt.NDArray[Any], device: Device | None = None) -> None:
        self.data = data
        self.device = device or Device()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def dtype(self) -> str:
        return dtypes.canonical(self.data.dtype)

    @property
    def ndim(self) -> int:
        return self.data.ndim

    @property
    def ctx(self) -> Device:
        """The device, by its older name."""
        return self.device

    def numpy(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array."""
        return self.data.copy()

    def asnumpy(self) -> npt.NDArray[Any]:
        """Return a copy as a NumPy array (the older name of `numpy`)."""
        return self.data.copy()

    def copyfrom(self, source: Any) -> NDArray:
        """Fill from an array of the same shape, converting its dtype; ArgumentError if the shapes differ."""
        values = np.asarray(source)
        if values.shape != self.shape:
            raise ArgumentError(f"copyfrom needs shape {self.shape}, got {values.shape}")
        self.data[...] = values.astype(self.data.dtype)
        return self

    def copyto(self, target: NDArray | Device, mem_scope: str | None = None) -> NDArray:
        """Copy into another NDArray of the same shape and dtype, or to a device; return the copy."""
        if mem_scope not in (None, "global"):
            raise ArgumentError(f"copyto: mem_scope must be global, got {mem_scope!r}")
        if isinstance(target, Device):
            return array(self.data, target)
        if not isinstance(target, NDArray):
            raise ArgumentError(f"copyto needs an NDArray or a device, got {type(target).__name__}")
        if target.dtype != self.dtype:
            raise ArgumentError(f"copyto needs dtype {self.dtype}, got {target.dtype}")
        return target.copyfrom(self.data)

    def same_as(self, other: object) -> bool:
        """Whether both are the same memory."""
        return isinstance(other, NDArray) and self.data is other.data

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.data[index] = np.asarray(value)

    def __len__(self) -> int:
        return len(self.data)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        same = dtype is None or np.dtype(dtype) == self.data.dtype
        if copy is False and not same:
            raise ValueError(f"an NDArray of {self.dtype} cannot be seen as {dtype} without a copy")
        return self.data.copy() if copy and same else self.data if same else self.data.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.data.__dlpack_device__()
        return int(kind), int(number)

    def __repr__(self) -> str:
        return f"<tensorlang.nd.NDArray shape={self.shape}, {self.device}>\n{self.data!r}"


def empty(
    shape: int | tuple[int, ...] | list[int],
    dtype: Any = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """Return an array of undefined values, aligned to 64 bytes."""
    if mem_scope not in (None, "global"):
        raise ArgumentError(f"empty: mem_scope must be global, got {mem_scope!r}")
    extents = tuple(int(n) for n in shape) if isinstance(shape, tuple | list) else (int(shape),)
    if any(n < 0 for n in extents):
        raise ArgumentError(f"empty: extents are zero or more, got {extents}")
    element = dtypes.info(dtypes.canonical(dtype)).numpy
    size = int(np.prod(extents, dtype=np.int64)) * element.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return NDArray(memory[start : start + size].view(element).reshape(extents), device)


def array(arr: Any, device: Device | None = None, mem_scope: str | None = None) -> NDArray:
    """Return a copy of an array, or of anything NumPy makes one of, aligned to 64 bytes."""
    values = np.asarray(arr)
    made = empty(values.shape, values.dtype, device, mem_scope)
    made.data[...] = values
    return made


def numpyasarray(np_data: npt.NDArray[Any]) -> NDArray:
    """Return a view of a NumPy array, without a copy."""
    return NDArray(np_data)


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
