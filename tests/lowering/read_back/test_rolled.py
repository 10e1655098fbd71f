"""Copies that unrolling made are read as the loops that they were: the same instances, in the same order."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir.expr import Binary, Const, Expr, Var
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.rolled import Depth, rolled
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral.affine_text import evaluate

ROOT = Depth(0, 0, 0)
Instance = tuple[int, tuple[int, ...]]


def run(statement: int, *values: int | Expr) -> Run:
    made = tuple(v if isinstance(v, Expr) else Const(v, INDEX) for v in values)
    return Run(statement, made, (), (), (0,), (), ())


def instances(runs: list[Run]) -> list[Instance]:
    """What runs do, in the order of their times; all loops have constant bounds."""
    timed: list[tuple[tuple[int, ...], Instance]] = []
    for r in runs:
        ends = {c.a.name: int(c.b.value) for c in r.conditions if _is_end(c)}  # type: ignore[attr-defined]
        for numbers in product(*(range(ends[name]) for name in r.loops)):
            at = dict(zip(r.loops, numbers, strict=True))
            when = tuple(at[part] if isinstance(part, str) else part for part in r.time)
            timed.append((when, (r.statement, tuple(evaluate(v, at) for v in r.values))))
    return [found for _, found in sorted(timed)]


def _is_end(condition: Expr) -> bool:
    return isinstance(condition, Binary) and condition.op == "lt"


def test_a_tile_of_copies_is_two_loops() -> None:
    row = [[run(0, i, j)] for i in range(3) for j in range(4)]
    (found,) = rolled(row, ROOT)
    assert len(found.loops) == 2
    assert instances([found]) == [(0, (i, j)) for i in range(3) for j in range(4)]


def test_groups_of_statements_repeat_together() -> None:
    row = [[run(s, k, j)] for k in range(5) for s in (0, 1) for j in range(3)]
    found = rolled(row, ROOT)
    assert len(found) == 2
    assert instances(found) == [(s, (k, j)) for k in range(5) for s in (0, 1) for j in range(3)]


def test_what_does_not_repeat_stays() -> None:
    row = [[run(0, n)] for n in (0, 1, 3, 7, 2)]
    assert instances(rolled(row, ROOT)) == [(0, (n,)) for n in (0, 1, 3, 7, 2)]


def test_loops_that_hold_nothing_are_left_out() -> None:
    assert rolled([[], [run(0, 1)], []], ROOT)[0].values == (Const(1, INDEX),)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 3), st.integers(0, 2)), max_size=30))
def test_any_row_keeps_its_instances_and_their_order(row: list[tuple[int, int, int]]) -> None:
    found = rolled([[run(s, a, b)] for s, a, b in row], ROOT)
    assert instances(found) == [(s, (a, b)) for s, a, b in row]


def test_constants_of_conditions_grow_as_well() -> None:
    n = Var("n", INDEX)
    row = [
        [Run(0, (Const(k, INDEX),), (), (Binary("lt", Const(4 * k, INDEX), n, "bool"),), (0,), (), ())]
        for k in range(6)
    ]
    (found,) = rolled(row, ROOT)
    tests = [c for c in found.conditions if isinstance(c, Binary) and c.b == n]
    assert [evaluate(tests[0].a, {found.loops[0]: k}) for k in range(6)] == [0, 4, 8, 12, 16, 20]
