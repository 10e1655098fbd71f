"""Strided reads: rows that are transposed in registers, and vectors of which every n-th element is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te
from tensorlang.ir.expr import Expr
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import Tensor

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver5"


def turned(rows: int, columns: int, dtype: str, first: int = 0, target: str | None = None) -> Executable:
    """`B[c, w] = A[w, c + first] + 1`, vectors along w around the loop over c."""
    A = te.placeholder((rows, columns + 2 * first), dtype, "A")
    B = te.compute((columns, rows), lambda c, w: A[w, c + first] + 1, name="B")
    s = te.create_schedule(B.op)
    s[B].reorder("w", "c")
    s[B].vectorize("w")
    made: Executable = tensorlang.build(s, [A, B], target=target)
    return made


@given(
    st.integers(2, 40),
    st.integers(2, 90),
    st.sampled_from(["float32", "float64", "int8", "float16", "uint16"]),
    st.integers(0, 2),
)
@settings(max_examples=15)
def test_transposed(rows: int, columns: int, dtype: str, first: int) -> None:
    a = np.random.default_rng(rows).integers(0, 100, (rows, columns + 2 * first)).astype(dtype)
    made = np.zeros((columns, rows), dtype)
    turned(rows, columns, dtype, first)(a, made)
    np.testing.assert_array_equal(made, a[:, first : first + columns].T + 1)


@pytest.mark.parametrize("rows", [16, 14])
def test_no_element_is_read_alone(rows: int) -> None:
    assembly = turned(rows, 32, "float32", target=AVX512).get_source("asm")
    assert "vpermt2ps" in assembly or "vunpcklp" in assembly
    assert "vinsertps" not in assembly and "vmovss" not in assembly


def test_the_end_of_the_array_is_kept() -> None:
    """The last rows are as long as the array: reading further than the columns would leave it."""
    rows, columns = 16, 19
    page = np.full(rows * columns + 64, 7.0, "float32")
    a, made = page[: rows * columns].reshape(rows, columns), np.zeros((columns, rows), "float32")
    a[:] = np.arange(rows * columns).reshape(rows, columns)
    turned(rows, columns, "float32")(a, made)
    np.testing.assert_array_equal(made, a.T + 1)


def strided(count: int, step: int, dtype: str, cond: bool) -> tuple[Tensor, Tensor]:
    """Every `step`-th element, backwards for steps below zero; of some, only where the place is even."""
    A = te.placeholder(((count - 1) * abs(step) + 1,), dtype, "A")
    low = (count - 1) * abs(step) if step < 0 else 0

    def element(i: Expr) -> Expr:
        value = A[low + i * step]
        return te.if_then_else(te.all(i >= 1, i < count - 2), value, 0) if cond else value

    return A, te.compute((count,), element, name="B")


@pytest.mark.covering(1)
@pytest.mark.parametrize("cond", [False, True])
@pytest.mark.parametrize("step", [-1, 2, 3, 4])
@pytest.mark.parametrize(("count", "dtype"), [(16, "float32"), (37, "float32"), (24, "float64"), (70, "int8")])
def test_strided(count: int, step: int, dtype: str, cond: bool) -> None:
    A, B = strided(count, step, dtype, cond)
    s = te.create_schedule(B.op)
    s[B].vectorize("i")
    a = np.arange((count - 1) * abs(step) + 1).astype(dtype)
    made = np.full(count, 9, dtype)
    tensorlang.build(s, [A, B])(a, made)
    wanted = (a[::-1] if step < 0 else a)[:: abs(step)].copy()
    if cond:
        wanted[:1], wanted[-2:] = 0, 0
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("cond", [False, True])
def test_every_other_element_takes_two_loads_and_a_shuffle(cond: bool) -> None:
    A, B = strided(64, 2, "float32", cond)
    s = te.create_schedule(B.op)
    s[B].vectorize("i")
    assembly = tensorlang.build(s, [A, B], target=AVX512).get_source("asm")
    assert "vpermt2ps" in assembly or "vpermi2ps" in assembly or "vshufps" in assembly
    assert "vgather" not in assembly and "vinsertps" not in assembly


@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (23, 19), (70, 45)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_rows_are_read_backwards(rows: int, columns: int, dtype: str) -> None:
    """As where an image is rotated: along the rows, down the rows, or both."""
    a = np.random.default_rng(0).integers(0, 100, (rows, columns)).astype(dtype)
    A = te.placeholder(a.shape, dtype, "A")
    for down, along in ((1, -1), (-1, 1), (-1, -1)):

        def at(c: Expr, w: Expr, down: int = down, along: int = along) -> Expr:
            return A[w if down > 0 else rows - 1 - w, c if along > 0 else columns - 1 - c]

        B = te.compute((columns, rows), at, name="B")
        s = te.create_schedule(B.op)
        s[B].reorder("w", "c")
        s[B].vectorize("w")
        made = np.zeros((columns, rows), dtype)
        tensorlang.build(s, [A, B])(a, made)
        np.testing.assert_array_equal(made, a[::down, ::along].T)
