"""Arrays on CUDA devices for `tensorlang.nd`: CuPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang.runtime.arrays import Array
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.arrays import stored_dtype


class CudaMemory:
    """What `tensorlang.runtime.device_memory.DeviceMemory` asks of a kind of device."""

    def count(self) -> int:
        """How many devices kernels can run on; 0 where the driver or CuPy is missing."""
        return runtime.device_count()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], number: int) -> Any:
        """A new array on a device, uninitialised; bfloat16 and float8 as their bits."""
        cupy = runtime.cupy()
        with cupy.cuda.Device(number), runtime.errors_of("an array"):
            return cupy.empty(shape, stored_dtype(dtype.name))

    def copy_in(self, array: Any, values: Array) -> None:
        """Fill an array from a NumPy array, after what the current stream does to it."""
        with array.device, runtime.errors_of("a copy to the device"):
            array.set(np.ascontiguousarray(values).view(array.dtype).reshape(array.shape))

    def copy_out(self, array: Any) -> Array:
        """The elements, once the current stream has computed them."""
        with array.device, runtime.errors_of("a copy from the device"):
            found: Array = array.get()
        return found

    def synchronize(self, number: int) -> None:
        """Return when a device has done everything that this process asked of it."""
        with runtime.errors_of("a device"):
            runtime.cupy().cuda.Device(number).synchronize()


MEMORY = CudaMemory()
