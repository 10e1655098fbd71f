"""The schedules that the benchmark of stencils times: bit for bit what the loops as declared compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorlang
from benchmarks.stencils import STENCILS, Stencil, jacobi_rows
from examples.polybench.stencils import jacobi_2d
from tensorlang import te
from tensorlang.runtime.executable import Executable


@pytest.mark.sampled(2)
@pytest.mark.parametrize("tiled", [False, True], ids=["untiled", "tiled"])
@pytest.mark.parametrize("stencil", STENCILS, ids=lambda stencil: stencil.name)
def test_the_bits_are_those_of_the_declared_loops(stencil: Stencil, tiled: bool) -> None:
    edge, short = 45 if len(stencil.shape) == 2 else 30, replace(stencil, steps=5)
    results = []
    for plan in (stencil.tiled if tiled else stencil.untiled, lambda stage: None):
        arrays = short.fresh(edge)
        s, given = short.schedule(plan, edge)
        tensorlang.build(s, given)(*arrays)
        results.append(arrays)
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(got, wanted)


def _jacobi(edge: int, threads: int, target: str = "llvm") -> Executable:
    grids = [te.placeholder((edge, edge), "float32", name=name) for name in "AB"]
    s = te.create_schedule(jacobi_2d(5, edge, *grids)[0].op)
    if threads:
        jacobi_rows(s[s.outputs[0]], 2, 4, threads)
    run: Executable = tensorlang.build(s, grids, target=target)
    return run


@pytest.mark.sampled(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("edge", [3, 17, 45, 300])
def test_rows_of_copies_have_the_bits_of_the_declared_loops(edge: int, threads: int) -> None:
    start = np.random.default_rng(0).random((2, edge, edge), dtype="f4")
    got, wanted = start.copy(), start.copy()
    _jacobi(edge, threads)(*got)
    _jacobi(edge, 0)(*wanted)
    np.testing.assert_array_equal(got, wanted)


def test_rows_of_copies_are_read_line_by_line() -> None:
    assembly = _jacobi(300, 1, "llvm -mcpu=skylake-avx512").source("asm")
    assert "valignd" in assembly
    assert "valignd" not in _jacobi(300, 1, "llvm -mcpu=haswell").source("asm")
