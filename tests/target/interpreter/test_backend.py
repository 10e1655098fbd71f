"""The interpreter behind the face of an executable."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, KernelError
from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.stmt import Fail, If, LoopKind
from tensorlang.target.backend import backend
from tensorlang.target.spec import Target

TARGET = Target("interpreter")
i, n = indices("i n")
A, B = array("A", (n,)), array("B", (n,))


def test_it_runs_with_sizes_bound_from_shapes() -> None:
    body = loop(i, 0, n, store(B, i, load(A, i) * 2.0), LoopKind.BOUND, "threadIdx.x")
    double = backend("interpreter").compile(kernel("double", [A, B], "B", body, [n]), TARGET)
    a, b = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    double(a, b)
    np.testing.assert_array_equal(b, 2 * a)
    assert "def kernel(" in double.source("python")
    assert double.source("loops").startswith("kernel double(")


def test_it_refuses_what_does_not_fit() -> None:
    body = loop(i, 0, n, store(B, i, load(A, i)))
    copy = backend("interpreter").compile(kernel("copy", [A, B], "B", body, [n]), TARGET)
    with pytest.raises(ArgumentError, match="B"):
        copy(np.zeros(5, np.float32), np.zeros(4, np.float32))


def test_a_fault_is_raised_after_the_kernel() -> None:
    body = loop(i, 0, n, [If(load(A, i) < 0.0, Fail("A has a negative element")), store(B, i, load(A, i))])
    copy = backend("interpreter").compile(kernel("copy", [A, B], "B", body, [n]), TARGET)
    a, b = np.array([1, -2, 3], np.float32), np.zeros(3, np.float32)
    with pytest.raises(KernelError, match="A has a negative element"):
        copy(a, b)
    np.testing.assert_array_equal(b, a)
