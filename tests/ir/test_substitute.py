"""Variables are replaced in nodes that expressions share once, and those stay shared."""

from __future__ import annotations

from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Binary, Const, Load, same, substitute, substitution
from tensorlang.ir.loops import iterations
from tensorlang.ir.stmt import Seq, Store

X, Y = indices("i j")
A, B = array("A", (64, 64)), array("B", (64, 64))


def test_integers_fold_on_the_way() -> None:
    assert same(substitute(4 * X + Y, {"i": Const(2, "int64")}), Const(8, "int64") + Y)
    assert same(substitute(4 * X + Y, {"i": Const(2, "int64"), "j": Const(3, "int64")}), Const(11, "int64"))
    unchanged = load(A, X, Y) + 1.0
    assert substitute(unchanged, {"k": Const(0, "int64")}) is unchanged


def test_what_expressions_share_their_results_share() -> None:
    shared = load(A, 4 * X + Y, Y)
    put = substitution({"i": Y})
    first, second = put(shared + 1.0), put(shared * 2.0)
    assert isinstance(first, Binary) and isinstance(second, Binary)
    assert first.a is second.a
    assert same(first.a, load(A, 4 * Y + Y, Y))


def test_copies_share_what_the_loop_does_not_change() -> None:
    read = load(A, 8 * X, X)
    copies = iterations(loop(Y, 0, 3, store(B, (X, Y), read)), 3)
    assert isinstance(copies, Seq)
    values = [s.value for s in copies.body if isinstance(s, Store)]
    assert len(values) == 3
    assert all(isinstance(v, Load) and v is read for v in values)
    again = iterations(loop(X, 2, 3, copies), 1)
    assert isinstance(again, Seq)
    first, *others = [s.value for s in again.body if isinstance(s, Store)]
    assert same(first, load(A, 16, 2)) and all(other is first for other in others)
