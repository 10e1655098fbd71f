"""First products in place of cleared sums: only where they are the next thing that happens to these."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang import te
from tensorlang.ir.construct import array, index, loop
from tensorlang.ir.expr import Expr, Load, Var, const
from tensorlang.ir.stmt import INDEX, CallMachine, If, Kernel, LoopKind, Seq, Stmt, Store, View, walk
from tensorlang.lowering.passes.first_products import first_products

CODE = te.intrin("cuda.wgmma.m64n64k64.bf16.bt")
A, B = (array(x, (4, 64, 64), "bfloat16", "shared") for x in "AB")
C = array("C", (2, 64, 64), scope="warp")
i, j, k, n = (Var(name, INDEX) for name in "ijkn")


def cleared(at: Expr) -> CallMachine:
    x, y = Var("x", INDEX), Var("y", INDEX)
    meaning = loop(x, 0, 64, loop(y, 0, 64, Store(C, (at, x, y), const(0.0))))
    return CallMachine(CODE.code("reset"), (View(C, (at, index(0), index(0)), (1, 2), (1, 1)),), meaning)


def added(at: Expr) -> CallMachine:
    views = tuple(View(b, (part, index(0), index(0)), (1, 2), (1, 1)) for b, part in ((A, k), (B, k), (C, at)))
    return CallMachine(CODE.code("update"), views, Seq(()))


def steps(body: Stmt, extent: Expr | int = 4) -> Stmt:
    return loop(k, 0, extent, body)


def calls(*body: Stmt) -> list[str]:
    """The calls that are left, in order, with what they are told."""
    made = first_products(Kernel("k", (), (), (), Seq(body)))
    found = [s for s in walk(made.body) if isinstance(s, CallMachine)]
    return [f"{s.code.name.rpartition('.')[2]} {'' if s.accumulates is None else s.accumulates}" for s in found]


def tiles(var: Var, body: Stmt) -> Stmt:
    return loop(var, 0, 2, body)


def test_the_first_step_stores() -> None:
    assert calls(cleared(index(0)), steps(added(index(0)))) == ["update int32(k != 0)"]
    assert calls(cleared(index(0)), added(index(0))) == ["update 0"]


def test_several_tiles_are_stored_in_the_first_step() -> None:
    assert calls(tiles(i, cleared(i)), steps(tiles(j, added(j)))) == ["update int32(k != 0)"]
    assert calls(tiles(i, cleared(i)), tiles(j, steps(added(j)))) == ["update int32(k != 0)"]


def test_what_is_stored_is_what_the_code_means() -> None:
    made = first_products(Kernel("k", (), (), (), Seq((tiles(i, cleared(i)), steps(tiles(j, added(j)))))))
    (call,) = (s for s in walk(made.body) if isinstance(s, CallMachine))
    tests = [s.cond for s in walk(call.meaning) if isinstance(s, If)]
    stores = [s.index[0] for s in walk(call.meaning) if isinstance(s, Store)]
    assert [str(t) for t in tests] == ["k == 0"] and [str(s) for s in stores] == ["j"]


@pytest.mark.parametrize(
    "between",
    [
        Store(C, (index(0), index(1), index(2)), const(1.0)),
        Store(array("D", (1,)), (index(0),), Load(C, (index(0), index(1), index(2)))),
    ],
)
def test_sums_that_something_else_uses_before_are_cleared(between: Stmt) -> None:
    assert calls(cleared(index(0)), between, steps(added(index(0)))) == ["reset ", "update "]
    assert calls(cleared(index(0)), steps(Seq((between, added(index(0)))))) == ["reset ", "update "]


def test_a_product_that_may_not_come_does_not_clear() -> None:
    empty, guarded = steps(added(index(0)), n), steps(If(n > 3, added(index(0))))
    assert calls(cleared(index(0)), empty) == calls(cleared(index(0)), guarded) == ["reset ", "update "]
    assert calls(If(n > 3, cleared(index(0))), guarded) == ["update int32(k != 0)"]
    assert calls(cleared(index(0)), steps(If(k > 1, added(index(0))))) == ["reset ", "update "]


def test_other_tiles_are_cleared() -> None:
    assert calls(cleared(index(0)), steps(added(index(1)))) == ["reset ", "update "]
    assert calls(tiles(i, cleared(i)), steps(added(index(0)))) == ["reset ", "update "]
    assert calls(loop(i, 0, 1, cleared(i)), steps(tiles(j, added(j)))) == ["reset ", "update "]


def test_code_that_only_adds_is_left_alone() -> None:
    adds = te.intrin("cuda.mma.m16n8k16.bf16.bt")
    first = replace(cleared(index(0)), code=adds.code("reset"))
    then = replace(added(index(0)), code=adds.code("update"))
    assert calls(first, steps(then)) == ["reset ", "update "]


def test_threads_that_clear_are_those_that_add() -> None:
    def bound(var: Var, body: Stmt, thread: str) -> Stmt:
        return loop(var, 0, 2, body, LoopKind.BOUND, thread)

    first, then = bound(i, cleared(i), "threadIdx.y"), steps(bound(j, added(j), "threadIdx.y"))
    assert calls(first, then) == ["update int32(k != 0)"]
    assert calls(bound(i, cleared(i), "threadIdx.z"), then) == ["reset ", "update "]
