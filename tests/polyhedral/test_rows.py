"""Rows of numbers say the same as the text of conditions."""

from __future__ import annotations

import pytest

from tensorlang.ir.expr import Const, Expr, Select, Var, binary
from tensorlang.polyhedral import isl
from tensorlang.polyhedral.affine_text import Namer, conditions_text, dims, index_text
from tensorlang.polyhedral.rows import NotLinear, Rows

X, Y, N, M = (Var(name, "int64") for name in ("i", "j", "n", "m"))
SIZES = frozenset({"n", "m"})
UNSEEN = Select(binary("lt", X, Y), X, Y, "int64")
VALUES: list[Expr] = [
    Const(3, "int64"),
    2 * X - Y + N + 5,
    -(X - 3) * 4,
    X // 4 + 2 * (Y % 3),
    (X + 2 * Y) // 3 - (X // 2) % 5,
    N * M + X,
    (N + 3) // 4 - Y,
]


def _conditions(value: Expr) -> list[Expr]:
    return [binary(op, value, X + 1) for op in ("lt", "le", "gt", "ge", "eq", "ne")]


def _by_text(conditions: list[Expr]) -> isl.Map:
    namer = Namer(SIZES)
    where, _ = conditions_text(conditions, dims(["i", "j"]), namer)
    return isl.make_map(f"{namer.prefix()}{{ [d0, d1] -> [] : {where} }}")


def _by_rows(conditions: list[Expr]) -> isl.Map:
    rows = Rows(dims(["i", "j"]), Namer(SIZES))
    rows.require(conditions)
    return rows.make(["d0", "d1"], [])


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_conditions(value: Expr) -> None:
    for condition in _conditions(value):
        assert _by_rows([condition]) == _by_text([condition])
    assert _by_rows(_conditions(value)[:2]) == _by_text(_conditions(value)[:2])


def test_conditions_that_stay_text() -> None:
    several = [binary("lt", binary("min", X, Y), N), binary("or", binary("lt", X, 2), binary("gt", Y, M))]
    assert _by_rows(several) == _by_text(several)


def test_what_cannot_be_seen_is_left_out() -> None:
    hidden = [binary("lt", X, UNSEEN), binary("ge", X * Y, 3), binary("ge", Y, 2)]
    assert _by_rows(hidden) == _by_text(hidden) == _by_text(hidden[2:])


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_values(value: Expr) -> None:
    namer = Namer(SIZES)
    rows = Rows(dims(["i", "j"]), namer)
    row = rows.form(value)
    assert row is not None
    rows.equate("e0", row)
    text = index_text(value, dims(["i", "j"]), namer)
    assert rows.make(["d0", "d1"], ["e0"]) == isl.make_map(f"{namer.prefix()}{{ [d0, d1] -> [{text}] }}")


def test_values_that_are_no_rows() -> None:
    rows = Rows(dims(["i", "j"]), Namer(SIZES))
    assert rows.form(X * Y) is None
    assert rows.form(UNSEEN) is None
    with pytest.raises(NotLinear):
        rows.form(binary("max", X, Y) + 1)


def test_sizes_and_bounds() -> None:
    rows = Rows(dims(["i"]), Namer(SIZES))
    size = rows.form(N + 1)
    assert size is not None
    rows.bound("e0", size)
    rows.nonnegative_sizes()
    assert rows.make(["d0"], ["e0"]) == isl.make_map("[n_n] -> { [d0] -> [e0] : 0 <= e0 < n_n + 1 and n_n >= 0 }")


def test_quotients_that_ranges_decide() -> None:
    rows = Rows(dims(["i", "j"]), Namer(SIZES), {"d1": (0, 11)})
    assert rows.form((24 * X + Y + 12) // 12) == {"d0": 2, "": 1}
    assert rows.form(binary("floormod", 24 * X + Y + 12, 12)) == {"d1": 1}
    assert not rows.quotients
    assert rows.form((24 * X + Y + 13) // 12) == rows.form((24 * X + Y + 13) // 12) == {"q0": 1}
    assert rows.form((12 * X - Y) // 12) == {"q1": 1}
    assert rows.form((X + 12 * Y) // 12) == {"q2": 1}


def test_a_condition_that_is_left_out_is_told() -> None:
    rows = Rows(dims(["i", "j"]), Namer(SIZES))
    rows.require([binary("ge", Y, 2), binary("ne", X, Y)])
    assert rows.exact
    rows.require([binary("ge", X * Y, 3)])
    assert not rows.exact
