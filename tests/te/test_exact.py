"""Arithmetic of axes is exact in indices and conditions; what wraps is seen by every analysis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import build, lower, te
from tensorlang.errors import KernelError
from tensorlang.te.reference import evaluate
from tensorlang.testing.check import TARGETS, check_schedule

N = 60000  # N * 100000 is beyond int32

INDICES: dict[str, Callable[[te.Axis], Any]] = {
    "int32 arithmetic": lambda i: (i * 100000) % 7,
    "a product of several": lambda i: te.floormod(i * 7919 * 31, 100),
    "a narrowing cast": lambda i: (i.astype("int64") * 100000).astype("int32") % 7,
    "beyond int64": lambda i: te.floormod(i.astype("int64") * 6364136223846793005, 100),
    "uint8": lambda i: i.astype("uint8"),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_means_the_same_everywhere(name: str) -> None:
    A = te.placeholder((256,), name="A")
    B = te.compute((256,), lambda i: A[i] + 1, name="B")
    C = te.compute((N,), lambda i: B[INDICES[name](i)] + i * 100000, name="C")
    s = te.create_schedule(C.op)
    i_o, i_i = s[C].split("i", factor=16)
    s[B].compute_at(s[C], i_o)
    s[C].vectorize(i_i)
    check_schedule(s, [A, C], targets=("llvm",))


def test_a_condition_is_exact_and_so_guards_its_reads() -> None:
    A = te.placeholder((50,), name="A")
    C = te.compute((N,), lambda i: te.if_then_else(i * 100000 < 5000000, A[i], 0.0), name="C")
    out = evaluate(te.create_schedule(C.op).original, {"A": np.ones(50, np.float32)})["C"]
    assert out.sum() == 50
    check_schedule(te.create_schedule(C.op), [A, C])


@pytest.mark.parametrize("target", TARGETS)
def test_an_unsigned_condition_wraps_and_proves_nothing(target: str) -> None:
    A = te.placeholder((10,), name="A")
    C = te.compute((18,), lambda i: te.if_then_else((i - 5).astype("uint32") >= 3, A[i - 8], 0.0), name="C")
    kernel = build(te.create_schedule(C.op), [A, C], target=target)
    with pytest.raises(KernelError, match="out of bounds of A"):
        kernel(np.zeros(10, np.float32), np.zeros(18, np.float32))


def test_a_value_wraps_in_its_dtype() -> None:
    C = te.compute((N,), lambda i: i * 100000, name="C")
    made = evaluate(te.create_schedule(C.op).original, [])["C"]
    np.testing.assert_array_equal(made, (np.arange(N) * 100000).astype(np.int32))
    check_schedule(te.create_schedule(C.op), [C], targets=("llvm",))


def test_an_axis_beyond_int32_is_exact() -> None:
    side = 1 << 20
    A = te.placeholder((side * side,), name="A")
    C = te.compute((side, side), lambda i, j: A[i * side + j], name="C")
    assert "C[i, j] = A[1048576 * i + j]" in str(lower(te.create_schedule(C.op), [A, C]))
    D = te.compute((2**33,), lambda i: i.astype("float32"), name="D")
    assert "D[i] = float32(i)" in str(lower(te.create_schedule(D.op), [D]))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "uint32", "int64", "uint64"])
def test_arithmetic_on_data_wraps_in_conditions_of_reductions(dtype: str) -> None:
    U, k = te.placeholder((6,), name="U", dtype=dtype), te.reduce_axis((0, 6), "k")
    C = te.compute((), lambda: te.sum(k + 1, axis=k, where=U[k] + 1 > U[k]), name="C")
    D = te.compute((), lambda: te.sum(k + 1, axis=k, where=U[k] > te.const(100, dtype)), name="D")
    high = np.iinfo(dtype).max
    data = np.array([high, 0, 1, high - 1, 50, high], dtype)
    check_schedule(te.create_schedule([C.op, D.op]), [U, C, D], inputs={"U": data})
