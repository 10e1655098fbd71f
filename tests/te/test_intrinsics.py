"""Every intrinsic in every dtype equals an oracle that does not use NumPy: Python's math, integers and fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang import dtypes, te
from tensorlang.ir.expr import Call, Const
from tensorlang.ir.intrinsics import TABLE, call
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
ANY = (-2.5, -1.5, -1.0, -0.75, -0.5, 0.0, 0.25, 0.5, 0.875, 1.0, 1.5, 2.5, 3.25)
UNIT = tuple(x for x in ANY if -1 <= x <= 1)
POSITIVE = tuple(x for x in ANY if x > 0)
SPECIAL = (*ANY, math.inf, -math.inf, math.nan)


def half_even(x: float) -> float:
    return math.copysign(float(round(x)), x)


ORACLE: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "exp": (math.exp, ANY),
    "exp2": (lambda x: 2.0**x, ANY),
    "expm1": (math.expm1, ANY),
    "log": (math.log, POSITIVE),
    "log2": (math.log2, POSITIVE),
    "log10": (math.log10, POSITIVE),
    "log1p": (math.log1p, POSITIVE),
    "sqrt": (math.sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / math.sqrt(x), POSITIVE),
    "sin": (math.sin, ANY),
    "cos": (math.cos, ANY),
    "tan": (math.tan, ANY),
    "asin": (math.asin, UNIT),
    "acos": (math.acos, UNIT),
    "atan": (math.atan, ANY),
    "sinh": (math.sinh, ANY),
    "cosh": (math.cosh, ANY),
    "tanh": (math.tanh, ANY),
    "asinh": (math.asinh, ANY),
    "acosh": (math.acosh, tuple(x for x in ANY if x >= 1)),
    "atanh": (math.atanh, tuple(x for x in UNIT if abs(x) < 1)),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), ANY),
    "erf": (math.erf, ANY),
    "floor": (math.floor, ANY),
    "ceil": (math.ceil, ANY),
    "round": (half_even, ANY),
    "trunc": (math.trunc, ANY),
    "isnan": (math.isnan, SPECIAL),
    "isinf": (math.isinf, SPECIAL),
    "isfinite": (math.isfinite, SPECIAL),
    "abs": (abs, SPECIAL),
    "pow": (math.pow, POSITIVE),
    "atan2": (math.atan2, ANY),
    "hypot": (math.hypot, ANY),
    "copysign": (math.copysign, ANY),
    "fma": (lambda a, b, c: float(Fraction(a) * Fraction(b) + Fraction(c)), ANY),
}
BITS: dict[str, Callable[[int, int], int]] = {
    "popcount": lambda x, width: bin(x % 2**width).count("1"),
    "clz": lambda x, width: width - (x % 2**width).bit_length(),
}


def run(name: str, *operands: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Evaluate an intrinsic through a program over whole arrays."""
    inputs = [te.placeholder(a.shape, a.dtype, name=f"A{n}") for n, a in enumerate(operands)]
    made = te.compute(operands[0].shape, lambda i: call(name, *(t[i] for t in inputs)), name="B")
    return evaluate(canonical([made])[0], operands)["B"]


def test_every_intrinsic_has_an_oracle() -> None:
    """Those of patterns of bits and of tables have tests/te/test_views.py and test_lookup.py."""
    assert {n for n, row in TABLE.items() if row.family not in ("pattern", "table")} == set(ORACLE) | set(BITS)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ORACLE)
def test_float_intrinsic(name: str, dtype: str) -> None:
    oracle, points = ORACLE[name]
    arity = TABLE[name].arity
    columns = [np.array(points).astype(dtypes.info(dtype).numpy)]
    columns += [np.roll(columns[0], shift) for shift in (1, 3)][: arity - 1]
    got = run(name, *columns)
    exact = [oracle(*(float(c[n]) for c in columns)) for n in range(len(points))]
    if TABLE[name].family == "test":
        assert got.dtype == np.bool_
        assert got.tolist() == exact
        return
    assert got.dtype == dtypes.info(dtype).numpy
    wanted = np.array(exact, np.float64).astype(got.dtype).astype(np.float64)
    units = 0.0 if TABLE[name].function in (np.floor, np.ceil, np.rint, np.trunc, np.abs, np.copysign) else 4.0
    epsilon = float(ml_dtypes.finfo(got.dtype).eps)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=units * epsilon, atol=units * epsilon * 0.1)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", BITS)
