"""Kernels for CUDA devices as the caller sees them: call, time, replay, look at the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensorlang.ir.overflow import SizeCheck
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.arguments import ArgumentCheck, Signature
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.timer import TimeEvaluator
from tensorlang.target.cuda.arrays import device_or_host_array
from tensorlang.target.cuda.graphs import CudaGraph
from tensorlang.target.cuda.images import Images
from tensorlang.target.cuda.launch import CudaLaunch
from tensorlang.target.cuda.report import Report
from tensorlang.target.cuda.timing import DeviceClock
from tensorlang.target.spec import Target


class CudaExecutable(Executable):
    """A kernel for CUDA devices: `f(*arrays)`, outputs written in place.

    Arrays are CuPy's, or others in device memory that speak DLPack or have a `__cuda_array_interface__`, all on one
    device: the call launches on the current stream, PyTorch's for its tensors and CuPy's for all else, and returns.
    NumPy arrays are copied there and back, and the call waits.
    `report` is what the assembler says of registers and spills; None where the code came compiled.
    """

    __slots__ = ("_check", "_forms", "_launch", "report")

    def __init__(
        self,
        kernel: Kernel,
        target: Target,
        images: Images,
        *,
        forms: Mapping[str, Callable[[], str]] | None = None,
        listed: tuple[str, ...] = (),
        signature: Signature | None = None,
        report: Report | None = None,
    ) -> None:
        """`forms` are all sources that may be asked for, `listed` the names of those that this machine can give."""
        launch = CudaLaunch(kernel, images)
        self._launch = launch
        self._forms = dict(forms or {})
        self.report = report
        sources = {name: self._forms[name] for name in listed}
        super().__init__(kernel, target, launch, sources=sources, signature=signature, convert=device_or_host_array)
        convert, exact = device_or_host_array, SizeCheck(kernel)
        self._check = ArgumentCheck(
            kernel.name, self.signature, kernel.params, kernel.sizes, kernel.outputs, convert, exact
        )

    def source(self, stage: str = "loops") -> str:
        """The text of a stage: `loops`, `cuda`, `ptx` and `sass`.

        TargetError says what to install for one that needs a tool of NVIDIA's that is not here.
        """
        if stage in self._forms:
            return self._forms[stage]()
        return super().source(stage)

    def graph(self, *args: Any) -> CudaGraph:
        """Record all launches of a call with these arrays, as a CUDA graph; `.launch()` runs them, with little delay.

        ArgumentError for arrays that are not in device memory, and as in any call.
        """
        return CudaGraph(self._launch, *self._check(args))

    def time_evaluator(
        self,
        name: str | None = None,
        dev: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        flush_l2: bool = False,
    ) -> TimeEvaluator:
        """Return a callable that runs the kernel on given arguments and measures it.

        On arrays in device memory it takes the device's time, between two events; `flush_l2` empties the L2 cache
        before each call. On NumPy arrays it takes the time of whole calls, copies included. The rest is as for any
        executable.
        """
        function = self if name is None else self[name]
        clock = DeviceClock(self._launch, self._check, flush_l2)
        return TimeEvaluator(function, number, repeat, min_repeat_ms, clock)
