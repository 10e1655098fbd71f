"""A masked store of one lane writes one element, however wide the numbers were that it was computed from."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Expr, cast
from tensorlang.ir.stmt import If, LoopKind
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse

(AT,) = indices("j")
WIDER = [
    ("int32", "int16"),
    ("int32", "int8"),
    ("float32", "bfloat16"),
    ("float32", "float8_e4m3fn"),
    ("int64", "int32"),
    ("float32", "uint8"),
]
WIDTH = 16


@pytest.mark.covering(1)
@pytest.mark.parametrize(("width", "lane"), [(16, 0), (16, 5), (16, 15), (3, 1), (5, 4), (2, 1), (7, 0)])
@pytest.mark.parametrize(("source", "dtype"), WIDER)
def test_neighbours_of_a_lane_that_is_known_are_kept(source: str, dtype: str, width: int, lane: int) -> None:
    a, b = array("A", (WIDTH,), source), array("B", (WIDTH + 4,), dtype)
    one: Expr = AT.equal(lane)
    body = loop(AT, 0, width, If(one, store(b, AT, cast(load(a, AT), dtype))), LoopKind.VECTORIZED)
    given, made = np.arange(1, WIDTH + 1).astype(source), np.full(WIDTH + 4, 99).astype(dtypes.info(dtype).numpy)
    wanted = made.copy()
    wanted[lane] = lane + 1
    backend("llvm").compile(kernel("one", [a, b], "B", body), parse("llvm"))(given, made)
    np.testing.assert_array_equal(made.astype("float64"), wanted.astype("float64"))


@pytest.mark.parametrize(("source", "dtype"), WIDER)
def test_a_tail_of_one_iteration_writes_one_element(source: str, dtype: str) -> None:
    """Bounds that LLVM knows once it has made the loop around them one iteration."""
    (row,) = indices("i")
    a, b = array("A", (2, 64), source), array("B", (2, 64), dtype)
    inner = loop(AT, row, WIDTH + 2, store(b, (row, AT), cast(load(a, row, AT), dtype)), LoopKind.VECTORIZED)
    given = np.arange(1, 129).reshape(2, 64).astype(source)
    made = np.full((2, 64), 99).astype(dtypes.info(dtype).numpy)
    wanted = made.astype("float64")
    wanted[1, 1 : WIDTH + 2] = given[1, 1 : WIDTH + 2].astype(made.dtype)
    backend("llvm").compile(kernel("tail", [a, b], "B", loop(row, 1, 2, inner)), parse("llvm"))(given, made)
    np.testing.assert_array_equal(made.astype("float64"), wanted)
