"""Resized data: every method, coordinates and rounding, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.device_targets import on_opencl
from tests.topi.calls import Call, check, floats, ran
from tests.topi.programs import Array, close

MODES = ("half_pixel", "asymmetric", "align_corners")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def rounded(x: Fraction, how: str) -> int:
    half = Fraction(1, 2)
    return {
        "floor": math.floor(x),
        "ceil": math.ceil(x),
        "round_prefer_floor": math.ceil(x - half),
        "round_prefer_ceil": math.floor(x + half),
    }[how]


def weights(i: int, have: int, want: int, method: str, mode: str, how: str) -> list[tuple[int, float]]:
    """Places along an axis that make an element, and their weights."""
    if mode == "half_pixel":
        x = (i + Fraction(1, 2)) * have / want - Fraction(1, 2)
    elif mode == "asymmetric":
        x = Fraction(i * have, want)
    else:
        x = Fraction(i * (have - 1), want - 1) if want > 1 else Fraction(0)
    first, t = math.floor(x), float(x - math.floor(x))
    if method == "nearest_neighbor":
        taps = [(rounded(x, how), 1.0)]
    elif method == "linear":
        taps = [(first, 1 - t), (first + 1, t)]
    else:

        def cubic(d: float) -> float:
            near = 1.5 * d**3 - 2.5 * d**2 + 1
            return near if d <= 1 else -0.5 * (d**3 - 5 * d**2 + 8 * d - 4)

        taps = [(first + k, cubic(abs(t - k))) for k in (-1, 0, 1, 2)]
    return [(min(max(k, 0), have - 1), w) for k, w in taps]


def resized(x: Array, size: tuple[int, ...], method: str, mode: str, how: str = "floor") -> Array:
    """NC... data, in float64, one axis after the other."""
    made = x.astype(np.float64)
    for d, want in enumerate(size, 2):
        have = made.shape[d]
        parts = []
        for i in range(want):
            taps = weights(i, have, want, method, mode, how)
            parts.append(sum(w * made.take(k, d) for k, w in taps))
        made = np.stack([np.asarray(p) for p in parts], d)
    return made


@drawn(
    st.sampled_from(["nearest_neighbor", "linear", "cubic"]),
    st.sampled_from(MODES),
    st.sampled_from(ROUNDINGS),
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
)
@settings(max_examples=8)
def test_images(method: str, mode: str, how: str, have: tuple[int, int], want: tuple[int, int]) -> None:
    x = floats(1, 2, *have)
    call = Call(lambda t: topi.image.resize2d(t, None, want, "NCHW", method, mode, how), lambda a: a, lambda n: [x])
    close(ran(call, "llvm", [x]), resized(x, want, method, mode, how))


CALLS = {
    "resize1d": Call(
        lambda x: topi.resize1d(x, None, [7], method="cubic"),
        lambda x: resized(x, (7,), "cubic", "half_pixel"),
        lambda n: [floats(n, 2, 4)],
    ),
    "resize2d of other layouts": Call(
        lambda x: topi.resize2d(x, None, [3, 5], "NHWC"),
        lambda x: np.moveaxis(resized(np.moveaxis(x, -1, 1), (3, 5), "linear", "half_pixel"), 1, -1),
        lambda n: [floats(n, 4, 2, 3)],
    ),
    "resize3d": Call(
        lambda x: topi.resize3d(x, None, [2, 4, 3], coordinate_transformation_mode="align_corners"),
        lambda x: resized(x, (2, 4, 3), "linear", "align_corners"),
        lambda n: [floats(n, 1, 3, 2, 4)],
    ),
    "upsampling": Call(
        lambda x: topi.upsampling(x, 2, 1.5),
        lambda x: x.repeat(2, 2)[..., [0, 0, 1, 2, 2, 3]],
        lambda n: [floats(n, 2, 3, 4)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    check(CALLS[name], "llvm", 2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "target"), [*product(CALLS, ["interpreter"]), ("resize2d of other layouts", "llvm")])
def test_calls_elsewhere(name: str, target: str) -> None:
    check(CALLS[name], target, 0 if target == "llvm" else 2)


@pytest.mark.parametrize("target", [on_opencl])
def test_calls_on_a_device(target: str) -> None:
    check(CALLS["resize3d"], target, 2)


def test_integers_have_nearest_elements_alone() -> None:
    x = te.placeholder((1, 1, 3, 3), "uint8", "x")
    assert topi.resize2d(x, None, (6, 6), method="nearest_neighbor").dtype == "uint8"
    with pytest.raises(DefinitionError, match="linear interpolation wants floats, got uint8"):
        topi.resize2d(x, None, (6, 6))
    with pytest.raises(DefinitionError, match="coordinates are half_pixel, asymmetric or align_corners"):
        topi.resize2d(x, None, (6, 6), "NCHW", "nearest_neighbor", "pytorch")
