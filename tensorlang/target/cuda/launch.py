"""Running compiled kernels on a CUDA device: arguments in, launches on a stream, faults and outputs back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, KernelError
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.device_arrays import CheckedArray, DeviceArray
from tensorlang.runtime.host_program import Extents, HostProgram, host_program
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.arrays import device_number, on, stored_dtype
from tensorlang.target.cuda.images import Images, KernelCode
from tensorlang.target.cuda.tensor_maps import map_of

_WIDE = 16
"""Bytes of the widest access, which must be a multiple of them away from address 0."""


@dataclass(slots=True)
class Queue:
    """A stream of the current device, as a host program uses it.

    `fault` is the device's place for the number of a fault; `kept` holds all scratch memory, for launches that a graph
    repeats.
    """

    functions: Mapping[str, Any]
    codes: Mapping[str, KernelCode]
    stream: Any
    fault: Any = None
    kept: list[Any] | None = None

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory of CuPy's pool, where it goes back to with its last reference, for this stream to use again."""
        array = runtime.cupy().empty(shape, stored_dtype(dtype))
        if self.kept is not None:
            self.kept.append(array)
        return array

    def free(self, array: Any) -> None:
        """Nothing: an array that nobody refers to any more is free."""

    def launch(self, name: str, grid: Extents, block: Extents, arrays: Sequence[Any], scalars: Sequence[int]) -> None:
        """Launch a kernel, after all that the stream was told before."""
        code = self.codes[name]
        maps = (map_of(arrays[m.param], m) for m in code.maps)
        arguments = (*arrays, *map(np.int64, scalars), *maps, *((self.fault,) if code.fault else ()))
        self.functions[name](grid, block, arguments, shared_mem=code.shared, stream=self.stream)

    def clear_fault(self) -> None:
        """Set the place of faults to none, in the order of the stream."""
        if self.fault is not None:
            self.fault.data.memset_async(0, self.fault.nbytes, self.stream)


class CudaLaunch:
    """Runs a kernel's host program on checked arrays: device memory as it is, NumPy arrays copied there and back.

    With device memory only, and no kernel that may record a fault, a call returns when all is launched: the stream
    that CuPy works on, or the library of the arrays, has the results in order.
    """

    def __init__(self, kernel: Kernel, images: Images) -> None:
        self.images = images
        self.program: HostProgram = host_program(kernel)
        self._names = tuple(p.name for p in kernel.params)
        self._written = tuple(name in kernel.outputs for name in self._names)
        wide = {p.name for k in self.program.kernels if images.codes[k.name].wide for p in k.params}
        self._wide = tuple(name in wide for name in self._names)
        self.has_faults = any(code.fault for code in images.codes.values())

    def __call__(self, arrays: Sequence[CheckedArray], sizes: Sequence[int]) -> None:
        """Run; ArgumentError for arrays of two devices, KernelError for a fault that a kernel recorded."""
        with runtime.errors_of(self.program.name):
            device, stream = self.place(arrays)
            with on(device, stream):
                queue = self.queue(device, stream)
                given = [_uploaded(array, stream) for array in arrays]
                queue.clear_fault()
                self.program(queue, given, sizes)
                self.check_fault(queue.fault, stream)
                for array, there, written in zip(arrays, given, self._written, strict=True):
                    if written and isinstance(array, np.ndarray):
                        there.get(stream=stream, out=array.view(there.dtype))

    def place(self, arrays: Sequence[CheckedArray]) -> tuple[int, Any]:
        """The device of the arrays, else the current one, and the stream to work on; ArgumentError as a call."""
        devices: dict[int, str] = {}
        streams = []
        for name, array, wide in zip(self._names, arrays, self._wide, strict=True):
            if isinstance(array, DeviceArray):
                devices.setdefault(device_number(array), name)
                streams += [] if array.value.stream is None else [array.value.stream]
                if wide and array.start % _WIDE:
                    self._refuse(f"{name} to begin at a multiple of {_WIDE} bytes", f"address {array.start:#x}")
        if len(devices) > 1:
            places = ", ".join(f"{name} on device {number}" for number, name in sorted(devices.items()))
            self._refuse("all arrays on one device", places)
        device = next(iter(devices), runtime.current_device())
        with runtime.cupy().cuda.Device(device):
            return device, streams[0] if streams else runtime.cupy().cuda.get_current_stream()

    def _refuse(self, wanted: str, got: str) -> None:
        raise ArgumentError(f"{self.program.name}: expected {wanted}, got {got}; copy it")

    def queue(self, device: int, stream: Any, kept: list[Any] | None = None) -> Queue:
        """A queue on a device and a stream, which are the current ones, with a place for faults if there may be any."""
        fault = runtime.cupy().empty(1, np.int32) if self.has_faults else None
        return Queue(self.images.functions(device), self.images.codes, stream, fault, kept)

    def check_fault(self, fault: Any, stream: Any) -> None:
        """Wait, if there is a place for faults, and raise the KernelError of the one that is there."""
        number = 0 if fault is None else int(fault.get(stream=stream)[0])
        if number:
            raise KernelError(f"{self.program.name}: {self.images.messages[number - 1]}")


def _uploaded(array: CheckedArray, stream: Any) -> Any:
    """The array of CuPy that a kernel works on."""
    if isinstance(array, DeviceArray):
        return array.value.array
    there = runtime.cupy().empty(array.shape, stored_dtype(array.dtype.name))
    there.set(array.view(there.dtype), stream=stream)
    return there
