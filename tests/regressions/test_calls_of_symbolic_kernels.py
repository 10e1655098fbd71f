"""Kernels of any size, as a schedule makes them, are called through machine code as those of one size are."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tensorlang import build, te
from tensorlang.errors import ArgumentError


def test_a_declared_size_does_not_send_calls_through_python() -> None:
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    kernel = build(te.create_schedule(C.op), [A, B, C], target="llvm")
    a, b, c = np.arange(5, dtype="f4"), np.ones(5, "f4"), np.zeros(5, "f4")
    kernel(a, b, c)
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        kernel(a, b, c)
    finally:
        sys.setprofile(None)
    assert entered == []
    np.testing.assert_array_equal(c, a + b)
    with pytest.raises(ArgumentError, match="B"):
        kernel(a, np.ones(4, "f4"), c)


def test_arguments_in_another_order_are_still_told_apart() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    C = te.compute((n,), lambda i: A[i] * 2, name="C")
    kernel = build(te.create_schedule(C.op), [C, A], target="llvm")
    a, c = np.arange(5, dtype="f4"), np.zeros(5, "f4")
    kernel(c, a)
    np.testing.assert_array_equal(a, np.arange(5))
    np.testing.assert_array_equal(c, a * 2)
