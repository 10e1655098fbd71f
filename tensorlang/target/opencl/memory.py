"""Arrays in OpenCL memory: what callers pass, copies to and from NumPy, and the memory behind `tensorlang.nd`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency, TargetError
from tensorlang.nd import NDArray
from tensorlang.runtime.arrays import Array, as_array
from tensorlang.runtime.device_arrays import CheckedArray, DeviceArray
from tensorlang.target.opencl.runtime import OpenclDevice, arrays, device_errors, devices, library, own_queue


def as_opencl_array(value: Any) -> CheckedArray:
    """An array that an OpenCL kernel takes: on the device as it is, else a NumPy view; TypeError for anything else."""
    if isinstance(value, NDArray):
        value = value.data
    module = sys.modules.get("pyopencl.array")
    if module is None or not isinstance(value, module.Array):
        return as_array(value)
    memory = value.base_data
    if memory is not None and not isinstance(memory, library().MemoryObjectHolder):
        raise TypeError("expected a pyopencl array in a buffer, got one in shared virtual memory; pass a .copy() of it")
    key = 0 if memory is None else memory.int_ptr
    dtype = np.dtype(value.dtype)
    return DeviceArray(value, "opencl", dtype, tuple(value.shape), tuple(value.strides), key, value.offset)


def copy_in(queue: Any, buffer: Any, values: Array) -> None:
    """Fill a buffer from a contiguous NumPy array, which may change after the call."""
    if values.size:
        with device_errors(f"a copy of {values.nbytes} bytes to the device"):
            library().enqueue_copy(queue, buffer, _bytes(values), is_blocking=True)


def copy_out(queue: Any, values: Array, buffer: Any) -> None:
    """Fill a contiguous NumPy array from a buffer, once the queue has come so far."""
    if values.size:
        with device_errors(f"a copy of {values.nbytes} bytes from the device"):
            library().enqueue_copy(queue, _bytes(values), buffer, is_blocking=True)


def _bytes(values: Array) -> Array:
    """The memory of an array of any dtype, also of those that speak no buffer protocol."""
    return values.reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class OpenclMemory:
    """Arrays of pyopencl on the devices of this machine, GPUs before others."""

    def count(self) -> int:
        """How many devices there are."""
        try:
            return len(devices())
        except MissingDependency:
            return 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], number: int) -> Any:
        """A new array on the queue that calls use; of the bits of bfloat16 and float8."""
        held = dtypes.info(dtype.name)
        stored = np.dtype(held.bits_dtype) if held.is_extension else dtype
        with device_errors(f"an array of shape {shape}"):
            return arrays().empty(own_queue(_device(number)), shape, stored)

    def copy_in(self, array: Any, values: Array) -> None:
        """Fill an array of `empty`."""
        if array.size:
            copy_in(array.queue, array.base_data, np.ascontiguousarray(values))

    def copy_out(self, array: Any) -> Array:
        """The elements of an array of `empty`."""
        values = np.empty(array.shape, array.dtype)
        if array.size:
            copy_out(array.queue, values, array.base_data)
        return values

    def synchronize(self, number: int) -> None:
        """Wait for the queue that calls use."""
        own_queue(_device(number)).finish()


MEMORY = OpenclMemory()


def _device(number: int) -> OpenclDevice:
    found = devices()
    if not 0 <= number < len(found):
        there = ", ".join(f"{n}: {device}" for n, device in enumerate(found)) or "none"
        raise TargetError(f"no OpenCL device {number}; there are {there}")
    return found[number]
