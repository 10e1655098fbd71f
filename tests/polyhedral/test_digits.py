"""Digits of one number: joined places are equal where the places are, and have no quotient where they can."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir.expr import Binary, Const, Expr, Var, as_expr, binary, walk
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.digits import joined, loop_ranges
from tensorlang.polyhedral.statement import Role, Statement

EXTENTS = {"o": 3, "z": 2, "x": 4}
RANGES = {name: (0, extent - 1) for name, extent in EXTENTS.items()}
FIRST, Z, X = (Var(name, INDEX) for name in EXTENTS)
FUSED = (FIRST * 2 + Z) * 4 + X
POINTS = [dict(zip(EXTENTS, point, strict=True)) for point in product(*map(range, EXTENTS.values()))]


def digits(number: Expr, *sizes: int) -> list[Expr]:
    """The digits of a number as indices are written: the last one first, the first without a remainder."""
    found: list[Expr] = []
    for size in sizes:
        found.append(simplify(number % size, RANGES))
        number = number // size
    return [*found, simplify(number, RANGES)]


def divides(index: Expr | None) -> bool:
    nodes = [] if index is None else walk(index)
    return any(isinstance(node, Binary) and node.op in ("floordiv", "floormod") for node in nodes)


def places(cell: list[Expr | None]) -> list[tuple[int, ...]]:
    return [tuple(evaluate(index, point) for index in cell if index is not None) for point in POINTS]


@given(
    st.permutations(range(4)),
    st.lists(st.integers(2, 5), min_size=0, max_size=3),
    st.sampled_from([FUSED, FUSED + 3, X * 6 + FIRST * 2 + Z]),
)
def test_joined_places_are_equal_where_the_places_are(order: list[int], sizes: list[int], number: Expr) -> None:
    found = digits(number, *sizes)
    cell: list[Expr | None] = [found[k] for k in order if k < len(found)]
    whole, parts = places(joined(cell, RANGES)), places(cell)
    pairs = product(range(len(POINTS)), repeat=2)
    assert all((whole[a] == whole[b]) == (parts[a] == parts[b]) for a, b in pairs)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_digits_in_any_order_become_their_number(order: tuple[int, int, int]) -> None:
    found = digits(FUSED, 3, 2)
    slot = simplify((Var("t", INDEX) + 1) % 3)
    made = joined([slot, None, *(found[k] for k in order)], {**RANGES, "t": (0, 7)})
    assert made[0] is None and not divides(made[-1]) and len(made) == 3
    assert [str(index) for index in made if index is not None] == [str(slot), str(simplify(FUSED))]


def test_what_may_be_negative_stays_as_it_is() -> None:
    cell: list[Expr | None] = [(FUSED - 20) // 3, (FUSED - 20) % 3]
    assert joined(cell, RANGES) == cell
    assert joined([X // 2, X % 2], {}) == [X // 2, X % 2]


def test_ranges_of_loops() -> None:
    def loop(name: str, low: Expr, high: Expr) -> list[Expr]:
        var = Var(name, INDEX)
        return [binary("ge", binary("add", var, 2), low), binary("lt", binary("add", var, 2), high)]

    domain = [*loop("o", as_expr(0), as_expr(7)), *loop("z", Const(1, INDEX), Var("n", INDEX)), binary("lt", FIRST, 3)]
    statement = Statement("s", "S", Role.PURE, ("o", "z"), tuple(domain), (), (), ())
    assert loop_ranges(statement) == {"o": (-2, 4)}
