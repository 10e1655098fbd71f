"""CUDA graphs: the launches of calls, recorded once and given to the device at once as often as wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from tensorlang.errors import ArgumentError
from tensorlang.runtime.device_arrays import CheckedArray, DeviceArray
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.arrays import as_stream, on
from tensorlang.target.cuda.launch import CudaLaunch


class CudaGraph:
    """The launches of one call on fixed arrays, whose contents each `launch` reads and writes as they are then.

    It holds the arrays and the scratch memory that the launches use. One launch at a time: they share the scratch.
    """

    def __init__(
        self, launch: CudaLaunch, arrays: Sequence[CheckedArray], sizes: Sequence[int], calls: int = 1
    ) -> None:
        """Record `calls` calls one after the other; ArgumentError unless all arrays are in device memory."""
        name = launch.program.name
        there = [array for array in arrays if isinstance(array, DeviceArray)]
        if len(there) < len(arrays):
            advice = "cupy.asarray copies one there"
            raise ArgumentError(f"{name}: a graph needs all arrays in device memory, got one in CPU memory; {advice}")
        self._call = launch
        self._arrays = there
        self._scratch: list[Any] = []
        with runtime.errors_of(name):
            self.device, _ = launch.place(arrays)
            cupy = runtime.cupy()
            with cupy.cuda.Device(self.device):
                stream = cupy.cuda.Stream(non_blocking=True)
            with on(self.device, stream):
                queue = launch.queue(self.device, stream, self._scratch)
                self._fault = queue.fault
                stream.begin_capture()
                try:
                    queue.clear_fault()
                    for _ in range(calls):
                        launch.program(queue, [a.value.array for a in there], sizes)
                except BaseException:
                    # The stream cannot be used again while it records.
                    with contextlib.suppress(RuntimeError):
                        stream.end_capture()
                    raise
                self._graph = stream.end_capture()

    def launch(self, stream: Any = None) -> None:
        """Run on a stream, of CuPy or by CUDA's protocol for streams, and return at once.

        Without one it is CuPy's current stream; for tensors of PyTorch its stream that was current when the graph was
        made. With a kernel that may record a fault it waits, and raises its KernelError.
        """
        with runtime.errors_of(self._call.program.name), runtime.cupy().cuda.Device(self.device):
            used = self._call.place(self._arrays)[1] if stream is None else as_stream(stream)
            self._graph.launch(used)
            self._call.check_fault(self._fault, used)

    def start(self, stream: Any) -> None:
        """Run on a stream, and ask for no fault."""
        self._graph.launch(stream)
