"""A limit that float32 rounds up to 2^31 leaves numbers that 32-bit integers do not have."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import te


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("limit", [2147483520, 2147483583, 2147483584, 2147483647])
def test_limits_of_int32(limit: int, source: str, vectors: bool) -> None:
    floats = np.array([0.0, 1.5, 2147483520.0, 2147483648.0, 1e30, np.inf, -1e30, -np.inf, np.nan] * 4, source)
    A = te.placeholder(floats.shape, source, "A")
    B = te.compute(A.shape, lambda i: te.max(te.min(A[i], limit), -(2**31)).astype("int32"), name="B")
    s = te.create_schedule(B.op)
    if vectors:
        s[B].vectorize("i")
    made = np.zeros(floats.shape, "int32")
    tensorlang.build(s, [A, B])(floats, made)
    most = min(int(np.array(limit, source)), 2**31 - 1)
    wanted = [0 if np.isnan(x) else int(min(max(float(x), -(2.0**31)), most)) for x in floats]
    assert made.tolist() == wanted
