"""The opencl backend: the host part as Python, the kernels as OpenCL C, built by the driver of the device."""

from __future__ import annotations

import pickle
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency, TargetError
from tensorlang.ir.stmt import Kernel, Launch, Seq, Stmt, map_children
from tensorlang.nd import Device
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.host_program import device_kernels, host_program
from tensorlang.target.backend import TimedDevice
from tensorlang.target.c_source.dialect import OPENCL
from tensorlang.target.c_source.kernel import module_source
from tensorlang.target.c_source.source import Module
from tensorlang.target.gpus import OPENCL as USUAL
from tensorlang.target.opencl.devices import chosen_device, device_limits
from tensorlang.target.opencl.launch import OpenclLaunch, Program
from tensorlang.target.opencl.memory import as_opencl_array
from tensorlang.target.opencl.runtime import devices
from tensorlang.target.spec import GpuLimits, Target


@dataclass(frozen=True, slots=True)
class OpenclBackend:
    """Compiles kernels for OpenCL devices. Without the target's device, executables show their source only."""

    kind: str = "opencl"

    def limits(self, target: Target) -> GpuLimits:
        """What a block may use on the device; what every device is taken to have, where there is none."""
        return device_limits(target) if _is_here(target) else target.gpu or USUAL

    def resolved(self, target: Target) -> Target:
        """The target as it is: OpenCL C is for all devices."""
        return target

    def named(self, target: Target) -> Target:
        """The target with the name of its device, and its limits."""
        return replace(target, cpu=str(chosen_device(target)), gpu=device_limits(target))

    def timed(self, target: Target) -> TimedDevice:
        """The device of a target."""
        device = chosen_device(target)
        return TimedDevice(Device("opencl", devices().index(device)), device.driver, not device.is_gpu)

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return an executable, built at once if its device is there; TargetError for what the device does not have."""
        return _executable(kernel, module_source(device_kernels(kernel), OPENCL), target, signature)

    def pack(self, kernel: Kernel, target: Target) -> bytes:
        """The host part and the text of the kernels, whose built code is kept on disk for the other process."""
        module = module_source(device_kernels(kernel), OPENCL)
        _executable(kernel, module, target, None)
        return pickle.dumps((replace(kernel, body=_host_only(kernel.body)), module))

    def unpack(self, packed: bytes, target: Target) -> Executable:
        """Return a callable for a packed kernel."""
        kernel, module = pickle.loads(packed)
        return _executable(kernel, module, target, None)


BACKEND = OpenclBackend()


def _executable(kernel: Kernel, module: Module, target: Target, signature: Signature | None) -> Executable:
    host = host_program(kernel)
    launch = OpenclLaunch(Program(host, module, tuple(p.name for p in kernel.params), kernel.outputs, target))
    if _is_here(target):
        launch.build()
    return Executable(
        kernel,
        target,
        launch,
        sources={"opencl": lambda: module.text, "host": lambda: host.source},
        signature=signature,
        convert=as_opencl_array,
        stopwatch=launch.seconds,
    )


def _is_here(target: Target) -> bool:
    try:
        chosen_device(target)
    except (MissingDependency, TargetError):
        return False
    return True


def _host_only(stmt: Stmt) -> Stmt:
    """A host part whose launches tell all but what threads do."""
    if isinstance(stmt, Launch):
        return replace(stmt, kernel=replace(stmt.kernel, body=Seq(())))
    return map_children(stmt, _host_only)
