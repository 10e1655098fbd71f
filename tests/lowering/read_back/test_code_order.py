"""The order of code is compared with that of the schedule: equal, or proven, or told apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensorlang import config
from tensorlang.errors import InternalError
from tensorlang.ir.construct import array, indices, kernel, loop, store
from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.instance import Instance
from tensorlang.ir.stmt import INDEX, If, Kernel, LoopKind, Seq, Stmt, Store
from tensorlang.lowering.read_back import reversed_pairs
from tensorlang.lowering.read_back.code_order import disorder
from tensorlang.lowering.read_back.reader import runs_of
from tensorlang.polyhedral.statement import Role, Scop, Statement

i, j, k = indices("i j k")
A = array("A", (64, 64))
n = Var("n", INDEX)


def leaf(statement: int, *values: Expr | int) -> Stmt:
    made = tuple(v if isinstance(v, Expr) else Const(v, INDEX) for v in values)
    stmt = store(A, (0, 0), 1.0)
    assert isinstance(stmt, Store)
    return Store(stmt.buffer, stmt.index, stmt.value, (Instance(statement, made),))


def statement(name: str, time: tuple[int | str, ...], lanes: tuple[str, ...] = ()) -> Statement:
    loops = tuple(part for part in time if isinstance(part, str))
    return Statement(name, name, Role.PURE, loops, (), (), (), (), time, lanes)


def scop(*statements: Statement, unordered: frozenset[str] = frozenset()) -> Scop:
    return Scop(statements, (), frozenset({"n"}), unordered)


def code(body: Stmt) -> Kernel:
    made = kernel("k", [A], "A", body)
    return Kernel(made.name, made.params, (n,), made.outputs, body)


NEST = statement("S", (0, "x", 0, "y", 0))
ROW = statement("S", (0, "x", 0))


@pytest.mark.parametrize(
    "body",
    [
        loop(i, 0, 8, loop(j, 0, 8, leaf(0, i, j))),
        Seq((loop(i, 0, 4, loop(j, 0, 8, leaf(0, i, j))), loop(i, 4, 8, loop(j, 0, 8, leaf(0, i, j))))),
        loop(i, 0, 8, Seq((loop(j, 0, 4, leaf(0, i, 2 * j)), leaf(0, i, 8), leaf(0, i, 9)))),
        loop(i, 0, 2, loop(k, 0, 4, loop(j, 0, 8, leaf(0, 4 * i + k, j)))),
        loop(i, 0, n, If(binary("lt", i, 3), loop(j, 0, 8, leaf(0, i, j)), loop(j, 0, 8, leaf(0, i, j)))),
        Seq((loop(i, 0, binary("floordiv", n, 4), leaf(0, i, 0)), leaf(0, binary("floordiv", n, 4), 0))),
    ],
    ids=["nest", "pieces", "copies", "digits", "branches", "quotients"],
)
def test_the_order_of_the_schedule_is_seen(body: Stmt) -> None:
    assert disorder(runs_of(code(body)), scop(NEST)) is None


@pytest.mark.parametrize(
    "body",
    [
        loop(j, 0, 8, loop(i, 0, 8, leaf(0, i, j))),
        loop(i, 0, 8, loop(j, 0, 8, leaf(0, 7 - i, j))),
        Seq((loop(i, 4, 8, loop(j, 0, 8, leaf(0, i, j))), loop(i, 0, 4, loop(j, 0, 8, leaf(0, i, j))))),
        loop(i, 0, 8, Seq((leaf(0, i, 1), leaf(0, i, 0)))),
        loop(i, 0, 2, loop(k, 0, 5, loop(j, 0, 8, leaf(0, 4 * i + k, j)))),
        Seq((leaf(0, binary("floordiv", n, 4), 0), loop(i, 0, binary("floordiv", n, 4), leaf(0, i, 0)))),
    ],
    ids=["interchanged", "backwards", "pieces swapped", "copies swapped", "overlapping digits", "quotients"],
)
def test_another_order_is_found(body: Stmt) -> None:
    assert disorder(runs_of(code(body)), scop(NEST)) is not None


def test_statements_of_one_iteration_are_in_order() -> None:
    two = scop(statement("S", (0, "x", 0)), statement("T", (0, "x", 1)))
    assert disorder(runs_of(code(loop(i, 0, 8, Seq((leaf(0, i), leaf(1, i)))))), two) is None
    assert disorder(runs_of(code(loop(i, 0, 8, Seq((leaf(1, i), leaf(0, i)))))), two) is not None
    apart = Seq((loop(i, 0, 8, leaf(0, i)), loop(i, 0, 8, leaf(1, i))))
    assert disorder(runs_of(code(apart)), two) is not None


def test_a_loop_that_proves_no_order_may_run_in_any() -> None:
    free = scop(statement("S", (0, "x", 0, "y", 0)), unordered=frozenset({"x"}))
    for body in (
        loop(i, 0, 8, loop(j, 0, 8, leaf(0, 7 - i, j))),
        loop(j, 0, 8, loop(i, 0, 8, leaf(0, i, j))),
        loop(i, 0, 8, loop(j, 0, 8, leaf(0, i, j)), LoopKind.PARALLEL),
    ):
        assert disorder(runs_of(code(body)), free) is None


def test_loops_run_at_once_only_where_the_schedule_has_them_so() -> None:
    lanes = scop(statement("S", (0, "x", 0), lanes=("x",)))
    vector, threads = (loop(i, 0, 8, leaf(0, i), kind) for kind in (LoopKind.VECTORIZED, LoopKind.PARALLEL))
    assert disorder(runs_of(code(vector)), lanes) is None
    assert disorder(runs_of(code(vector)), scop(ROW)) is not None
    assert disorder(runs_of(code(threads)), lanes) is not None
    assert disorder(runs_of(code(threads)), scop(ROW)) is not None


def test_loops_at_once_need_an_order_that_is_free() -> None:
    both = scop(statement("S", (0, "x", 0)), statement("T", (1, "y", 0)), unordered=frozenset("xy"))
    together = loop(i, 0, 8, Seq((leaf(0, i), leaf(1, i))), LoopKind.PARALLEL)
    assert disorder(runs_of(code(together)), both) is not None
    one = scop(statement("S", (0, "x", 0, "y", 0)), unordered=frozenset("x"))
    digits = leaf(0, binary("floordiv", i, 4), binary("floormod", i, 4))
    assert disorder(runs_of(code(loop(i, 0, 32, digits, LoopKind.PARALLEL))), one) is not None
    assert disorder(runs_of(code(loop(i, 0, 8, loop(j, 0, 4, leaf(0, i, j)), LoopKind.PARALLEL))), one) is None


def test_inner_loops_of_one_name_are_two() -> None:
    two = scop(statement("S", (0, "x", 1, "y", 0)), statement("T", (0, "x", 0, "z", 0)))
    body = loop(i, 0, 8, loop(j, 0, 8, If(binary("ge", i, j), leaf(0, i, j), leaf(1, i, j))))
    assert disorder(runs_of(code(body)), two) is not None
    with pytest.raises(InternalError, match="a loop i inside another one"):
        runs_of(code(loop(i, 0, 8, loop(i, 0, 8, leaf(0, i, i)))))


def row_of(values: Sequence[Expr], swapped: bool = False) -> tuple[Kernel, Scop]:
    """Statements in a row in one loop, each at a value of its own; the last two in another order if asked."""
    order = list(range(len(values)))
    order = [*order[:-2], order[-1], order[-2]] if swapped else order
    body = loop(i, 0, 8, Seq(tuple(leaf(p, values[p]) for p in order)))
    return code(body), scop(*(statement(f"S{p}", (0, "x", p)) for p in range(len(values))))


@pytest.mark.parametrize("value", [binary("floordiv", 2 * i, 2), binary("floordiv", 3 * i, 2)], ids=["sum", "none"])
def test_what_many_statements_have_in_common_is_asked_once(value: Expr) -> None:
    for swapped in (False, True):
        made, asked = row_of([value] * 40, swapped)
        with config.override(check=False):
            assert (disorder(runs_of(made), asked) is not None) == swapped


def test_what_is_left_out_is_said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reversed_pairs, "_QUESTIONS", 3)
    made, asked = row_of([8 * i + (i + p) // 3 - i // 3 for p in range(4)], swapped=True)
    with config.override(check=False, log="passes"):
        assert disorder(runs_of(made), asked) is None
    assert "questions about the order of two leaves are not answered" in capsys.readouterr().err
    with config.override(check=True, log="passes"):
        assert disorder(runs_of(made), asked) is not None
    assert not capsys.readouterr().err
