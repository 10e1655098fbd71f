"""Schedules with bound loops, lowered and printed as CUDA C, run on the CPU as the reference does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import KernelError
from tensorlang.ir.interpret import evaluate as extent_of
from tensorlang.te.reference import evaluate
from tensorlang.testing import assert_allclose
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tensorlang.testing.cuda_emulation.runner import Mode
from tensorlang.testing.cuda_emulation.translate import translate
from tests.programs import Case, argmax, row_sum
from tests.threaded_programs import THREAD_X, reduced_by_threads, shared_matmul, two_kernels

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

n = te.var("n")


def check(case: Case, mode: Mode = "late", seed: int = 0, **sizes: int) -> None:
    """Compare what a schedule's CUDA text computes on whole numbers with the reference."""
    s, args = case
    kernel = tensorlang.lower(s, args, target="cuda").kernel
    values = {v: sizes[v.name] for v in kernel.sizes}
    shapes = {p.name: [int(extent_of(extent, values)) for extent in p.shape] for p in kernel.params}
    rng = np.random.default_rng(0)
    arrays = {p.name: rng.integers(-3, 4, shapes[p.name]).astype(p.dtype) for p in kernel.params}
    wanted = evaluate(s.original, {name: a.copy() for name, a in arrays.items() if name not in kernel.outputs}, sizes)
    emulate_program(kernel, arrays, sizes, mode=mode, seed=seed)
    for name in kernel.outputs:
        assert_allclose(arrays[name], wanted[name])


CASES: dict[str, Callable[[], Case]] = {
    "matmul in shared memory": lambda: shared_matmul(13, 21, 19),
    "block sum": lambda: reduced_by_threads(row_sum(5, 50, "float16"), "B", 16),
    "block argmax": lambda: reduced_by_threads(argmax(6, 29), "T", 8),
}


@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str) -> None:
    for seed in range(3):
        check(CASES[name](), seed=seed)


@pytest.mark.parametrize("size", [0, 1, 31, 40])
def test_kernels_of_any_size(size: int) -> None:
    check(two_kernels(n), n=size)


def test_faults_are_raised() -> None:
    A, places = te.placeholder((6,), name="A"), te.placeholder((16,), "int32", name="I")
    C = te.compute((16,), lambda i: A[places[i]] + 1, name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], THREAD_X)
    kernel = tensorlang.lower(s, (A, places, C), target="cuda").kernel
    a, where, out = np.arange(6, dtype=np.float32), np.arange(16, dtype=np.int32) % 6, np.zeros(16, np.float32)
    emulate_program(kernel, {"A": a, "I": where, "C": out})
    assert out.tolist() == (a[where] + 1).tolist()
    where[13] = 6
    with pytest.raises(KernelError, match=r"C reads A\[I\[i\]\] out of bounds of A"):
        emulate_program(kernel, {"A": a, "I": where, "C": out})


def test_the_kernels_of_a_text_are_found() -> None:
    text = """
    template <int N> __global__ void grown(float *x) { x[N] = 1.f; }
    // __global__ void told(int x);
    extern "C" __global__ void __launch_bounds__(256, 1)
    first(const float *__restrict__ x, int (n)) { if (n) { } }
    __device__ int no(int x) { return x; }
    __launch_bounds__(32) __global__ void second() { no(1); }
    """
    assert translate(text).kernels == ("first", "second")
