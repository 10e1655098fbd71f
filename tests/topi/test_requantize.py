"""From 32-bit sums back to bytes by whole numbers: a multiplier and a shift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.topi.programs import run

LARGEST = (1 << 31) - 1
SUMS = np.array([[0, 1, -1, 100, -100, LARGEST, -LARGEST - 1], [5, 3, -3, -5, 77777, -77777, 1 << 20]], "int32")


def exactly(total: int, multiplier: int, shift: int, zero: int, low: int, high: int) -> int:
    """Halves up, in whole numbers of any size."""
    return min(max(((total * multiplier + (1 << (shift - 1))) >> shift) + zero, low), high)


@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -128, 127), ("uint8", 0, 255)])
@pytest.mark.parametrize(("multiplier", "shift"), [(1, 1), (LARGEST, 62), (1 << 30, 31), (1518500250, 40), (-3, 2)])
def test_one_multiplier(multiplier: int, shift: int, dtype: str, low: int, high: int) -> None:
    D = te.placeholder(SUMS.shape, "int32", "D")
    made = run(topi.requantize(D, multiplier, 7, dtype, shift=shift), (D, SUMS))
    wanted = [[exactly(int(x), multiplier, shift, 7, low, high) for x in row] for row in SUMS]
    assert made.tolist() == wanted


def test_multipliers_of_channels() -> None:
    sums = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, (40, 37)).astype("int32")
    multipliers, shifts = topi.fixed_point(np.geomspace(1e-6, 1e-3, 37))
    D, S = te.placeholder(sums.shape, "int32", "D"), te.placeholder((37,), "int32", "S")
    N = te.placeholder((37,), "int32", "N")
    made = run(topi.requantize(D, S, shift=N), (D, sums), (S, multipliers), (N, shifts))
    columns = list(zip(multipliers.tolist(), shifts.tolist(), strict=True))
    wanted = [[exactly(int(x), *columns[j], 0, -128, 127) for j, x in enumerate(row)] for row in sums]
    assert made.tolist() == wanted


@settings(max_examples=50)
@drawn(st.floats(2.0**-31, 2.0**29))
def test_fixed_point_is_near(scale: float) -> None:
    multiplier, shift = topi.fixed_point(scale)
    assert 1 << 30 <= int(multiplier) <= LARGEST
    assert 1 <= int(shift) <= 62
    assert abs(int(multiplier) / 2.0 ** int(shift) - scale) <= scale * 2.0**-31


def test_fixed_point_of_the_next_power() -> None:
    """Rounding up to a power of two moves the shift."""
    multiplier, shift = topi.fixed_point([np.nextafter(1.0, 0.0)])
    assert (multiplier.tolist(), shift.tolist()) == ([1 << 30], [30])


@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0**-32, 2.0**30, float("nan")])
def test_scales_that_are_refused(scale: float) -> None:
    with pytest.raises(DefinitionError, match="fixed_point takes scales from"):
        topi.fixed_point(scale)


@pytest.mark.parametrize(
    ("scale", "shift", "message"), [(0.5, 3, "whole number"), (2, 0, "1 to 62"), (2, 63, "1 to 62")]
)
def test_fixed_scales_that_are_refused(scale: float, shift: int, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        topi.requantize(te.placeholder((3,), "int32", "D"), scale, shift=shift)


def test_shifts_are_integers() -> None:
    D, N = te.placeholder((3,), "int32", "D"), te.placeholder((3,), "float32", "N")
    with pytest.raises(DefinitionError, match="shifts are integers"):
        topi.requantize(D, 2, shift=N)


def test_clamped_floats_are_made_bytes_in_vectors() -> None:
    """Neither lane by lane nor with tests for what cannot be."""
    target = "llvm -mcpu=sapphirerapids"
    D = te.placeholder((64,), "int32", "D")
    made = topi.requantize(D, 0.25)
    asm = tensorlang.build(topi.schedule(made, target), [D, made], target).source("asm")
    assert "vcvtps2dq" in asm  # which rounds, too
    assert not any(word in asm for word in ("vcvttss2si", "vrndscale", "vcmp"))
