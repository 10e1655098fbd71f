"""Matrices by one vector that users write themselves: rows side by side, or columns in order, as the library's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.target import parse
from tensorlang.te.operation import Tensor
from tests.topi.programs import close, given, run_all

SMALL = replace(parse("llvm"), vector_bytes=64, caches=(1 << 10, 8 << 10, 16 << 10), cores=1)
"""A machine for which small arrays come from memory."""
TERMS = 200


def product(weight: Tensor, x: Tensor, turned: bool = False, name: str = "y") -> Tensor:
    """The sums of the products, in float32."""
    k = te.reduce_axis((0, TERMS), "k")

    def element(i: te.Var) -> te.Expr:
        a = weight[k, i] if turned else weight[i, k]
        return te.sum(a.astype("float32") * x[k].astype("float32"), axis=k)

    return te.compute((weight.shape[1 if turned else 0],), element, name=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rows", [512, 345])
def test_rows_that_fill_the_first_cache_share_the_vector(dtype: str, rows: int) -> None:
    (weight, w), (x, v), (b, c) = given("w", rows, TERMS, dtype=dtype), given("x", TERMS), given("b", rows)
    y = product(weight, x)
    out = te.compute((rows,), lambda i: te.max(y[i] + b[i], 0.0), name="out")
    text = str(tensorlang.lower(topi.schedule(out, SMALL), [weight, x, b, out]))
    assert text.split("reduce_tree")[1].split("vectorized")[0].count(", k]") == 4
    wanted = w.astype(np.float64) @ v
    for made, exact in zip(
        run_all([y, out], (weight, w), (x, v), (b, c), target=SMALL), (wanted, np.maximum(wanted + c, 0)), strict=True
    ):
        close(made, exact)


def test_rows_of_a_batch() -> None:
    (weight, w), (x, v) = given("w", 3, 256, TERMS), given("x", 3, TERMS)
    k = te.reduce_axis((0, TERMS), "k")
    out = te.compute((3, 256), lambda n, i: te.sum(weight[n, i, k] * x[n, k], axis=k), name="out")
    text = str(tensorlang.lower(topi.schedule(out, SMALL), [weight, x, out]))
    assert text.count(", k] * ") == 4
    (made,) = run_all([out], (weight, w), (x, v), target=SMALL)
    close(made, np.einsum("nik,nk->ni", w.astype(np.float64), v))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_thread_reads_its_part_of_rows_from_memory_in_order(dtype: str, cores: int) -> None:
    (weight, w), (x, v) = given("w", TERMS, 130, dtype=dtype), given("x", TERMS)
    y = product(weight, x, turned=True)
    steps = str(topi.schedule(y, replace(SMALL, cores=cores)))
    assert f"split('i', factor={-(-130 // cores // 16) * 16 if cores > 1 else 130}," in steps
    assert "split('k', factor=8," in steps
    assert "split('k', factor=4," in str(topi.schedule(y, parse("llvm")))  # near
    (made,) = run_all([y], (weight, w), (x, v), target=replace(SMALL, cores=cores))
    close(made, w.astype(np.float64).T @ v)
