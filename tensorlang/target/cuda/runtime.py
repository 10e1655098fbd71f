"""CuPy, and what the CUDA driver answers: devices, their limits, modules, and the errors of a call in our words.

The only module that imports CuPy, and it does so when a device is first needed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import cache
from typing import Any

from tensorlang.errors import InternalError, KernelError, MissingDependency, TargetError
from tensorlang.target.cuda import nvrtc
from tensorlang.target.gpus import CUDA
from tensorlang.target.kinds import DEFAULT_CUDA
from tensorlang.target.spec import GpuLimits, Target

_DRIVER = "libcuda.so.1"
_OUT_OF_MEMORY = 2
_NO_DEVICE = {35: "the driver is older than the CUDA of CuPy", 100: "the driver finds none"}
_WRONG_CODE = (200, 209, 218, 222)
"""Statuses of the driver: an invalid image, no binary for this GPU, PTX that it cannot read or is too new for it."""
_TOO_MUCH = (701,)
_LOST = {
    700: "an address outside of what it may touch",
    702: "it ran longer than the display's time limit",
    710: "an assertion in the kernel",
    714: "an error in the hardware stack",
    715: "an illegal instruction",
    716: "a misaligned address",
    717: "an address of the wrong kind of memory",
    718: "an invalid program counter",
    719: "the launch failed",
}
"""Statuses after which the driver refuses everything else that this process asks of the device."""


@cache
def driver() -> Any:
    """The CUDA driver's library; TargetError when this machine has none."""
    try:
        return ctypes.CDLL(_DRIVER)
    except OSError:
        raise TargetError(
            f"no CUDA driver on this machine: {_DRIVER} is not found. Kernels for target cuda run where "
            "NVIDIA's driver is installed; here source('cuda') and its like show their code"
        ) from None


@cache
def cupy() -> Any:
    """CuPy, on a machine with a GPU. TargetError without a driver or a device, MissingDependency without CuPy."""
    driver()
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise
        raise MissingDependency("target cuda runs kernels through CuPy: pip install 'tensorlang[cuda]'") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        why = _NO_DEVICE.get(error.status, str(error))
        raise TargetError(f"no CUDA device to run on: {why}; nvidia-smi tells what the driver sees") from None
    if count == 0:
        raise TargetError("no CUDA device to run on: none is visible; see CUDA_VISIBLE_DEVICES")
    return cupy


def device_count() -> int:
    """How many CUDA devices kernels can run on; 0 where the driver, CuPy or a device is missing."""
    try:
        return int(cupy().cuda.runtime.getDeviceCount())
    except (TargetError, MissingDependency):
        return 0


def architecture_of(device: int) -> str:
    """The architecture to compile for on a device: its own, with the instructions that only it has on a Hopper."""
    capability = str(cupy().cuda.Device(device).compute_capability)
    return f"sm_{capability}a" if capability == "90" else f"sm_{capability}"


def default_architecture(target: Target) -> str:
    """The architecture to compile for: the target's, else the current device's, else the one taken where none is."""
    if target.cpu:
        return target.cpu
    return architecture_of(current_device()) if device_count() else DEFAULT_CUDA


def current_device() -> int:
    """The number of the device that CuPy works on."""
    return int(cupy().cuda.runtime.getDevice())


def runs_on(architecture: str, device_architecture: str) -> bool:
    """Whether code for one architecture runs on a device of another: on the same generation, if not older.

    Code that uses what only one architecture has (`sm_90a`) runs on that one alone.
    """
    wanted, own = architecture.removeprefix("sm_"), device_architecture.removeprefix("sm_").rstrip("a")
    if wanted.endswith("a"):
        return wanted.rstrip("a") == own
    return wanted[:-1] == own[:-1] and int(wanted[-1]) <= int(own[-1])


def device_limits(target: Target) -> GpuLimits:
    """What a block may use: as the table says of the target's architecture, without one as the current device says.

    What the target itself sets lower than the table stays. A target with an architecture asks no device, so that a
    process that only builds leaves CUDA to those it forks.
    """
    table = CUDA.get(target.cpu or DEFAULT_CUDA, CUDA[DEFAULT_CUDA])
    limits = _limits_of(current_device()) if not target.cpu and device_count() else table
    return limits.lowered(target.gpu or table, table)


def _limits_of(device: int) -> GpuLimits:
    has: dict[str, int] = cupy().cuda.Device(device).attributes
    return GpuLimits(
        max_threads=has["MaxThreadsPerBlock"],
        shared_bytes=has["MaxSharedMemoryPerBlockOptin"],
        warp=has["WarpSize"],
        block=(has["MaxBlockDimX"], has["MaxBlockDimY"], has["MaxBlockDimZ"]),
        grid=(has["MaxGridDimX"], has["MaxGridDimY"], has["MaxGridDimZ"]),
        registers=has["MaxRegistersPerMultiprocessor"],
        threads_per_core=has["MaxThreadsPerMultiProcessor"],
        blocks_per_core=has["MaxBlocksPerMultiprocessor"],
        shared_per_core=has["MaxSharedMemoryPerMultiprocessor"],
        bulk_copies=int(cupy().cuda.Device(device).compute_capability) >= 90,
    )


def l2_bytes(device: int) -> int:
    """Bytes of the cache that all multiprocessors of a device share."""
    return int(cupy().cuda.Device(device).attributes["L2CacheSize"])


def load(cubin: bytes) -> Any:
    """A cubin as a module of the current device; `get_function(name)` gives its kernels."""
    module = cupy().cuda.function.Module()
    module.load(cubin)
    return module


def allow_shared(function: Any, amount: int) -> None:
    """Let launches of a function ask for as many bytes of dynamic shared memory."""
    driver_calls = cupy().cuda.driver
    driver_calls.funcSetAttribute(function.ptr, driver_calls.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, amount)


@contextlib.contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Raise what CUDA reports inside the block in tensorlang's words.

    A full device is a MemoryError, code that the device does not take a TargetError, a fault of a kernel a KernelError.
    """
    library = cupy()
    reported = (library.cuda.runtime.CUDARuntimeError, library.cuda.driver.CUDADriverError)
    try:
        yield
    except library.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(f"{name}: the device has no memory for it: {error}{_memory_left()}") from None
    except reported as error:
        raise _in_words(name, error) from error


def _in_words(name: str, error: Any) -> Exception:
    status = int(error.status)
    if status == _OUT_OF_MEMORY:
        return MemoryError(f"{name}: the device has no memory for it: {error}{_memory_left()}")
    if status in _WRONG_CODE:
        return TargetError(
            f"{name}: the device does not take its code ({error}); build it for target 'cuda' with no -arch, "
            f"or update the driver: NVRTC is {'.'.join(map(str, nvrtc.version()))}"
        )
    if status in _TOO_MUCH:
        return TargetError(
            f"{name}: a block asks for more threads, registers or shared memory than there are ({error})"
        )
    if status in _LOST:
        return KernelError(
            f"{name}, or a kernel launched before it, stopped: {_LOST[status]} ({error}). The device context is lost, "
            "and every later CUDA call of this process fails: start a new process. compute-sanitizer tells the place"
        )
    return InternalError(f"{name}: CUDA answers {error}")


def _memory_left() -> str:
    """How much memory the current device has, if it still tells."""
    with contextlib.suppress(Exception):
        free, total = cupy().cuda.Device().mem_info
        return f"; {free} of its {total} bytes are free"
    return ""
