"""Device time of calls, between two CUDA events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.runtime.arguments import ArgumentCheck
from tensorlang.runtime.device_arrays import DeviceArray
from tensorlang.runtime.timer import host_clock
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.arrays import on
from tensorlang.target.cuda.graphs import CudaGraph
from tensorlang.target.cuda.launch import CudaLaunch

_RECORDED_CALLS = 64
"""Calls of one graph at most: enough that the host's share of a short kernel's time is small."""
_FLUSHED = 2
"""Times the L2 cache that is overwritten to empty it."""


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """Seconds of the device for a number of calls: a Stopwatch.

    On device arrays the launches are recorded as graphs, so that the device does not wait for Python between them.
    `flush`: overwrite the L2 cache before each call, outside of its time. Calls with NumPy arrays are timed by the
    host's clock, copies included.
    """

    launch: CudaLaunch
    check: ArgumentCheck
    flush: bool = False

    def __call__(self, function: Callable[..., object], args: Sequence[Any], number: int) -> float:
        """Run and measure; ArgumentError as in any call."""
        arrays, sizes = self.check(args)
        if not all(isinstance(array, DeviceArray) for array in arrays):
            return host_clock(function, args, number)
        calls = 1 if self.flush else min(number, _RECORDED_CALLS)
        graph = CudaGraph(self.launch, arrays, sizes, calls)
        rest = CudaGraph(self.launch, arrays, sizes, number % calls) if number % calls else None
        graphs = [graph] * (number // calls) + ([] if rest is None else [rest])
        device, stream = self.launch.place(arrays)
        with runtime.errors_of(self.launch.program.name), on(device, stream):
            graph.start(stream)
            return self._cold(graphs, device, stream) if self.flush else _warm(graphs, stream)

    def _cold(self, graphs: Sequence[CudaGraph], device: int, stream: Any) -> float:
        """Each graph by itself, after the cache was overwritten."""
        cupy = runtime.cupy()
        size = max(1, _FLUSHED * runtime.l2_bytes(device))
        junk = cupy.cuda.alloc(size)
        pairs = []
        for graph in graphs:
            junk.memset_async(0, size, stream)
            begin = stream.record(_event())
            graph.start(stream)
            pairs.append((begin, stream.record(_event())))
        stream.synchronize()
        return sum(float(cupy.cuda.get_elapsed_time(begin, end)) for begin, end in pairs) / 1e3


def _warm(graphs: Sequence[CudaGraph], stream: Any) -> float:
    """All graphs one after the other."""
    begin = stream.record(_event())
    for graph in graphs:
        graph.start(stream)
    end = stream.record(_event())
    end.synchronize()
    return float(runtime.cupy().cuda.get_elapsed_time(begin, end)) / 1e3


def _event() -> Any:
    return runtime.cupy().cuda.Event()
