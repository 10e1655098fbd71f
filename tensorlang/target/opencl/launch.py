"""Calls of compiled kernels: where the arrays are, what has to be copied, launches, and faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import field
from time import perf_counter
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError, InternalError, KernelError
from tensorlang.runtime.cache import cached
from tensorlang.runtime.device_arrays import CheckedArray, DeviceArray
from tensorlang.runtime.host_program import Extents, HostProgram
from tensorlang.target.c_source.source import Module
from tensorlang.target.opencl import runtime
from tensorlang.target.opencl.devices import check_extensions, check_fits, check_threads, chosen_device
from tensorlang.target.opencl.memory import as_opencl_array, copy_in, copy_out
from tensorlang.target.opencl.runtime import OpenclDevice, Pool
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class Program:
    """What a call needs to know, as data: the host part, the text of the kernels, and the names of its arrays.

    `outputs` are those of `params` that are written.
    """

    host: HostProgram
    module: Module
    params: tuple[str, ...]
    outputs: tuple[str, ...]
    target: Target


@dataclass(frozen=True, slots=True)
class Loaded:
    """The kernels of a program, built for a device; `faults` names those that record faults.

    A kernel keeps its arguments: `lock` is held from setting them to the launch.
    """

    kernels: dict[str, Any]
    faults: frozenset[str]
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenclLaunch:
    """Runs a program on checked arrays, on the device where they are, or else the target's.

    Programs are built when a device is first used. Arrays of pyopencl are used where they are, and the call returns
    when all is queued; NumPy arrays are copied, and the call returns when the outputs among them are there.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._loaded: dict[tuple[Any, Any], Loaded] = {}
        self._lock = threading.Lock()

    def __call__(self, arrays: Sequence[CheckedArray], sizes: Sequence[int]) -> None:
        """Raises ArgumentError for arrays of several devices, TargetError where kernels do not fit the device."""
        program = self._program
        queue = self._queue(arrays)
        run = _Run(queue, self.load(queue))
        try:
            buffers = [run.buffer(f"{program.host.name}: {p}", a) for p, a in zip(program.params, arrays, strict=True)]
            run.wait_for(arrays)
            program.host(run, buffers, sizes)
            run.announce(arrays)
            queue.flush()
            for param, array, buffer in zip(program.params, arrays, buffers, strict=True):
                if param in program.outputs and isinstance(array, np.ndarray):
                    run.order()
                    copy_out(queue, array, buffer)
            run.check(program)
        finally:
            run.close()

    def load(self, queue: Any) -> Loaded:
        """The kernels built for the device and the context of a queue."""
        key = queue.context, queue.device
        found = self._loaded.get(key)
        if found is None:
            with self._lock:
                found = self._loaded.get(key) or load(self._program, queue.context, runtime.described(queue.device))
                self._loaded[key] = found
        return found

    def build(self) -> None:
        """Build for the target's device now."""
        self.load(self._default_queue())

    def seconds(self, function: Callable[..., object], args: Sequence[Any], number: int) -> float:
        """Seconds of some calls, from an idle queue until the last one is done there."""
        queue = self._queue([as_opencl_array(a) for a in args if hasattr(a, "shape")])
        queue.finish()
        start = perf_counter()
        for _ in range(number):
            function(*args)
        queue.finish()
        return perf_counter() - start

    def _default_queue(self) -> Any:
        return runtime.own_queue(chosen_device(self._program.target))

    def _queue(self, arrays: Sequence[CheckedArray]) -> Any:
        """The queue of the first array that has one, else one of its context, else the target's."""
        on_device = [a.value for a in arrays if isinstance(a, DeviceArray)]
        if not on_device:
            return self._default_queue()
        queues = [value.queue for value in on_device if value.queue is not None]
        queue = queues[0] if queues else runtime.context_queue(on_device[0].context)
        name = self._program.host.name
        for value in on_device:
            if value.context != queue.context or (value.queue is not None and value.queue.device != queue.device):
                there = f"{runtime.described(queue.device)} and {runtime.described(value.context.devices[0])}"
                raise ArgumentError(f"{name}: expected arrays of one device and context, got {there}; copy them over")
        wanted, device = self._program.target.cpu, runtime.described(queue.device)
        if wanted.lower() not in str(device).lower():
            raise ArgumentError(f"{name}: built for -device={wanted}, got arrays on {device}; copy them over")
        return queue


