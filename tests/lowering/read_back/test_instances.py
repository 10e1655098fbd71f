"""The runs of generated code are compared with the wanted instances: all of them, each once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang.errors import InternalError
from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.stmt import INDEX
from tensorlang.lowering.read_back.instances import check_instances
from tensorlang.lowering.read_back.runs import Run
from tensorlang.polyhedral.statement import Role, Scop, Statement

F, A, B, Q, P, N = (Var(name, INDEX) for name in ("f", "i", "j", "o", "p", "n"))


def _within(*bounds: tuple[Expr, int, int]) -> tuple[Expr, ...]:
    return tuple(c for v, low, end in bounds for c in (binary("ge", v, low), binary("lt", v, end)))


def _statement(loops: str, *domain: Expr) -> Statement:
    return Statement("S", "S", Role.PURE, tuple(loops.split()), domain, (), (), ())


def _run(values: tuple[Expr | int, ...], time: tuple[int | str, ...], *conditions: Expr) -> Run:
    loops = tuple(part for part in time if isinstance(part, str))
    made = tuple(v if isinstance(v, Expr) else Const(v, INDEX) for v in values)
    return Run(0, made, loops, conditions, time, (), ())


def _check(statement: Statement, *runs: Run) -> None:
    check_instances(statement, runs, Scop((statement,), (), frozenset({"n"})))


FUSED = _statement(
    "f i j",
    *_within((F, 0, 24), (A, 0, 5), (B, 0, 1)),
    binary("lt", F // 12 + A, 5),
    binary("lt", binary("floormod", F, 4) + B, 3),
)
SPLIT = _run(  # f = 12 * o + p
    (12 * Q + P, A, 0),
    ("o", "p", "i"),
    *_within((Q, 0, 2), (P, 0, 12), (A, 0, 5)),
    binary("lt", Q + A, 5),
    binary("lt", binary("floormod", P, 4), 3),
)
BOX = _statement("i j", *_within((A, 0, 5), (B, 2, 9)))
WHOLE = _run((A, B), ("i", "j"), *_within((A, 0, 5), (B, 2, 9)))


def test_wanted_instances_pass() -> None:
    _check(FUSED, SPLIT)
    _check(BOX, WHOLE)
    unrolled = [_run((n, B), (n, "j"), *_within((B, 2, 9))) for n in range(5)]
    _check(BOX, *unrolled)
    _check(_statement("i j", *_within((A, 0, 5), (B, 2, 2))))
    _check(_statement("i", *_within((A, 0, 5)), binary("lt", A, N)), _run((A,), ("i",), *_within((A, 0, 5)), A < N))


def test_what_only_the_code_tests_is_not_compared() -> None:
    """A product of loops is tested at the statement, also where one of the loops is a number."""
    statement = _statement("i j", *_within((A, 0, 5), (B, 2, 3)), binary("lt", A * B, 7))
    _check(statement, _run((A, 2), ("i",), *_within((A, 0, 5))))


@pytest.mark.parametrize(
    ("statement", "run", "word"),
    [
        (FUSED, replace(SPLIT, conditions=SPLIT.conditions[:-1]), "runs"),
        (FUSED, replace(SPLIT, conditions=(*SPLIT.conditions, binary("ge", P, 1))), "does not run"),
        (FUSED, replace(SPLIT, values=(12 * Q + P, A, Const(1, INDEX))), "runs"),
        (FUSED, replace(SPLIT, values=(11 * Q + P, A, Const(0, INDEX))), "runs"),
        (BOX, replace(WHOLE, values=(A, B + 1)), "runs"),
        (BOX, replace(WHOLE, conditions=_within((A, 0, 5), (B, 2, 8))), "does not run"),
        (BOX, replace(WHOLE, conditions=_within((A, 0, 6), (B, 2, 9))), "runs"),
        (BOX, replace(WHOLE, conditions=(*WHOLE.conditions, binary("lt", A, B))), "does not run"),
        (BOX, replace(WHOLE, values=(A, A + 2)), "does not run"),
        (BOX, _run((A, B), ("o", "i", "j"), *WHOLE.conditions, *_within((Q, 0, 2))), "twice"),
    ],
)
def test_other_instances_are_found(statement: Statement, run: Run, word: str) -> None:
    with pytest.raises(InternalError, match=word):
        _check(statement, run)


def test_two_runs_of_the_same_instances_are_found() -> None:
    for statement, run in ((FUSED, SPLIT), (BOX, WHOLE)):
        first, second = (replace(run, time=(n, *run.time)) for n in range(2))
        with pytest.raises(InternalError, match="twice"):
            _check(statement, first, second)


def test_no_run_at_all_is_found() -> None:
    with pytest.raises(InternalError, match="no code runs S"):
        _check(BOX)
