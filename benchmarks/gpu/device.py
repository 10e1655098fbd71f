"""The device that is measured: arrays, the time of one call, and what it says of itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.gpu.operators import Array
from tensorlang import nd
from tensorlang.errors import MissingDependency, TargetError
from tensorlang.target.cuda import nvrtc, runtime

_LEAST_FLUSHED = 512 << 20
"""Bytes overwritten before a sample, at least: so many that a compiled function of PyTorch is enqueued meanwhile."""
_ATTRIBUTES = ("MultiProcessorCount", "ClockRate", "MemoryClockRate", "GlobalMemoryBusWidth", "L2CacheSize")
_QUERY = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.draw,power.limit,temperature.gpu"


class Device(Protocol):
    """A device that runs contestants. `target` is what tensorlang builds for."""

    @property
    def target(self) -> str:
        """The target's text."""

    def describe(self) -> dict[str, Any]:
        """Name, driver, clocks and versions, as JSON values."""

    def upload(self, values: Array) -> nd.NDArray:
        """An array on the device."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> nd.NDArray:
        """An array on the device, uninitialised."""

    def copy(self, amount: int) -> Callable[[], object]:
        """A call that reads so many bytes of the device's memory and writes as many elsewhere."""

    def sample(self, call: Callable[[], object]) -> float:
        """Seconds of the device for one call, which finds nothing of its arrays in the caches."""


@dataclass(slots=True)
class CudaDevice:
    """The current CUDA device, through CuPy.

    A sample lies between two events. Before it, a buffer larger than the L2 cache is overwritten: this empties the
    cache, and while it runs the host can enqueue the call, so that the device does not wait for Python.
    """

    target: str = "cuda"
    _junk: Any = None

    def describe(self) -> dict[str, Any]:
        """As the protocol says; clocks by nvidia-smi as they are at this moment, where it is installed."""
        cupy = runtime.cupy()
        number = runtime.current_device()
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        attributes = cupy.cuda.Device(number).attributes
        return {
            "name": properties["name"].decode(),
            "architecture": runtime.architecture_of(number),
            "memory_bytes": int(properties["totalGlobalMem"]),
            "attributes": {name: int(attributes[name]) for name in _ATTRIBUTES if name in attributes},
            "cuda_driver": int(cupy.cuda.runtime.driverGetVersion()),
            "cuda_runtime": int(cupy.cuda.runtime.runtimeGetVersion()),
            "nvrtc": ".".join(map(str, nvrtc.version())),
            "cupy": str(cupy.__version__),
            "now": _reported(number),
        }

    def upload(self, values: Array) -> nd.NDArray:
        """A copy of an array."""
        return nd.array(values, nd.device("cuda"))

    def empty(self, shape: tuple[int, ...], dtype: str) -> nd.NDArray:
        """Memory of CuPy's pool."""
        return nd.empty(shape, dtype, nd.device("cuda"))

    def copy(self, amount: int) -> Callable[[], object]:
        """A copy by the driver."""
        cupy = runtime.cupy()
        source, there = (cupy.zeros(amount, "uint8") for _ in range(2))

        def call() -> None:
            there.data.copy_from_device_async(source.data, amount, cupy.cuda.get_current_stream())

        return call

    def sample(self, call: Callable[[], object]) -> float:
        """Seconds between two events around the call."""
        cupy = runtime.cupy()
        stream = cupy.cuda.get_current_stream()
        size = max(_LEAST_FLUSHED, 2 * runtime.l2_bytes(runtime.current_device()))
        if self._junk is None:
            self._junk = cupy.cuda.alloc(size)
        self._junk.memset_async(0, size, stream)
        begin = stream.record(cupy.cuda.Event())
        call()
        end = stream.record(cupy.cuda.Event())
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3


def _reported(number: int) -> dict[str, str]:
    """What nvidia-smi says at this moment; nothing where it is not installed or does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, f"--id={number}", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, encoding="utf-8", timeout=10)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(_QUERY.split(","), (word.strip() for word in done.stdout.split(",")), strict=False))


def why_no_device() -> str:
    """Why no CUDA device can be used here; empty where one can."""
    try:
        runtime.cupy()
        nvrtc.version()
    except (MissingDependency, TargetError) as error:
        return str(error)
    return ""