class _Run:
    """One call on a queue: a `Device` of the host part."""

    __slots__ = ("_fault", "_loaded", "_pool", "_queue", "_strict", "_taken")

    def __init__(self, queue: Any, loaded: Loaded) -> None:
        self._queue = queue
        self._loaded = loaded
        self._pool: Pool = runtime.pool(queue)
        self._taken: list[Any] = []
        self._strict = runtime.out_of_order(queue)
        self._fault: Any = None

    def buffer(self, name: str, array: CheckedArray) -> Any:
        """The memory of an array on the device: its own, or a copy."""
        if isinstance(array, DeviceArray):
            return self._own(name, array)
        taken = self._take(array.nbytes)
        self.order()
        copy_in(self._queue, taken, array)
        return taken

    def _own(self, name: str, array: DeviceArray) -> Any:
        memory = array.value.base_data
        if memory is None:
            return self._take(0)
        if array.start == 0:
            return memory
        try:
            return memory.get_sub_region(array.start, max(array.nbytes, 1))
        except runtime.library().Error:
            most = self._queue.device.mem_base_addr_align // 8
            text = (
                f"{name}: expected an array that starts at a multiple of {most} bytes of its buffer, got {array.start}"
            )
            raise ArgumentError(f"{text}; pass a copy of it") from None

    def _take(self, nbytes: int) -> Any:
        taken = self._pool.take(nbytes)
        self._taken.append(taken)
        return taken

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Scratch memory from the pool."""
        nbytes = dtypes.info(dtype).bytes
        for extent in shape:
            nbytes *= extent
        return self._pool.take(nbytes)

    def free(self, array: Any) -> None:
        """Back to the pool: the queue works in order."""
        self._pool.give(array)

    def launch(self, name: str, grid: Extents, block: Extents, arrays: Sequence[Any], scalars: Sequence[int]) -> None:
        """Queue a kernel."""
        x, y, z = grid
        threads = x * block[0], y * block[1], z * block[2]
        args = [*arrays, *map(np.int64, scalars)]
        if name in self._loaded.faults:
            args.append(self._faults())
        with runtime.device_errors(f"launch of {name}"), self._loaded.lock:
            self.order()
            self._loaded.kernels[name](self._queue, threads, block, *args)

    def order(self) -> None:
        """Let the next command wait for those before, on a queue that reorders them."""
        if self._strict:
            runtime.library().enqueue_barrier(self._queue)

    def _faults(self) -> Any:
        if self._fault is None:
            self._fault = self._take(4)
            self.order()
            copy_in(self._queue, self._fault, np.zeros(1, np.int32))
        return self._fault

    def wait_for(self, arrays: Sequence[CheckedArray]) -> None:
        """Begin after what other queues still do to these arrays."""
        events = [event for a in arrays if isinstance(a, DeviceArray) for event in a.value.events]
        events = [event for event in events if event.command_queue != self._queue]
        if events:
            runtime.library().enqueue_barrier(self._queue, wait_for=events)

    def announce(self, arrays: Sequence[CheckedArray]) -> None:
        """Tell arrays of other queues when this one has come so far."""
        others = [a.value for a in arrays if isinstance(a, DeviceArray) and a.value.queue != self._queue]
        if others:
            event = runtime.library().enqueue_marker(self._queue)
            for value in others:
                value.add_event(event)

    def check(self, program: Program) -> None:
        """Wait and raise KernelError if a kernel recorded a fault."""
        if self._fault is None:
            return
        number = np.zeros(1, np.int32)
        self.order()
        copy_out(self._queue, number, self._fault)
        messages = program.module.messages
        if not 0 <= number[0] <= len(messages):
            raise InternalError(f"{program.host.name} returned the status {number[0]}")
        if number[0]:
            raise KernelError(f"{program.host.name}: {messages[number[0] - 1]}")

    def close(self) -> None:
        """Give the copies back."""
        while self._taken:
            self._pool.give(self._taken.pop())


def load(program: Program, context: Any, device: OpenclDevice) -> Loaded:
    """Build a program, or find what was built before; TargetError when it does not fit the device."""
    name, module = program.host.name, program.module
    kernels = program.host.kernels
    for kernel, source in zip(kernels, module.kernels, strict=True):
        check_fits(kernel, source.shared_bytes, device)
    check_extensions(name, module.text, device)
    built = _built(module.text, context, device)
    made = {k.name: runtime.kernel(built, s.name) for k, s in zip(kernels, module.kernels, strict=True)}
    for kernel in kernels:
        check_threads(kernel, runtime.block_limit(made[kernel.name], device), device)
    faults = frozenset(k.name for k, s in zip(kernels, module.kernels, strict=True) if s.uses_fault)
    return Loaded(made, faults)


def _built(text: str, context: Any, device: OpenclDevice) -> Any:
    options = ["-cl-fp32-correctly-rounded-divide-sqrt"] if device.exact_division else []
    made: list[Any] = []

    def make() -> bytes:
        made.append(runtime.build(context, device, text, options))
        return runtime.binary(made[0])

    def use(code: bytes) -> Any:
        return made[0] if made else runtime.load(context, device, code, options)

    return cached(("opencl", text, str(device), device.driver, *options), make, use)
