"""Which device of this machine a target means: targets of records name it, and candidates are timed on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorlang.errors import MissingDependency, TargetError
from tensorlang.nd import Device
from tensorlang.target.cuda import runtime as cuda
from tensorlang.target.detect import runs_here
from tensorlang.target.gpus import CUDA, DEFAULT_CUDA
from tensorlang.target.opencl import devices as opencl
from tensorlang.target.opencl.runtime import devices as opencl_devices
from tensorlang.target.spec import GPU_KINDS, Target


@dataclass(frozen=True, slots=True)
class TimedDevice:
    """A device that candidates run on: its number for `tensorlang.nd`, its driver, and whether it shares the CPUs."""

    place: Device
    driver: str
    on_cpu: bool


def is_device(target: Target) -> bool:
    """Whether the target's kernels run in the memory of a device, not the CPU's."""
    return target.kind in GPU_KINDS


def named_device(target: Target) -> Target:
    """The target with its device named and that device's limits: what records say, and are looked up by.

    OpenCL targets name the device, CUDA targets its architecture. A target of the CPU, or of a device that is not here,
    stays as it is.
    """
    if not is_device(target):
        return target
    try:
        return _named_opencl(target) if target.kind == "opencl" else _named_cuda(target)
    except (TargetError, MissingDependency):
        return target


def _named_opencl(target: Target) -> Target:
    return replace(target, cpu=str(opencl.chosen_device(target)), gpu=opencl.device_limits(target))


def _named_cuda(target: Target) -> Target:
    if target.cpu:
        return target
    architecture = cuda.architecture_of(cuda.current_device())
    usual, asked = CUDA[DEFAULT_CUDA], target.gpu or CUDA[DEFAULT_CUDA]
    limits = CUDA.get(architecture) or cuda.device_limits(target)
    return replace(target, cpu=architecture, gpu=limits.lowered(asked, usual))


def require_timed(target: Target) -> None:
    """Raise TargetError unless this machine can run and time kernels of a target; MissingDependency for a package."""
    if is_device(target):
        timed_device(target)
    elif target.kind != "llvm" or not runs_here(target):
        raise TargetError(f"target {target} cannot be timed on this machine; tune for 'llvm' (this machine)")


def timed_device(target: Target) -> TimedDevice:
    """The device of a target. TargetError when it is not here, MissingDependency for a missing package."""
    try:
        return _opencl_device(target) if target.kind == "opencl" else _cuda_device(target)
    except TargetError as error:
        text = f"target {target}: tuning measures on the device, which is not on this machine: {error}"
        raise TargetError(f"{text}; tune where it is, or for 'llvm' (this machine's CPU)") from None


def _opencl_device(target: Target) -> TimedDevice:
    device = opencl.chosen_device(target)
    return TimedDevice(Device("opencl", opencl_devices().index(device)), device.driver, not device.is_gpu)


def _cuda_device(target: Target) -> TimedDevice:
    number = cuda.current_device()
    own = cuda.architecture_of(number)
    if target.cpu and not cuda.runs_on(target.cpu, own):
        raise TargetError(f"the CUDA device here is {own}")
    version = str(cuda.cupy().cuda.runtime.driverGetVersion())
    return TimedDevice(Device("cuda", number), version, on_cpu=False)
