"""CuPy for machines without a GPU: arrays are NumPy's, kernels Python functions, and what is asked is written down.

It has the part of CuPy 14 that tensorlang uses, with CuPy's names and its strictness about arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.testing.cuda_emulation import TensorMap

KernelFunction = Callable[..., None]
"""What a fake kernel does: `f(grid, block, *memories and scalars)`."""

ATTRIBUTES = {
    "MaxThreadsPerBlock": 1024,
    "MaxSharedMemoryPerBlockOptin": 232448,
    "WarpSize": 32,
    "MaxBlockDimX": 1024,
    "MaxBlockDimY": 1024,
    "MaxBlockDimZ": 64,
    "MaxGridDimX": 2**31 - 1,
    "MaxGridDimY": 65535,
    "MaxGridDimZ": 65535,
    "MaxRegistersPerMultiprocessor": 65536,
    "MaxThreadsPerMultiProcessor": 2048,
    "MaxBlocksPerMultiprocessor": 32,
    "MaxSharedMemoryPerMultiprocessor": 233472,
    "L2CacheSize": 1000,
}


class Reported(RuntimeError):
    """What the runtime or the driver reports, with its status."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"cudaError{status}: no text")


class OutOfMemoryError(MemoryError):
    """No memory in the pool."""


class FakeCupy:
    """The module `cupy`. `log` is what was asked; `kernels` gives kernels by name; `capability` is of each device."""

    def __init__(self, capabilities: Sequence[str] = ("90",)) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.kernels: dict[str, KernelFunction] = {}
        self.capabilities = list(capabilities)
        self.clock = 0.0
        self.fail: int | None = None
        self.full = False
        self._device = 0
        self._streams = [FakeStream(self, 0)]
        self._pointers = iter(range(1, 1000))
        self._address = 4096
        self.ndarray = _ArrayMaker(self)
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                CUDARuntimeError=Reported,
                getDeviceCount=lambda: len(self.capabilities),
                getDevice=lambda: self._device,
                driverGetVersion=lambda: 13000,
            ),
            driver=SimpleNamespace(
                CUDADriverError=Reported,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=lambda pointer, what, value: self.log.append(("attribute", pointer, what, value)),
            ),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            function=SimpleNamespace(Module=lambda: FakeModule(self)),
            Device=lambda number=None: FakeDevice(self, self._device if number is None else number),
            Stream=_StreamMaker(self),
            Event=lambda: SimpleNamespace(time=None, synchronize=lambda: self.log.append(("wait for event",))),
            get_current_stream=lambda: self._streams[-1],
            get_elapsed_time=lambda begin, end: end.time - begin.time,
            UnownedMemory=FakeMemory,
            MemoryPointer=lambda memory, offset: (memory, offset),
            alloc=lambda size: FakePointer(self, np.zeros(size, np.uint8), 0),
        )

    def empty(self, shape: Any, dtype: Any) -> FakeArray:
        """An array on the current device, full of what nobody wrote."""
        if self.full:
            raise OutOfMemoryError("Out of memory allocating 512 bytes")
        memory = np.empty(shape, dtype)
        memory.reshape(-1).view(np.uint8)[...] = 0xA5
        self.log.append(("empty", tuple(memory.shape), str(memory.dtype)))
        return FakeArray(self, memory, self._device)

    def array(self, values: npt.ArrayLike, device: int = 0, offset: int = 0) -> FakeArray:
        """An array of these values on a device, for a test to begin with."""
        return FakeArray(self, np.array(values), device, offset)

    def asarray(self, value: Any) -> FakeArray:
        """A view of what has a `__cuda_array_interface__`."""
        return self.array(value.memory, value.device_id)

    def from_dlpack(self, value: Any) -> FakeArray:
        """A view of a tensor in device memory; CuPy takes its own current stream for the exchange."""
        self.log.append(("dlpack", self._streams[-1].ptr))
        if value.memory.dtype.name.startswith(("bfloat16", "float8")):
            raise TypeError("Unsupported dtype code")
        return FakeArray(self, value.memory, value.device_id)

    def place(self, size: int) -> int:
        """A new address."""
        self._address += -(-size // 256) * 256 + 256
        return self._address - size // 256 * 256 - 256

    @contextmanager
    def using(self, *, device: int | None = None, stream: FakeStream | None = None) -> Iterator[None]:
        before = self._device
        self._device = before if device is None else device
        self._streams.append(stream or self._streams[-1])
        try:
            yield
        finally:
            self._device = before
            self._streams.pop()

    def new_pointer(self) -> int:
        """A number for a stream or a function."""
        return next(self._pointers)


class FakeDevice:
    """cupy.cuda.Device."""

    def __init__(self, cupy: FakeCupy, number: int) -> None:
        self.id = number
        self._cupy = cupy
        self._entered: list[Any] = []
        self.attributes = ATTRIBUTES
        self.compute_capability = cupy.capabilities[number]
        self.mem_info = (100, 1000)

    def __enter__(self) -> FakeDevice:
        self._entered.append(self._cupy.using(device=self.id))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def synchronize(self) -> None:
        self._cupy.log.append(("synchronize device", self.id))


class FakeStream:
    """cupy.cuda.Stream. While it captures, what it is told is kept for the graph."""

    def __init__(self, cupy: FakeCupy, pointer: int) -> None:
        self.ptr = pointer
        self._cupy = cupy
        self._entered: list[Any] = []
        self.captured: list[Callable[[], None]] | None = None

    def __enter__(self) -> FakeStream:
        self._entered.append(self._cupy.using(stream=self))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def tell(self, action: Callable[[], None]) -> None:
        """Do, or keep for the graph."""
        if self.captured is None:
            action()
        else:
            self.captured.append(action)

    def begin_capture(self) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        self._cupy.log.append(("begin capture", self.ptr))
        self.captured = []

    def end_capture(self) -> FakeGraph:
        assert self.captured is not None
        self._cupy.log.append(("end capture", self.ptr))
        found, self.captured = self.captured, None
        return FakeGraph(self._cupy, found)

    def record(self, event: Any) -> Any:
        event.time = self._cupy.clock
        self._cupy.log.append(("record", self.ptr))
        return event

    def synchronize(self) -> None:
        self._cupy.log.append(("synchronize", self.ptr))


class _StreamMaker:
    """The class cupy.cuda.Stream: a call makes one."""

    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy

    def __call__(self, *, non_blocking: bool = False) -> FakeStream:
        return FakeStream(self._cupy, self._cupy.new_pointer())

    def from_external(self, stream: Any) -> FakeStream:
        version, pointer = stream.__cuda_stream__()
        assert version == 0
        return FakeStream(self._cupy, pointer)


class FakeGraph:
    """cupy.cuda.Graph."""

    def __init__(self, cupy: FakeCupy, actions: list[Callable[[], None]]) -> None:
        self._cupy = cupy
        self._actions = actions

    def launch(self, stream: FakeStream) -> None:
        self._cupy.log.append(("graph", len(self._actions), stream.ptr))
        for action in self._actions:
            action()


class FakePointer:
    """cupy.cuda.MemoryPointer."""

    def __init__(self, cupy: FakeCupy, memory: npt.NDArray[Any], pointer: int) -> None:
        self.ptr = pointer
        self._cupy = cupy
        self._memory = memory

    def memset_async(self, value: int, size: int, stream: FakeStream) -> None:
        def fill() -> None:
            self._memory.reshape(-1).view(np.uint8)[:size] = value
            self._cupy.clock += 5
            self._cupy.log.append(("memset", value, size))

        stream.tell(fill)


class FakeArray:
    """cupy.ndarray; `offset` moves its address, as a view's may be."""

    def __init__(self, cupy: FakeCupy, memory: npt.NDArray[Any], device: int, offset: int = 0) -> None:
        self.memory = memory
        self._cupy = cupy
        self._number = device
        self.data = FakePointer(cupy, memory, cupy.place(memory.nbytes) + offset)
        self.dtype, self.shape, self.strides, self.nbytes = memory.dtype, memory.shape, memory.strides, memory.nbytes

    @property
    def device(self) -> FakeDevice:
        return FakeDevice(self._cupy, self._number)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.data.ptr, False)}

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._number

    def view(self, dtype: Any) -> FakeArray:
        seen = FakeArray(self._cupy, self.memory.view(dtype), self._number)
        seen.data = self.data
        return seen

    def set(self, values: npt.NDArray[Any], stream: FakeStream | None = None) -> None:
        assert values.dtype == self.dtype
        assert values.shape == self.shape
        assert values.flags.c_contiguous
        self._cupy.log.append(("set", self.shape, stream.ptr if stream else None))
        self.memory[...] = values

    def get(self, stream: FakeStream | None = None, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        self._cupy.log.append(("get", self.shape, stream.ptr if stream else None))
        if out is None:
            return self.memory.copy()
        assert out.dtype == self.dtype
        assert out.shape == self.shape
        out[...] = self.memory
        return out


@dataclass(frozen=True)
class FakeMemory:
    """cupy.cuda.UnownedMemory: memory of the CPU that stands for a device's."""

    ptr: int
    size: int
    owner: object
    device_id: int


class _ArrayMaker:
    """The class cupy.ndarray: a call makes one over memory that somebody else owns."""

    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, FakeArray)

    def __call__(
        self, shape: tuple[int, ...], dtype: Any, memptr: tuple[FakeMemory, int], strides: tuple[int, ...]
    ) -> FakeArray:
        held, offset = memptr
        buffer = memoryview((ctypes.c_uint8 * held.size).from_address(held.ptr + offset)).cast("B")
        made = FakeArray(self._cupy, np.ndarray(shape, dtype, buffer, 0, strides), held.device_id)
        made.data.ptr = held.ptr + offset
        return made


