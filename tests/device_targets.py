"""The targets with threads that tests run programs on; a device that is not here skips its tests, and they say why."""

from __future__ import annotations

import pytest

from tensorlang.errors import MissingDependency, TargetError
from tensorlang.target.cuda import runtime as cuda
from tensorlang.target.cuda.intrinsics import has
from tensorlang.target.opencl import runtime as opencl


def why_no_opencl() -> str:
    """Why no OpenCL kernel runs here; empty when one does."""
    try:
        return "" if opencl.devices() else "no OpenCL driver is installed"
    except MissingDependency as error:
        return str(error)


def why_no_cuda() -> str:
    """Why no CUDA kernel runs here; empty when one does."""
    try:
        cuda.cupy()
    except (MissingDependency, TargetError) as error:
        return str(error)
    return ""


needs_opencl = pytest.mark.skipif(bool(why_no_opencl()), reason=why_no_opencl())
needs_cuda = (pytest.mark.skipif(bool(why_no_cuda()), reason=why_no_cuda()), pytest.mark.cuda_device)
"""The second mark chooses the tests of devices: `-m cuda_device`."""
on_opencl, on_cuda = pytest.param("opencl", marks=needs_opencl), pytest.param("cuda", marks=needs_cuda)
DEVICE_TARGETS = [pytest.param("interpreter"), on_opencl, on_cuda]
"""For the parameter `target`. The interpreter runs the threads of a block in lockstep and refuses races."""


def needs_instructions_of(architecture: str) -> None:
    """Skip a test of a CUDA device unless the device has the instructions of an architecture."""
    own = cuda.architecture_of(cuda.current_device())
    if not has(own, architecture):
        pytest.skip(f"it takes instructions of {architecture}, and the device is {own}")
