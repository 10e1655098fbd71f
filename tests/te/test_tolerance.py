"""Tolerances accept every correct order of a sum and refuse a missing element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes, te
from tensorlang.te.program import Program, canonical
from tensorlang.te.reference import evaluate, tolerance


def dot(length: int, dtype: str) -> Program:
    A, B = (te.placeholder((length,), dtype, name=n) for n in "AB")
    k = te.reduce_axis((0, length), "k")
    return canonical([te.compute((), lambda: te.sum(A[k] * B[k], axis=k), name="C")])[0]


def sequential(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for x, y in zip(a, b):
        total = total + x * y
    return total


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("length", [1, 7, 100, 3000])
@pytest.mark.parametrize("positive", [True, False])
def test_sequential_sums_are_within(dtype: str, length: int, positive: bool) -> None:
    program = dot(length, dtype)
    rtol, atol = tolerance(program)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        a, b = (rng.standard_normal(length).astype(dtypes.info(dtype).numpy) for _ in "ab")
        if positive:
            a, b = abs(a), abs(b)
        wanted = float(evaluate(program, [a, b])["C"])
        assert abs(float(sequential(a, b)) - wanted) <= atol + rtol * abs(wanted)


@pytest.mark.parametrize(("dtype", "length"), [("float32", 1000), ("float64", 1000), ("float32", 1), ("float16", 8)])
def test_a_missing_term_is_outside(dtype: str, length: int) -> None:
    program = dot(length, dtype)
    rtol, atol = tolerance(program)
    ones = np.ones(length, dtype)
    wanted = float(evaluate(program, [ones, ones])["C"])
    assert abs((wanted - 1) - wanted) > atol + rtol * wanted


def test_programs_without_floats_are_exact() -> None:
    assert tolerance(dot(100, "int8")) == (0.0, 0.0)


def test_symbolic_lengths() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), "k")
    program = canonical([te.compute((), lambda: te.sum(A[k], axis=k), name="C")])[0]
    assert tolerance(program, {"n": 16}) < tolerance(program, {"n": 1024}) == tolerance(program)


def test_chains_add_up() -> None:
    A = te.placeholder((64,), name="A")
    one = te.compute((64,), lambda i: te.exp(A[i]))
    two = te.compute((64,), lambda i: te.exp(one[i]))
    first, second = (tolerance(canonical([t])[0])[0] for t in (one, two))
    assert first < second < 3 * first
