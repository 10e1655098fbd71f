"""What ranges and one condition tell of an access is true, and they tell what most programs need."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.ir.expr import Binary, Const, Expr, Var, as_expr, binary
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.within import Known
from tests.thoroughness import draws

I, J, N = Var("i"), Var("j"), Var("n")  # noqa: E741
COMPARE = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "eq": int.__eq__, "ne": int.__ne__}
numbers = st.integers(-6, 6)
indices = st.recursive(
    st.sampled_from([I, J, N]) | numbers.map(lambda n: Const(n, "int32")),
    lambda inner: (
        st.builds(binary, st.sampled_from(["add", "sub", "min", "max"]), inner, inner)
        | st.builds(lambda a, n: binary("mul", a, n), inner, numbers)
        | st.builds(binary, st.sampled_from(["floordiv", "floormod"]), inner, st.integers(1, 5))
    ),
    max_leaves=4,
)
comparisons = st.builds(binary, st.sampled_from(sorted(COMPARE)), indices, indices)
conditions = comparisons | st.builds(binary, st.sampled_from(["and", "or"]), comparisons, comparisons)
sizes = st.integers(0, 8).map(lambda n: Const(n, "int32")) | st.just(N)


RANGES = {"i": range(4), "j": range(-2, 5), "n": range(6)}
POINTS = [dict(zip(RANGES, point, strict=True)) for point in product(*RANGES.values())]
DOMAIN = [I >= 0, I < 4, J >= -2, J < 5]


def holds(condition: Expr, point: dict[str, int]) -> bool:
    assert isinstance(condition, Binary)
    if condition.op in ("and", "or"):
        return (all if condition.op == "and" else any)(holds(part, point) for part in (condition.a, condition.b))
    return COMPARE[condition.op](evaluate(condition.a, point), evaluate(condition.b, point))


@settings(max_examples=draws(120, 5000))
@given(indices, sizes, st.lists(conditions, max_size=2))
def test_what_is_told_to_be_inside_is(index: Expr, size: Expr, guards: list[Expr]) -> None:
    if Known.of([*DOMAIN, *guards], ["n"]).is_inside(index, size):
        inside = [p for p in POINTS if all(holds(guard, p) for guard in guards)]
        assert all(0 <= evaluate(index, p) < evaluate(size, p) for p in inside)


@pytest.mark.parametrize(
    ("index", "size", "guards"),
    [
        (I * 2 + J + 2, 13, []),
        (J % 3, 3, []),
        ((I * 5 + 3) // 4, 5, []),
        (I + J, 5, [I + J >= 0, I + J < 5]),
        (J - 1, 7, [binary("and", J >= 1, I > 2)]),
        (J * 2 - 2, 7, [J >= 1]),
        (J * 2 + 4, 7, [J < 2]),
        (N - 1 - I, N, [I < N]),
        (I, N + 2, [N - I > 0]),
        (J, 1, [binary("eq", J, 0)]),
    ],
)
def test_what_most_accesses_need_is_told(index: Expr, size: Expr | int, guards: list[Expr]) -> None:
    assert Known.of([*DOMAIN, *guards], ["n"]).is_inside(index, as_expr(size))
    assert not Known.of(DOMAIN[:-1], []).is_inside(index + J, as_expr(size))
