"""Printed CUDA, run on the CPU: shuffles, asynchronous copies, wide accesses, atomic updates."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from tensorlang.ir.expr import Const
from tensorlang.ir.stmt import DeviceKernel
from tensorlang.target.c_source import CUDA, device_source
from tensorlang.testing.cuda_emulation import emulate, unavailable
from tests.target.c_source.device_programs import Array
from tests.target.c_source.test_kernels import staged
from tests.target.c_source.test_together import argmax_kernel, check_reduction, updates
from tests.target.c_source.test_vectors import check_lanes

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")


def run(kernel: DeviceKernel, arrays: dict[str, Array], mode: Literal["late", "at_once"] = "late") -> None:
    """Fill the arrays that a kernel writes."""
    source = device_source(kernel, CUDA)
    grid = [int(extent.value) for extent in kernel.grid if isinstance(extent, Const)]
    given = [arrays[b.name] for b in kernel.params]
    words = [a.view(np.uint16) if a.dtype == np.float16 else a for a in given]
    bytes_ = source.shared_bytes if source.dynamic else 0
    emulate(source.text, kernel.name, grid, kernel.block, words, bytes_, mode=mode, seed=1)


@pytest.mark.parametrize("mode", ["late", "at_once"])
def test_asynchronous_copies(mode: Literal["late", "at_once"]) -> None:
    a, out = np.arange(1024, dtype=np.float32), np.ones((4, 256), np.float32)
    run(staged(), {"A": a, "out": out}, mode)
    wanted = a.reshape(4, 256).copy()
    wanted[3] = 0
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(("extents", "axes"), [((8, 5), "x"), ((64, 2), "x"), ((16, 4), "xy")])
def test_reductions(extents: tuple[int, int], axes: str) -> None:
    check_reduction(run, extents, axes)


@pytest.mark.parametrize("threads", [8, 96])
def test_tuples(threads: int) -> None:
    a = np.random.default_rng(4).integers(0, 5, (2, threads)).astype(np.float32)
    arrays = {"A": a, "most": np.zeros(2, np.float32), "where": np.zeros(2, np.int32)}
    run(argmax_kernel(threads), arrays)
    np.testing.assert_array_equal(arrays["most"], a.max(1))
    np.testing.assert_array_equal(arrays["where"], a.argmax(1))


def test_lanes() -> None:
    check_lanes(run)


def test_atomic_updates() -> None:
    a, out = np.array([1, 2, 1, 1] * 16, np.float16), np.array([3, 3, 3, 3, 3, 0], np.float16)
    run(updates("float16"), {"A": a, "out": out})
    np.testing.assert_array_equal(out, [83, -77, 1, 3, np.inf, 80])
