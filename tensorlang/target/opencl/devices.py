"""Which OpenCL device a target means, what it allows, and whether kernels fit it."""

from __future__ import annotations

import math
import re

from tensorlang.errors import TargetError
from tensorlang.ir.stmt import DeviceKernel
from tensorlang.target.gpus import OPENCL
from tensorlang.target.opencl.runtime import OpenclDevice, devices
from tensorlang.target.spec import GpuLimits, Target

_EXTENSION = re.compile(r"#pragma OPENCL EXTENSION (\w+) *: *enable")
_MEANING = {
    "cl_khr_fp64": "float64",
    "cl_khr_fp16": "arithmetic of float16",
    "cl_khr_int64_base_atomics": "atomic updates of 64 bits",
    "cl_khr_int64_extended_atomics": "atomic minima and maxima of 64 bits",
    "cl_khr_subgroup_shuffle": "shuffles between the registers of threads, for scope 'warp'",
    "cl_intel_required_subgroup_size": "warps of 32 threads, for scope 'warp'",
}


def chosen_device(target: Target) -> OpenclDevice:
    """The first device whose "platform / name" holds the target's text, any case; the first of all without a text.

    GPUs come first. TargetError lists what there is, MissingDependency says how to install pyopencl.
    """
    there = devices()
    if not there:
        raise TargetError(
            "no OpenCL driver is installed: a GPU's comes with its driver; for the CPU there are "
            "pip install intel-opencl-rt intel-cmplr-lib-rt (x86-64 Linux) and the Debian package pocl-opencl-icd"
        )
    for device in there:
        if target.cpu.lower() in str(device).lower():
            return device
    raise TargetError(f"no OpenCL device -device={target.cpu}; there are {'; '.join(map(str, there))}")


def device_limits(target: Target) -> GpuLimits:
    """The limits of the device that a target means, as far as the target does not set lower ones."""
    return chosen_device(target).limits.lowered(target.gpu or OPENCL, OPENCL)


def check_fits(kernel: DeviceKernel, shared_bytes: int, device: OpenclDevice) -> None:
    """Raise TargetError, with what is asked and allowed, for blocks that a device cannot run."""
    check_threads(kernel, device.threads, device)
    for axis, asked, most in zip("xyz", kernel.block, device.block, strict=True):
        if asked > most:
            text = f"{kernel.name}: blocks of {asked} threads along threadIdx.{axis} (allowed: {most} on {device})"
            raise TargetError(f"{text}; split that axis by a smaller factor")
    if shared_bytes > device.local_bytes:
        text = f"{kernel.name}: {shared_bytes} bytes of shared memory a block (allowed: {device.local_bytes})"
        raise TargetError(f"{text} on {device}; choose smaller tiles, or fewer stages in scope shared")


def check_threads(kernel: DeviceKernel, most: int, device: OpenclDevice) -> None:
    """Raise TargetError for a block of more threads than `most`."""
    if math.prod(kernel.block) > most:
        block = " x ".join(map(str, kernel.block))
        text = f"{kernel.name}: blocks of {block} = {math.prod(kernel.block)} threads (allowed: {most} on {device})"
        raise TargetError(f"{text}; split the axes bound to threadIdx by smaller factors")


def check_extensions(name: str, text: str, device: OpenclDevice) -> None:
    """Raise TargetError when a program's text enables what a device does not have."""
    lacking = sorted(set(_EXTENSION.findall(text)) - device.extensions)
    if lacking:
        words = ", ".join(f"{_MEANING[word]} ({word})" if word in _MEANING else word for word in lacking)
        way_out = "use another dtype, scope 'shared' or -device="
        raise TargetError(f"{name} needs {words}, which {device} does not have; {way_out}")
