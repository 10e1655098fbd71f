"""The cuda backend: device kernels to CUDA text, to a cubin (kept on disk), to an executable. Building needs no GPU."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.stmt import Kernel, Launch, Seq, Stmt, map_children
from tensorlang.lowering.device.limits import check_limits
from tensorlang.nd import Device
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.backend import TimedDevice
from tensorlang.target.c_source import CUDA, Module, module_source
from tensorlang.target.cuda import runtime
from tensorlang.target.cuda.executable import CudaExecutable
from tensorlang.target.cuda.images import Images, KernelCode
from tensorlang.target.cuda.intrinsics import check_machine_code
from tensorlang.target.cuda.nvrtc import Compiled
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.target.cuda.spills import compile_without_spills
from tensorlang.target.gpus import CUDA as ROWS
from tensorlang.target.kinds import DEFAULT_CUDA
from tensorlang.target.spec import GpuLimits, Target


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """Compiles kernels for CUDA devices. Where there is none, executables show their code and cannot be called."""

    kind: str = "cuda"

    def limits(self, target: Target) -> GpuLimits:
        """What a block may use: as the table says of the architecture, or the current device, if none is named."""
        return runtime.device_limits(target)

    def resolved(self, target: Target) -> Target:
        """The target with an architecture: its own, else the current device's, else the usual one."""
        return replace(target, cpu=runtime.default_architecture(target))

    def named(self, target: Target) -> Target:
        """The target with the architecture of the current device, where it names none, and the limits of that."""
        if target.cpu:
            return target
        architecture = runtime.architecture_of(runtime.current_device())
        usual, asked = ROWS[DEFAULT_CUDA], target.gpu or ROWS[DEFAULT_CUDA]
        limits = ROWS.get(architecture) or runtime.device_limits(target)
        return replace(target, cpu=architecture, gpu=limits.lowered(asked, usual))

    def timed(self, target: Target) -> TimedDevice:
        """The current device, if it runs code for the target."""
        number = runtime.current_device()
        own = runtime.architecture_of(number)
        if target.cpu and not runtime.runs_on(target.cpu, own):
            raise TargetError(f"the CUDA device here is {own}")
        version = str(runtime.cupy().cuda.runtime.driverGetVersion())
        return TimedDevice(Device("cuda", number), version, on_cpu=False)

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return an executable; TargetError for blocks that the target cannot run, MissingDependency without NVRTC.

        Without `-arch` the code is for the current device, and compiled again on a call for that of other arrays.
        """
        module = _module(kernel, target)
        code = compile_without_spills(module.text, runtime.default_architecture(target))
        build = None if target.cpu else partial(_cubin, module.text)
        forms: Mapping[str, Callable[[], str]] = {
            "cuda": lambda: code.text,
            "ptx": code.ptx,
            "sass": lambda: sass(code.cubin),
        }
        listed = tuple(form for form in forms if form != "sass" or disassembler())
        images = _images(kernel.name, module, code, build)
        return CudaExecutable(
            kernel, target, images, forms=forms, listed=listed, signature=signature, report=code.report
        )

    def pack(self, kernel: Kernel, target: Target) -> bytes:
        """Compile a kernel, and return all that another process of this machine needs to call it."""
        module = _module(kernel, target)
        code = compile_without_spills(module.text, runtime.default_architecture(target))
        bare = replace(kernel, body=_without_bodies(kernel.body))
        return pickle.dumps((bare, _images(kernel.name, module, code, None)))

    def unpack(self, packed: bytes, target: Target) -> Executable:
        """An executable without sources, for the architecture that it was packed for."""
        kernel, images = pickle.loads(packed)
        return CudaExecutable(kernel, target, images)


BACKEND = CudaBackend()


def _module(kernel: Kernel, target: Target) -> Module:
    """The text of all kernels that a host part launches, if they fit the target, and the device when it is here."""
    limits = runtime.device_limits(target)
    check_limits(kernel, replace(target, gpu=limits))
    check_machine_code(device_kernels(kernel), runtime.default_architecture(target))
    module = module_source(device_kernels(kernel), CUDA)
    for source in module.kernels:
        if source.shared_bytes > limits.shared_bytes:
            text = (
                f"{source.name} needs {source.shared_bytes} bytes of shared memory in a block, those of its reductions"
            )
            raise TargetError(
                f"{text} included, and {target} allows {limits.shared_bytes}; use smaller tiles, or narrower elements"
            )
    return module


def _images(name: str, module: Module, code: Compiled, build: Callable[[str], bytes] | None) -> Images:
    codes = {
        s.name: KernelCode(s.name, s.shared_bytes if s.dynamic else 0, s.uses_fault, s.wide_accesses, s.maps)
        for s in module.kernels
    }
    return Images(name, code.architecture, code.cubin, codes, module.messages, build)


def _cubin(text: str, architecture: str) -> bytes:
    return compile_without_spills(text, architecture).cubin


def _without_bodies(stmt: Stmt) -> Stmt:
    """A host part whose launches say how, and no longer what."""
    if isinstance(stmt, Launch):
        return Launch(replace(stmt.kernel, body=Seq(())), stmt.scalars)
    return map_children(stmt, _without_bodies)
