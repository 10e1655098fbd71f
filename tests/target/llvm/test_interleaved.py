"""Pixels: rows of memory that are taken apart and put together in registers hold the same elements, and no others."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr
from tensorlang.runtime.executable import Executable

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4"
AVX2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"


def mixed(pixels: int, channels: int, picks: list[int], dtype: str, target: str | None = None) -> Executable:
    """`B[w, c] = A[w, picks[c]] + A[w, 0]`, vectors along w around the channels, which are written out."""
    A = te.placeholder((pixels, channels), dtype, "A")

    def at(w: Expr, c: Expr) -> Expr:
        value = A[w, picks[-1]]
        for n, pick in enumerate(picks[:-1]):
            value = te.if_then_else(c == n, A[w, pick], value)
        return te.any(value, A[w, 0]) if dtype == "bool" else value + A[w, 0]

    B = te.compute((pixels, len(picks)), at, name="B")
    s = te.create_schedule(B.op)
    s[B].unroll("c")
    s[B].vectorize("w")
    s[B].reorder("w", "c")
    made: Executable = tensorlang.build(s, [A, B], target=target)
    return made


@settings(max_examples=20)
@given(
    st.integers(1, 150),
    st.integers(1, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1), min_size=1, max_size=5))),
    st.sampled_from(["float32", "float64", "uint8", "int16", "float16", "bool", "int64"]),
    st.sampled_from([None, "llvm -mcpu=haswell"]),
)
def test_channels_are_mixed(pixels: int, program: tuple[int, list[int]], dtype: str, target: str | None) -> None:
    channels, picks = program
    a = np.random.default_rng(pixels).integers(0, 2 if dtype == "bool" else 60, (pixels, channels))
    a = a.astype(dtypes.info(dtype).numpy)
    made = np.zeros((pixels, len(picks)), a.dtype)
    mixed(pixels, channels, picks, dtype, target)(a, made)
    np.testing.assert_array_equal(made, a[:, picks] | a[:, :1] if dtype == "bool" else a[:, picks] + a[:, :1])
