"""The OpenCL runtime through pyopencl: devices, queues, programs, memory. The only file that imports pyopencl."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cache, lru_cache
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, MissingDependency, TargetError
from tensorlang.target.opencl.drivers import wheel_drivers
from tensorlang.target.spec import GpuLimits

_lock = threading.RLock()
_POCL = "Portable Computing Language"
_POOL_BYTES = 1 << 28
"""Scratch memory that a queue keeps for later calls at most."""


@cache
def library() -> Any:
    """The module pyopencl, with the drivers of wheels in sight; MissingDependency when it is not installed."""
    with _lock, wheel_drivers():
        try:
            import pyopencl
        except ImportError as error:
            text = f"target opencl needs pyopencl ({error}): pip install 'tensorlang[opencl]'"
            raise MissingDependency(text) from None
        with suppress(pyopencl.Error):  # there is none: `devices` tells
            pyopencl.get_platforms()
        return pyopencl


def arrays() -> Any:
    """The module pyopencl.array."""
    library()
    import pyopencl.array

    return pyopencl.array


@dataclass(frozen=True, slots=True)
class OpenclDevice:
    """A device: its names, what it allows a block, and what it knows; `handle` is pyopencl's object.

    `threads` and `local_bytes` are those of a block, `block` its threads along x, y, z.
    """

    platform: str
    name: str
    driver: str
    is_gpu: bool
    threads: int
    block: tuple[int, int, int]
    local_bytes: int
    warp: int
    cores: int
    extensions: frozenset[str]
    exact_division: bool
    handle: Any = field(compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.platform} / {self.name}"

    @property
    def limits(self) -> GpuLimits:
        """What kernels may use of it."""
        blocks = 2**31 - 1
        return GpuLimits(
            max_threads=self.threads,
            shared_bytes=self.local_bytes,
            warp=self.warp,
            block=self.block,
            grid=(blocks, blocks, blocks),
            shared_per_core=self.local_bytes,
        )


@cache
def devices() -> tuple[OpenclDevice, ...]:
    """All devices, GPUs first and those of PoCL last, else by their platforms; none where no driver is installed."""
    cl = library()
    found = []
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    for platform in platforms:
        try:
            found += [described(handle) for handle in platform.get_devices()]
        except cl.Error:
            continue  # a platform without a device says so by an error
    return tuple(sorted(found, key=lambda device: (not device.is_gpu, device.platform == _POCL)))


@cache
def described(handle: Any) -> OpenclDevice:
    """What a device says of itself."""
    cl = library()
    extensions = set(handle.extensions.split())
    if handle.double_fp_config:
        extensions.add("cl_khr_fp64")  # part of the language from OpenCL 1.2 on, listed or not
    x, y, z = (*handle.max_work_item_sizes, 1, 1)[:3]
    return OpenclDevice(
        platform=handle.platform.name.strip(),
        name=handle.name.strip(),
        driver=f"{handle.version}, {handle.driver_version}",
        is_gpu=bool(handle.type & cl.device_type.GPU),
        threads=int(handle.max_work_group_size),
        block=(int(x), int(y), int(z)),
        local_bytes=int(handle.local_mem_size),
        warp=_warp(cl, handle),
        cores=int(handle.max_compute_units),
        extensions=frozenset(extensions),
        exact_division=bool(handle.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        handle=handle,
    )


def _warp(cl: Any, handle: Any) -> int:
    """Threads that run in step, where the vendor tells."""
    for name in ("warp_size_nv", "wavefront_width_amd"):
        try:
            return int(getattr(handle, name))
        except (AttributeError, cl.Error):
            continue
    return GpuLimits().warp


@lru_cache(maxsize=16)
def pool(queue: Any) -> Pool:
    """The scratch memory of a queue."""
    return Pool(queue.context)


@cache
def own_queue(device: OpenclDevice) -> Any:
    """The queue of a device that calls use when no array brings one."""
    with _lock:
        return library().CommandQueue(_own_context(device), device.handle)


@cache
def _own_context(device: OpenclDevice) -> Any:
    """Kept here: on Intel's runtime a context does not outlive its last owner, whatever queues it has."""
    return library().Context([device.handle])


