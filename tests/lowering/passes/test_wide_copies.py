"""Lanes of asynchronous copies: neighbours become one wide copy, others one copy each."""

from __future__ import annotations

import pytest

from tensorlang.ir.construct import array, indices, kernel
from tensorlang.ir.expr import Const, Expr
from tensorlang.ir.stmt import INDEX, AsyncCopy, For, If, LoopKind, Stmt, walk
from tensorlang.lowering.passes.wide_copies import wide_copies

i, v = indices("i v")
A, S = array("A", (8, 64)), array("S", (64, 64), scope="shared")


def lanes(body: Stmt, extent: int = 4) -> Stmt:
    loop = For(v, Const(0, INDEX), Const(extent, INDEX), LoopKind.VECTORIZED, body)
    return wide_copies(kernel("main", [A, S], "S", loop)).body


def copy(at: Expr, source: Expr, valid: Expr | None = None) -> AsyncCopy:
    return AsyncCopy(S, (i, at), A, (i, source), 1, valid)


def test_neighbours_become_one_copy() -> None:
    made = lanes(copy(4 * i + v, v + 8))
    assert isinstance(made, AsyncCopy) and made.elements == 4
    assert [str(e) for e in (*made.index, *made.source_index)] == ["i", "4 * i", "i", "8"]


def test_a_test_that_all_lanes_pass_stays_around_the_copy() -> None:
    made = lanes(If(i < 3, copy(v, v, i < 2)))
    assert isinstance(made, If) and isinstance(made.then, AsyncCopy)
    assert made.then.elements == 4 and made.then.valid is not None


@pytest.mark.parametrize(
    "body",
    [
        copy(2 * v, v),
        copy(v, 3 - v),
        copy(v, v, v < 3),
        If(v < 3, copy(v, v)),
        AsyncCopy(S, (v, i), A, (i, v), 1),
    ],
    ids=["strided", "mirrored", "some are zeros", "some are left out", "a column"],
)
def test_others_are_copied_one_by_one(body: Stmt) -> None:
    made = lanes(body)
    assert isinstance(made, For) and made.kind is LoopKind.UNROLLED
    assert all(s.elements == 1 for s in walk(made) if isinstance(s, AsyncCopy))
