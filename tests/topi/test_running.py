"""Running reductions of long rows, in pieces where that helps a CPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.schedules.default import apply_forms
from tensorlang.target import parse
from tests.topi.programs import given, run


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "cores", "pieces"),
    [
        ((1 << 14,), 0, "float32", 1, True),
        ((2, 20011), 1, "float32", 1, True),
        ((7, 20011), 1, "float32", 1, False),
        ((7, 20011), 1, "float32", 2, True),
        ((20011, 7), 0, "float32", 1, False),
        ((1 << 17,), 0, "int32", 1, False),
        ((1 << 17,), 0, "int32", 2, True),
        ((1000,), 0, "float32", 2, False),
    ],
)
def test_few_long_rows_are_summed_in_pieces(
    shape: tuple[int, ...], axis: int, dtype: str, cores: int, pieces: bool
) -> None:
    target = f"llvm -num-cores={cores}"
    x, a = given("x", *shape, dtype=dtype)
    a = np.round(a * 4).astype(dtype)  # sums are exact
    out = topi.cumsum(x, axis)
    assert ("running_pieces" in str(topi.schedule(out, target))) == pieces
    np.testing.assert_array_equal(run(out, (x, a), target=target), np.cumsum(a, axis, dtype))


@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_80"])
@pytest.mark.parametrize("strict", [False, True])
def test_strict_sums_keep_their_order(target: str, strict: bool) -> None:
    s = te.create_schedule(topi.cumsum(te.placeholder((1 << 14,), name="x")).op, strict=strict)
    apply_forms(s, parse(target))
    assert ("running_pieces" in str(s)) != strict
