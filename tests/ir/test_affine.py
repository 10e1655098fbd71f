"""Affine forms of expressions, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir.affine import affine, to_expr, widens
from tensorlang.ir.construct import array, index, indices, load
from tensorlang.ir.expr import Cast, Const, Expr, Var, cast
from tensorlang.ir.interpret import evaluate

i, j = indices("i j")


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        (2 * (i + 3) - j * 4, {"i": 2, "j": -4, "": 6}),
        (i - i, {}),
        (-(i - 1), {"i": -1, "": 1}),
        (index(7), {"": 7}),
        (cast(Var("k", "int8"), "int64") + 1, {"k": 1, "": 1}),
        (i * j, None),
        (i // 2, None),
        (Cast(i, "int32"), None),
        (load(array("A", (4,), "int64"), i), None),
        (Const(1.0, "float32"), None),
        (Var("x", "float32"), None),
    ],
)
def test_forms(expr: Expr, wanted: dict[str, int] | None) -> None:
    assert affine(expr) == wanted


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({}, "0"),
        ({"i": 1, "": -3}, "i - 3"),
        ({"i": -1, "j": 2}, "2 * j - i"),
        ({"i": -1, "": 3}, "3 - i"),
        ({"i": -2, "": -1}, "-2 * i - 1"),
        ({"i": -1}, "-i"),
    ],
)
def test_text(form: dict[str, int], text: str) -> None:
    assert str(to_expr(form)) == text


@given(st.dictionaries(st.sampled_from(["i", "j", ""]), st.integers(-9, 9)), st.integers(-99, 99), st.integers(-99, 99))
def test_there_and_back(form: dict[str, int], x: int, y: int) -> None:
    form = {name: c for name, c in form.items() if c}
    expr = to_expr(form)
    assert affine(expr) == form
    assert evaluate(expr, {i: x, j: y}) == form.get("i", 0) * x + form.get("j", 0) * y + form.get("", 0)


def test_widening_casts() -> None:
    assert widens("uint8", "int16")
    assert widens("int32", "int64")
    assert not widens("uint32", "int32")
    assert not widens("int8", "uint64")
    assert not widens("float32", "int64")
