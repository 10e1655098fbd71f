"""The simplifier never changes a value: random expressions, evaluated before and after at random points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, walk
from tensorlang.ir.interpret import evaluate
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.simplify import simplify

NARROW = ("int8", "uint8", "int32", "uint32", "uint64")
OPS = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
BITS = ("bitand", "bitor", "bitxor", "shl", "shr")


@st.composite
def points(draw: st.DrawFn, dtype: str) -> tuple[dict[str, tuple[int | None, int | None]], dict[Var, int]]:
    """Ranges of three variables, and one point inside them."""
    ranges: dict[str, tuple[int | None, int | None]] = {}
    values: dict[Var, int] = {}
    least, most = (int(x) for x in dtypes.limits(dtype))
    for name in "ijk":
        low = draw(st.integers(-40, 40) | st.sampled_from([0, 1, least]))
        low = max(low, least)
        high = min(low + draw(st.integers(0, 70) | st.just(2**64)), most)
        values[Var(name, dtype)] = draw(st.integers(low, high) | st.just(high))
        shown = draw(st.booleans()) or dtype == "int64"
        ranges[name] = (low, high) if shown else (None, None)
    return ranges, values


@st.composite
def integers(draw: st.DrawFn, dtype: str, depth: int, bits: bool) -> Expr:
    """A random integer expression over i, j, k; divisors are small constants or anything."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.integers(0, 2)):
            return Var(draw(st.sampled_from("ijk")), dtype)
        return Const(draw(small(dtype)), dtype)
    kind = draw(st.integers(0, 11))
    below = integers(dtype, depth - 1, bits)
    if kind == 0:
        return Select(draw(conditions(dtype, depth - 1, bits)), draw(below), draw(below), dtype)
    if kind == 1:
        return Unary("neg", draw(below), dtype)
    if kind == 2:
        other = draw(st.sampled_from([d for d in (*NARROW, "int64") if d != dtype]))
        return Cast(Cast(draw(below), other), dtype)
    op = draw(st.sampled_from(OPS + BITS if bits else OPS))
    divides = op in ("floordiv", "floormod", "truncdiv", "truncmod", "mul")
    right = Const(draw(small(dtype)), dtype) if divides and draw(st.integers(0, 4)) else draw(below)
    return Binary(op, draw(below), right, dtype)


def small(dtype: str) -> st.SearchStrategy[int]:
    """Literals as index arithmetic has them, and the extreme ones."""
    least, most = (int(x) for x in dtypes.limits(dtype))
    common = [2, 3, 4, 6, 8, 12, 16, 24, 32, 0, 1, 5, 7, 64]
    signed = [-1, -2, -4, -8, -32] if least < 0 else []
    return st.sampled_from(common + signed + common) | st.sampled_from([least, most])


@st.composite
def conditions(draw: st.DrawFn, dtype: str, depth: int, bits: bool) -> Expr:
    """A random condition over integer expressions."""
    kind = draw(st.integers(0, 6)) if depth > 0 else 6
    if kind < 2:
        parts = conditions(dtype, depth - 1, bits)
        return Binary("and" if kind else "or", draw(parts), draw(parts), "bool")
    if kind == 2:
        return Unary("not", draw(conditions(dtype, depth - 1, bits)), "bool")
    below = integers(dtype, max(depth - 1, 0), bits)
    return Binary(draw(st.sampled_from(COMPARE)), draw(below), draw(below), "bool")


def agree(expr: Expr, ranges: Mapping[str, Any], values: Mapping[Var, int]) -> None:
    simple = simplify(expr, ranges)
    note(f"{expr}\n -> {simple}\n at {values}\n ranges {ranges}")
    assert simple.dtype == expr.dtype
    assert {n for n in walk(simple) if isinstance(n, Var)} <= set(values)
    before, after = evaluate(expr, values), evaluate(simple, values)
    assert before == after
    again = simplify(simple, ranges)
    assert evaluate(again, values) == before


@settings(max_examples=5 * settings().max_examples)
@given(st.data())
def test_index_arithmetic(data: st.DataObject) -> None:
    """int64 expressions of small variables."""
    ranges, values = data.draw(points("int32"))
    wide = {Var(v.name, "int64"): x for v, x in values.items()}
    small_ranges = {n: (lo, hi) if lo is not None else (-(2**31), 2**31 - 1) for n, (lo, hi) in ranges.items()}
    expr = data.draw(integers("int64", 4, False) | conditions("int64", 4, False))
    agree(expr, small_ranges, wide)


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_arithmetic_that_wraps(data: st.DataObject) -> None:
    """Every integer dtype, values up to its limits."""
    dtype = data.draw(st.sampled_from((*NARROW, "int64")))
    ranges, values = data.draw(points(dtype))
    expr = data.draw(integers(dtype, 3, True) | conditions(dtype, 3, True))
    agree(expr, ranges, values)


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_quotients_and_remainders(data: st.DataObject) -> None:
    """Sums of scaled variables, divided and reassembled, as tiling writes them."""
    ranges = {n: (lo := data.draw(st.integers(-8, 2)), lo + data.draw(st.sampled_from([1, 3, 7, 15]))) for n in "ijk"}
    values = {Var(n, "int64"): data.draw(st.integers(*limits)) for n, limits in ranges.items()}
    scale = st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, -1, -4])

    def linear() -> Expr:
        terms = [Binary("mul", Const(data.draw(scale), "int64"), v, "int64") for v in values]
        total: Expr = Const(data.draw(st.integers(-9, 40)), "int64")
        for term in terms[: data.draw(st.integers(1, 3))]:
            total = Binary("add", total, term, "int64")
        return total

    def divided(inner: Expr) -> Expr:
        op = data.draw(st.sampled_from(["floordiv", "floormod"]))
        divisor = data.draw(st.sampled_from([2, 3, 4, 8, 12, 16, 32, -4]))
        scaled = Const(data.draw(scale), "int64")
        return Binary("mul", Binary(op, inner, Const(divisor, "int64"), "int64"), scaled, "int64")

    source = linear()
    total = Binary("add", divided(source), divided(source), "int64")
    total = Binary("add", divided(total), divided(linear()), "int64")
    agree(total, ranges, values)
