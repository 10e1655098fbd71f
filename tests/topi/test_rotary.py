"""Rotary embedding, against pairs as complex numbers."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.topi.rotary import rope_reference
from tests.device_targets import on_cuda, on_opencl
from tests.topi.programs import close, given


@pytest.mark.covering(2)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("dtype", "half"), [("float32", 8), ("bfloat16", 8), ("float64", 5), ("float16", 5)])
@pytest.mark.parametrize("target", [None, "interpreter", on_opencl, on_cuda])
def test_pairs_are_turned(dtype: str, half: int, interleaved: bool, target: str | None) -> None:
    """Of the first 2 * half of 16 elements; positions beyond the tables are brought to the nearest."""
    x, data = given("x", 2, 3, 4, 16, dtype=dtype)
    where, positions = te.placeholder((2, 4), "int32", "p"), np.array([[0, 1, 5, 29], [3, -2, 30, 99]], np.int32)
    tables = topi.rope_tables(30, half, 100.0)
    cosines, sines = (te.placeholder((30, half), "float32", name) for name in "cs")
    out = topi.rope(x, where, cosines, sines, interleaved)
    kernel = tensorlang.build(topi.schedule(out, target), [x, where, cosines, sines, out], target=target)
    kernel(data, positions, *tables, made := np.full(data.shape, 77, data.dtype))
    close(made, rope_reference(data, positions, *tables, interleaved))


def test_tables_are_angles_of_positions() -> None:
    """Pair i turns by base ** (-i / half) a position, slower by its factor."""
    cosines, sines = topi.rope_tables(9, 2, 100.0, np.array([1.0, 4.0]))
    np.testing.assert_allclose(np.arctan2(sines[1], cosines[1]), [1.0, 0.1 / 4], rtol=1e-6)
    np.testing.assert_allclose(cosines[:, 0], np.cos(np.arange(9.0)), atol=1e-7)


def test_halves_are_vectors() -> None:
    x, _ = given("x", 1, 2, 1, 64)
    where = te.placeholder((1, 1), "int32", "p")
    cosines, sines = (te.placeholder((30, 32), "float32", name) for name in "cs")
    s = topi.schedule(topi.rope(x, where, cosines, sines), tuned=False)
    assert [note.form for note in s.forms] == ["pieces"]


def test_refusals() -> None:
    x, _ = given("x", 1, 2, 3, 8)
    where, table = te.placeholder((1, 3), "int32", "p"), te.placeholder((9, 4), "float32", "c")
    for wrong in ((x, where, table, te.placeholder((9, 5), "float32", "s")), (x, te.placeholder((1, 2), "int32", "p"))):
        arguments = (*wrong, table, table)[:4]
        with pytest.raises(DefinitionError, match="rope wants data"):
            topi.rope(*arguments)
    wide = te.placeholder((9, 5), "float32", "wide")
    with pytest.raises(DefinitionError, match="2 half up to d"):
        topi.rope(x, where, wide, wide)