@lru_cache(maxsize=16)
def context_queue(context: Any) -> Any:
    """A queue of a context for arrays that bring none."""
    return library().CommandQueue(context)


@lru_cache(maxsize=16)
def out_of_order(queue: Any) -> bool:
    """Whether launches on a queue may overtake each other."""
    return bool(queue.properties & library().command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)


def build(context: Any, device: OpenclDevice, text: str, options: Sequence[str]) -> Any:
    """A program from C text; InternalError with the log when the driver refuses the text."""
    # Not pyopencl.Program, which keeps a cache on disk of its own.
    program = library()._cl._Program(context, text)
    return _built(program, device, options, text)


def load(context: Any, device: OpenclDevice, binary: bytes, options: Sequence[str]) -> Any:
    """A program from what `binary` gave; InternalError when the driver does not take it."""
    cl = library()
    try:
        program = cl._cl._Program(context, [device.handle], [binary])
    except cl.Error as error:
        raise InternalError(f"{device} does not take a program that was built before: {error}") from error
    return _built(program, device, options, "")


def binary(program: Any) -> bytes:
    """The built code of a program for one device."""
    found: bytes = program.get_info(library().program_info.BINARIES)[0]
    return found


def _built(program: Any, device: OpenclDevice, options: Sequence[str], text: str) -> Any:
    cl = library()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program.build(" ".join(options).encode(), [device.handle])
    except cl.Error as error:
        log = program.get_build_info(device.handle, cl.program_build_info.LOG)
        raise InternalError(f"{device} does not build a kernel: {error}\n{log}\n{text}") from error
    return program


def kernel(program: Any, name: str) -> Any:
    """The kernel of a name in a program; an object that keeps its arguments, for one thread at a time."""
    return library().Kernel(program, name)


def block_limit(kernel: Any, device: OpenclDevice) -> int:
    """Threads of a block that a built kernel allows on a device, which may be fewer than the device's."""
    return int(kernel.get_work_group_info(library().kernel_work_group_info.WORK_GROUP_SIZE, device.handle))


@contextmanager
def device_errors(what: str) -> Iterator[None]:
    """Errors of the runtime as ours: MemoryError where memory is short, TargetError for the rest."""
    cl = library()
    try:
        yield
    except cl.MemoryError as error:
        raise MemoryError(f"{what}: the device has no memory for it ({error})") from error
    except cl.Error as error:
        if "INVALID_BUFFER_SIZE" in str(error):
            raise MemoryError(f"{what}: larger than the device allows ({error})") from error
        raise TargetError(f"{what}: the device refuses it ({error})") from error


class Pool:
    """Scratch memory of one queue, kept for later: a call takes pieces of the size it wants.

    The queue works in order, so memory may be taken again while launches that use it are under way.
    """

    __slots__ = ("_context", "_free", "_held", "_lock")

    def __init__(self, context: Any) -> None:
        self._context = context
        self._free: dict[int, list[Any]] = {}
        self._held = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> Any:
        """A buffer of that many bytes, at least one; MemoryError when there is no memory."""
        size = max(nbytes, 1)
        with self._lock:
            if self._free.get(size):
                self._held -= size
                return self._free[size].pop()
        try:
            return self._create(size)
        except MemoryError:
            self.clear()
            return self._create(size)

    def give(self, buffer: Any) -> None:
        """Take a buffer back."""
        with self._lock:
            if self._held + buffer.size <= _POOL_BYTES:
                self._held += buffer.size
                self._free.setdefault(buffer.size, []).append(buffer)

    def clear(self) -> None:
        """Forget all that is kept."""
        with self._lock:
            self._free.clear()
            self._held = 0

    def _create(self, size: int) -> Any:
        cl = library()
        with device_errors(f"{size} bytes of device memory"):
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, size)
