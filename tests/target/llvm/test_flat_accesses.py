"""Machine code of vector loops whose indices divide, and of choices between values that are read anyway."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tensorlang
from tensorlang import te


@pytest.mark.parametrize("shape", [(7, 5, 3), (64, 48, 40), (10, 49)])
def test_a_fused_loop_runs_along_memory(shape: tuple[int, ...]) -> None:
    A = te.placeholder(shape, name="A")
    B = te.compute(shape, lambda *i: A(*i) * 2.0, name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(s[B].fuse(*s[B].op.axis), factor=16)
    s[B].vectorize(inner)
    kernel = tensorlang.build(s, [A, B], "llvm")
    assert not re.search("div|mulx|gather|insertps", kernel.source("asm"))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    made = np.empty_like(x)
    kernel(x, made)
    np.testing.assert_array_equal(made, x * 2)


def test_the_larger_of_two_elements_is_read_once() -> None:
    A, B = te.placeholder((64,), name="A"), te.placeholder((64,), name="B")
    C = te.compute((64,), lambda i: te.select(A[i] > B[i], A[i], B[i]), name="C")
    s = te.create_schedule(C.op)
    s[C].vectorize(C.op.axis[0])
    text = tensorlang.build(s, [A, B, C], "llvm").source("ll")
    assert "masked" not in text
    assert "select" in text


def test_what_is_read_on_one_side_only_stays_guarded() -> None:
    A, B = te.placeholder((64,), name="A"), te.placeholder((64,), name="B")
    C = te.compute((64,), lambda i: te.select(A[i] > 0.0, A[i], te.select(i < 60, B[i + 4], 0.0)), name="C")
    s = te.create_schedule(C.op)
    s[C].vectorize(C.op.axis[0])
    kernel = tensorlang.build(s, [A, B, C], "llvm")
    a, b = (np.random.default_rng(k).standard_normal(64).astype(np.float32) for k in (0, 1))
    made = np.empty_like(a)
    kernel(a, b, made)
    np.testing.assert_array_equal(made, np.where(a > 0, a, np.append(b[4:], np.zeros(4, np.float32))))
