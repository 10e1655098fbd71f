"""Narrow floats: bfloat16 vectors of every length (LLVM's own type aborts the process on some), rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes, te
from tensorlang.testing.check import check_schedule


@pytest.mark.parametrize(
    ("dtype", "extent"), [*(("bfloat16", n) for n in (2, 3, 9, 25, 41)), ("float8_e5m2", 3), ("float8_e4m3fn", 25)]
)
def test_vectors_of_any_length(dtype: str, extent: int) -> None:
    A = te.placeholder((extent,), name="A", dtype=dtype)

    def backwards(i: te.Axis) -> Any:
        return A[extent - 1 - i]

    B = te.compute((extent,), lambda i: -backwards(i) * 2 + te.abs(A[i]), name="B")
    C = te.compute((extent,), lambda i: te.if_then_else(A[i] < 0, te.const(1.5, dtype), backwards(i)), name="C")
    D = te.compute((extent,), lambda i: te.floormod(A[i], backwards(i) + 0.5), name="D")
    E = te.compute((extent,), lambda i: te.max(A[2 * (i // 2)], 0).astype("float32"), name="E")
    s = te.create_schedule([B.op, C.op, D.op, E.op])
    for T in (B, C, D, E):
        s[T].vectorize(T.op.axis[0])
    check_schedule(s, [A, B, C, D, E])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_truncated_quotient_is_rounded_once(dtype: str) -> None:
    A, B = te.placeholder((2,), name="A", dtype=dtype), te.placeholder((2,), name="B", dtype=dtype)
    C = te.compute((2,), lambda i: te.truncdiv(A[i], B[i]), name="C")
    numpy_dtype = dtypes.info(dtype).numpy
    inputs = {"A": np.array([32767, 21164]).astype(numpy_dtype), "B": np.array([24.3, 98]).astype(numpy_dtype)}
    check_schedule(te.create_schedule(C.op), [A, B, C], inputs=inputs)
