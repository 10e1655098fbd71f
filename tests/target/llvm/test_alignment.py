"""Long vector loops whose full pieces begin at cache lines: the same elements, wherever an array begins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.construct import kernel as build
from tensorlang.ir.expr import Expr
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.runtime.executable import Executable

Compile = Callable[..., Executable]
AT, ROW, SIZE = indices("j i n")
AVX512, AVX2 = "llvm -mcpu=skylake-avx512", "llvm -mcpu=haswell"


def _shifted(length: Expr | int, first: int, dtype: str) -> Kernel:
    """B[j] = A[j - 1] + 1 for j from `first` on."""
    a, b = array("A", (length,), dtype), array("B", (length,), dtype)
    body = store(b, AT, load(a, AT - 1) + 1)
    sizes = [SIZE] if isinstance(length, Expr) else []
    return build("shifted", [a, b], "B", loop(AT, first, length, body, LoopKind.VECTORIZED), sizes)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("known", [False, True])
def test_all_elements_and_no_others_wherever_an_array_begins(compiled: Compile, known: bool, dtype: str) -> None:
    numpy_type = dtypes.info(dtype).numpy
    lanes = 64 // dtypes.info(dtype).bytes
    lengths = [16 * lanes + extra for extra in (0, 1, 2, lanes, lanes + 5)]
    any_length = compiled(_shifted(SIZE, 1, dtype))
    for length in lengths[:2] if known else lengths:
        run = compiled(_shifted(length, 1, dtype)) if known else any_length
        for offset in range(lanes):
            a = (np.arange(length + offset) % 50).astype(numpy_type)[offset:]
            around = np.full(length + 2 * lanes, 7, numpy_type)
            run(a, around[offset : offset + length])
            expected = np.full(length + 2 * lanes, 7, numpy_type)
            expected[offset + 1 : offset + length] = a[:-1] + 1
            np.testing.assert_array_equal(around, expected, err_msg=f"length {length}, offset {offset}")


@pytest.mark.parametrize(("target", "wanted"), [(AVX512, True), (AVX2, False)])
def test_pieces_as_wide_as_a_line_are_aligned(compiled: Compile, target: str, wanted: bool) -> None:
    for length in (SIZE, 500):
        assert ("ptrtoint" in compiled(_shifted(length, 1, "float64"), target).source("ll")) == wanted


def test_short_loops_begin_where_they_begin(compiled: Compile) -> None:
    assert "ptrtoint" not in compiled(_shifted(100, 1, "float64"), AVX512).source("ll")


def test_a_column_meets_no_line(compiled: Compile) -> None:
    a, b = array("A", (SIZE,), "float64"), array("B", (SIZE, 3), "float64")
    body = loop(AT, 0, SIZE, store(b, [AT, 1], load(a, AT)), LoopKind.VECTORIZED)
    executable = compiled(build("column", [a, b], "B", body, [SIZE]))
    for size in (5, 300):
        values, out = np.arange(size, dtype="f8"), np.zeros((size, 3))
        executable(values, out)
        np.testing.assert_array_equal(out, np.outer(values, [0, 1, 0]))
