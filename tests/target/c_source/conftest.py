"""Running printed OpenCL on the device of this machine, if there is one, and the same statements one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import MissingDependency
from tensorlang.ir.interpret import evaluate
from tensorlang.ir.stmt import DeviceKernel
from tensorlang.target.c_source import OPENCL, device_source
from tensorlang.target.opencl import runtime
from tensorlang.target.opencl.runtime import OpenclDevice

Array = np.ndarray[Any, Any]
Run = Callable[..., int]


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> OpenclDevice:
    """The first OpenCL device; tests that need one are skipped without it."""
    os.environ.setdefault("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
    try:
        found = runtime.devices()
    except MissingDependency as error:
        pytest.skip(str(error))
    if not found:
        pytest.skip("no OpenCL driver: pip install intel-opencl-rt intel-cmplr-lib-rt, or apt install pocl-opencl-icd")
    return found[0]


@pytest.fixture(scope="session")
def run(device: OpenclDevice) -> Run:
    """`run(kernel, arrays by name, scalars by name)` fills the arrays that it writes; the number of the fault."""
    cl, queue = runtime.library(), runtime.own_queue(device)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR

    def call(kernel: DeviceKernel, arrays: Mapping[str, Array], scalars: Mapping[str, int] | None = None) -> int:
        source = device_source(kernel, OPENCL)
        built = runtime.kernel(runtime.build(queue.context, device, source.text, ()), kernel.name)
        given = [arrays[b.name] for b in kernel.params]
        raw = [np.ascontiguousarray(a).view(np.uint8) for a in given]
        buffers = [cl.Buffer(queue.context, flags, hostbuf=r) for r in raw]
        values = {v: (scalars or {})[v.name] for v in kernel.scalars}
        fault = np.zeros(1, np.int32)
        faults = [cl.Buffer(queue.context, flags, hostbuf=fault)] if source.uses_fault else []
        built.set_args(*buffers, *(np.int64(values[v]) for v in kernel.scalars), *faults)
        grid = [int(evaluate(extent, values)) for extent in kernel.grid]
        sizes = [blocks * threads for blocks, threads in zip(grid, kernel.block, strict=True)]
        cl.enqueue_nd_range_kernel(queue, built, sizes, list(kernel.block))
        for array, bytes_, buffer in zip(given, raw, buffers, strict=True):
            cl.enqueue_copy(queue, bytes_, buffer)
            array[...] = bytes_.view(array.dtype).reshape(array.shape)
        for buffer in faults:
            cl.enqueue_copy(queue, fault, buffer)
        queue.finish()
        return int(fault[0])

    return call
