"""What kernels take on an architecture, as the assembler says: it needs NVRTC and no GPU."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import tensorlang
from benchmarks.gpu.reasons import brief
from benchmarks.gpu.schedules import schedulers
from benchmarks.gpu.workloads import Workload
from tensorlang.lowering.device.limits import buffer_bytes
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.cuda.executable import CudaExecutable

ARCHITECTURES = ("sm_80", "sm_90a")


@dataclass(frozen=True, slots=True)
class Resources:
    """A kernel: threads of a block, registers of a thread, bytes it spills and bytes of stack, shared bytes of a block.

    `seconds`: of scheduling and compiling all kernels of the schedule. `problem`: why there is no kernel.
    """

    workload: str
    schedule: str
    architecture: str
    kernel: str = ""
    threads: int = 0
    registers: int = 0
    spills: int = 0
    stack: int = 0
    shared: int = 0
    seconds: float = 0.0
    problem: str = ""


def resources(workload: Workload, architecture: str) -> list[Resources]:
    """The kernels of all schedules of a workload; one that cannot be built is a row with the reason."""
    rows = []
    target = f"cuda -arch={architecture}"
    for name, scheduler in schedulers(workload, target).items():
        start = time.perf_counter()
        try:
            s, tensors = scheduler(workload, target)
            built = tensorlang.build(s, tensors, target=target, name=workload.operator)
        except Exception as problem:  # a schedule that cannot be built is a result, too
            rows.append(Resources(workload.name, name, architecture, problem=brief(problem)))
            continue
        seconds = time.perf_counter() - start
        rows += _kernels(workload.name, name, architecture, built, seconds)
    return rows


def _kernels(
    workload: str, schedule: str, architecture: str, built: tensorlang.runtime.Executable, seconds: float
) -> list[Resources]:
    report = built.report if isinstance(built, CudaExecutable) else None
    if report is None:
        return []
    return [
        Resources(
            workload=workload,
            schedule=schedule,
            architecture=architecture,
            kernel=kernel.name,
            threads=math.prod(kernel.block),
            registers=report[kernel.name].registers,
            spills=report[kernel.name].spills,
            stack=report[kernel.name].stack,
            shared=max(report[kernel.name].shared, sum(map(buffer_bytes, kernel.shared))),
            seconds=seconds,
        )
        for kernel in device_kernels(built.kernel)
    ]