class FakeModule:
    """cupy.cuda.function.Module."""

    def __init__(self, cupy: FakeCupy) -> None:
        self._cupy = cupy

    def load(self, cubin: bytes) -> None:
        assert isinstance(cubin, bytes)
        self._cupy.log.append(("load", cubin, self._cupy.cuda.runtime.getDevice()))

    def get_function(self, name: str) -> FakeFunction:
        return FakeFunction(self._cupy, name)


class FakeFunction:
    """cupy.cuda.function.Function."""

    def __init__(self, cupy: FakeCupy, name: str) -> None:
        self.ptr: Any = name
        self._cupy = cupy

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        shared_mem: int = 0,
        stream: FakeStream | None = None,
    ) -> None:
        assert isinstance(grid, tuple)
        assert isinstance(block, tuple)
        assert stream is not None
        # CuPy passes Python numbers by guesses of its own.
        assert all(isinstance(a, FakeArray | np.generic | TensorMap) for a in args)
        if self._cupy.fail is not None:
            raise Reported(self._cupy.fail)
        pointer, device = stream.ptr, self._cupy.cuda.runtime.getDevice()

        def run() -> None:
            self._cupy.log.append(("launch", self.ptr, grid, block, shared_mem, pointer, device))
            memories = [a.memory if isinstance(a, FakeArray) else a for a in args]
            self._cupy.clock += self.compute(grid, block, shared_mem, memories)

        stream.tell(run)

    def compute(self, grid: Any, block: Any, shared: int, arguments: Sequence[Any]) -> float:
        """Run, and return the milliseconds that it took."""
        self._cupy.kernels[self.ptr](grid, block, *arguments)
        return 1.0