def test_bit_intrinsic(name: str, dtype: str) -> None:
    low, high = (int(v) for v in dtypes.limits(dtype))
    points = [x for x in (low, low + 1, -1, 0, 1, 2, 3, 85, high // 3, high - 1, high) if low <= x <= high]
    got = run(name, np.array(points, dtype))
    assert got.dtype == np.dtype("int32" if name == "clz" else dtype)
    assert got.tolist() == [BITS[name](x, dtypes.info(dtype).bits) for x in points]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_abs_of_integers_wraps_at_the_lowest(dtype: str) -> None:
    low, high = (int(v) for v in dtypes.limits(dtype))
    got = run("abs", np.array([low, low + 1, 0, 1, high], dtype))
    assert got.tolist() == [low, abs(low + 1), 0, 1, high]


@given(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 3))
def test_float32_fma_rounds_once(operands: tuple[float, float, float]) -> None:
    a, b, c = operands
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = Fraction(float(TABLE["fma"].numpy(*(np.float32(x) for x in operands))))
    half_unit = Fraction(float(np.spacing(np.float32(abs(float(exact)))))) / 2
    assert abs(got - exact) <= half_unit * (1 + Fraction(1, 2**20))


@given(st.tuples(*[st.floats(-1e100, 1e100)] * 3))
def test_float64_fma_is_within_one_unit(operands: tuple[float, float, float]) -> None:
    a, b, c = (0.0 if abs(x) < 1e-100 else x for x in operands)
    exact = float(Fraction(a) * Fraction(b) + Fraction(c))
    got = float(TABLE["fma"].numpy(np.float64(a), np.float64(b), np.float64(c)))
    assert abs(got - exact) <= np.spacing(abs(exact))


def test_fma_differs_from_two_roundings() -> None:
    x = np.float64(1 + 2**-30)
    assert TABLE["fma"].numpy(x, x, np.float64(-1)) == 2**-29 + 2**-60
    assert x * x - 1 != 2**-29 + 2**-60


@pytest.mark.parametrize(
    "name", [n for n, row in TABLE.items() if row.arity == 1 and row.family in ("float", "number")]
)
def test_narrow_floats_round_once_from_float32(name: str) -> None:
    points = np.array(ORACLE.get(name, (None, UNIT))[1], "float16")
    with np.errstate(all="ignore"):
        wide = TABLE[name].function(points.astype(np.float32)).astype("float16")
        assert np.array_equal(TABLE[name].numpy(points), wide, equal_nan=True)


def test_scalars_give_scalars() -> None:
    for row in (row for row in TABLE.values() if row.family not in ("pattern", "table")):
        operand = np.int32(3) if row.family == "bits" else np.float32(0.5)
        with np.errstate(invalid="ignore"):
            assert np.shape(row.numpy(*[operand] * row.arity)) == ()


def test_literals_are_weak() -> None:
    x = te.placeholder((4,), "float64", name="x")
    assert te.exp(1).dtype == "float32"
    assert te.pow(x[0], 2).dtype == "float64"
    assert te.pow(2.0, x[0]).dtype == "float64"
    assert te.atan2(x[0], te.const(1.0, "float32")).dtype == "float64"
    assert te.abs(-3).dtype == "int32"


def test_whole_numbers_pass_through() -> None:
    i = te.var("i")
    assert te.floor(i) is i
    assert te.round(i) is i
    isnan, isfinite = te.isnan(i), te.isfinite(i)
    assert isinstance(isnan, Const) and isnan.value is False
    assert isinstance(isfinite, Const) and isfinite.value is True


def test_composed_functions() -> None:
    x = np.array([0.5, 1.0, -2.25, 3.0], "float32")
    A = te.placeholder((4,), name="A")
    made = te.compute(
        (4,), lambda i: (te.exp10(A[i]), te.fmod(A[i], 1.0), te.ldexp(A[i], 3), te.nearbyint(A[i])), name="B"
    )
    got = evaluate(canonical([made[0]])[0], [x])
    np.testing.assert_allclose(got["B.v0"], 10.0**x, rtol=1e-6)
    assert got["B.v1"].tolist() == np.fmod(x, 1).tolist()
    assert got["B.v2"].tolist() == (x * 8).tolist()
    assert got["B.v3"].tolist() == [0.0, 1.0, -2.0, 3.0]


def test_named_call_is_a_call_node() -> None:
    x = te.placeholder((4,), name="x")
    made = te.fma(x[0], x[1], x[2])
    assert isinstance(made, Call) and str(made) == "fma(x[0], x[1], x[2])"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_power_of_one_half_is_no_root(dtype: str) -> None:
    x = np.array([-np.inf, -0.0, 4.0], dtype)
    half = np.array(0.5, dtype)
    with np.errstate(all="ignore"):
        for got in (TABLE["pow"].numpy(x, half), np.array([TABLE["pow"].numpy(one, half[()]) for one in x])):
            assert got.tolist() == [np.inf, 0.0, 2.0] and not np.signbit(got).any()
