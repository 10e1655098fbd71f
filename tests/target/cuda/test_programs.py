"""Whole programs on a fake CuPy, whose kernels the device interpreter runs: arguments, scratch memory and faults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.errors import KernelError
from tensorlang.ir import threads
from tensorlang.ir.stmt import DeviceKernel, Fail, Kernel, Launch, walk
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.cuda.executable import CudaExecutable
from tests.target.cuda.compiled import needs_nvrtc
from tests.target.cuda.fake_cupy import FakeCupy
from tests.target.cuda.vector_programs import SIZES, chained, given, pick

pytestmark = needs_nvrtc


def interpreted(cupy: FakeCupy, f: CudaExecutable) -> CudaExecutable:
    """Let the interpreter be the kernels of an executable."""
    for kernel in device_kernels(f.kernel):
        cupy.kernels[kernel.name] = partial(run_kernel, kernel)
    return f


def run_kernel(kernel: DeviceKernel, grid: Any, block: Any, *arguments: Any) -> None:
    """Run one launch; a fault goes to its place as the message's number."""
    count = len(kernel.params)
    typed = zip(kernel.params, arguments[:count], strict=True)
    arrays = {p.name: memory.view(dtypes.info(p.dtype).numpy) for p, memory in typed}
    scalars: Mapping[str, int] = {v.name: int(x) for v, x in zip(kernel.scalars, arguments[count:], strict=False)}
    alone = Kernel(kernel.name, kernel.params, kernel.scalars, tuple(arrays), Launch(kernel, kernel.scalars))
    assert block == kernel.block
    try:
        threads.run(alone, arrays, scalars)
    except KernelError as error:
        messages = [stmt.message for stmt in walk(kernel.body) if isinstance(stmt, Fail)]
        arguments[-1][0] = 1 + next(k for k, message in enumerate(messages) if message in str(error))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_kernels_meet_in_scratch_memory(cupy: FakeCupy, dtype: str) -> None:
    f = interpreted(cupy, chained(dtype))
    for n in SIZES:
        a, b, d = given(n, dtype)
        f(a, b, d)
        assert np.array_equal(d, a + b + b)
    assert len({entry[1] for entry in cupy.log if entry[0] == "launch"}) == 2


def test_a_graph_of_two_kernels_replays(cupy: FakeCupy) -> None:
    f = interpreted(cupy, chained())
    a, b, d = (cupy.array(x) for x in given(100))
    graph = f.graph(a, b, d)
    for step in range(3):
        a.memory[...] = step
        graph.launch()
        assert np.array_equal(d.memory, step + 2 * b.memory)


def test_a_place_outside_is_a_fault_of_its_call(cupy: FakeCupy) -> None:
    f = interpreted(cupy, pick())
    values, places, found = np.arange(10, dtype=np.float32), np.array([3, 1, 9, 0], np.int32), np.zeros(4, np.float32)
    f(values, places, found)
    assert found.tolist() == [3, 1, 9, 0]
    places[2] = 10
    with pytest.raises(KernelError, match=r"^pick: .*where"):
        f(values, places, found)
    places[2] = 5
    f(values, places, found)
    assert found.tolist() == [3, 1, 5, 0]
