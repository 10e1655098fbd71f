"""Calls in unrolled loops: those that do not change there are made once, in front; the others stay where they are."""

from __future__ import annotations

import pytest

from tensorlang.ir import intrinsics
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.stmt import Allocate, For, Let, LoopKind, Seq, Stmt, walk
from tensorlang.lowering.device.invariants import called_once

i, j, k = indices("i j k")
A, S = array("A", (4, 8), scope="local"), array("S", (4,), scope="local")
G = array("G", (4,))


def exp2(value: Expr) -> Expr:
    return intrinsics.call("exp2", value)


def loops(value: Expr, kind: LoopKind = LoopKind.UNROLLED, then: Stmt | None = None) -> Stmt:
    """Rows i of A scaled, in a loop over columns j, behind which a statement of the row may follow."""
    inner = loop(j, 0, 8, store(A, (i, j), load(A, i, j) * value), kind)
    return loop(i, 0, 4, inner if then is None else Seq((inner, then)), LoopKind.UNROLLED)


def named(stmt: Stmt) -> list[str]:
    return [str(s.value) for s in walk(stmt) if isinstance(s, Let)]


def test_a_call_of_the_row_is_made_in_front_of_its_columns() -> None:
    row = exp2(load(S, i) - 1.0)
    made = called_once(loops(row * 2.0, then=store(S, i, row)))
    assert named(made) == [str(row)]
    assert isinstance(made, For) and isinstance(made.body, Seq) and isinstance(made.body.body[0], Let)
    (scaled, kept) = [s for s in walk(made) if isinstance(s, type(store(S, i, row)))]
    assert str(scaled.value) == "A[i, j] * (once0 * 2.0)" and str(kept.value) == str(row)


def test_one_of_no_loop_is_made_in_front_of_both_once() -> None:
    value = exp2(Var("x", "float32"))
    made = called_once(loops(value + value * load(A, i, j)))
    assert named(made) == [str(value)] and isinstance(made, Let)


@pytest.mark.parametrize(
    "stays",
    [
        loops(exp2(load(A, i, j))),
        loops(exp2(load(G, i))),
        loops(exp2(load(S, i)), LoopKind.SERIAL),
        loop(j, 0, 8, Seq((store(S, 0, load(S, 0) * exp2(load(S, 0))),)), LoopKind.UNROLLED),
        loop(j, 0, 8, Allocate(S, store(A, (0, j), exp2(load(S, 0)))), LoopKind.UNROLLED),
        loop(j, 0, k, store(A, (0, j), exp2(load(S, 0))), LoopKind.UNROLLED),
        loops(load(S, i) + 1.0),
    ],
    ids=["of a column", "of all threads", "serial", "written there", "allocated there", "perhaps empty", "no call"],
)
def test_others_stay(stays: Stmt) -> None:
    assert not named(called_once(stays))
