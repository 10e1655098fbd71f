"""Kernels of the benchmarks need little memory besides their arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tensorlang
from benchmarks import own
from benchmarks.operators import WIDTHS
from benchmarks.peers.serve import Given
from benchmarks.workloads import WORKLOADS, Workload
from tensorlang import topi
from tensorlang.target import parse
from tensorlang.target.llvm.storage.scratch import scratch_memory
from tensorlang.te.operation import Tensor
from tests.topi.programs import shape_of

MOST = 1.5
"""Scratch memory, in sizes of the operands."""
BUILT = [w for w in WORKLOADS if w.operator != "jacobi" and not w.name.endswith("-relu")]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("workload", BUILT, ids=lambda w: w.name)
def test_scratch_is_at_most_half_more_than_the_operands(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are known ahead come laid out; laying them out is not part of the kernel."""
    programs = list[tuple[Sequence[Tensor], Tensor]]()

    def kernel(inputs: Sequence[Tensor], output: Tensor, arrays: Sequence[Any]) -> Callable[[], Any]:
        programs.append((inputs, output))
        return lambda: np.zeros(shape_of(output), output.dtype)

    monkeypatch.setattr(own, "kernel", kernel)
    arrays = {
        name: np.zeros(shape, np.int8 if workload.dtype == "int8" else np.float32)
        for name, shape in workload.shapes.items()
    }
    own.BUILDERS[workload.operator](Given(arrays, workload.constant, workload.all_options, 1))
    inputs, output = programs[-1]
    lowered = tensorlang.lower(topi.schedule(output), [*inputs, output]).kernel
    needed = scratch_memory(lowered, {}, parse(None).cores).total
    operands = WIDTHS[workload.dtype] * sum(array.size for array in arrays.values())
    assert needed <= MOST * operands
