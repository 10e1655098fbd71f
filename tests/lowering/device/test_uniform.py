"""Elements of a thread that are all equal are kept once: which ones are, and what the code does then."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir.expr import Buffer, Const, Expr, Load, Var, binary
from tensorlang.ir.interpret import run
from tensorlang.ir.stmt import INDEX, Allocate, For, If, Kernel, Let, LoopKind, Seq, Stmt, Store, walk
from tensorlang.lowering.device.uniform import kept_once

STEP, COLUMN = Var("i", INDEX), Var("j", INDEX)
FACTOR, GIVEN, OUT = (Buffer(n, (Const(e, INDEX),), "float32") for n, e in (("factor", 1), ("given", 4), ("out", 4)))
ROW, SUM = (Buffer(name, (Const(4, INDEX),), "float32", "local") for name in ("row", "sum"))


def number(value: float) -> Expr:
    return Const(value, "float32")


def along(stmt: Stmt, var: Var = COLUMN, extent: int = 4) -> For:
    return For(var, Const(0, INDEX), Const(extent, INDEX), LoopKind.SERIAL, stmt)


def merged(value: Expr, sums: Expr) -> Stmt:
    """`row[j], sum[j] = value, sums`, both read before either is written."""
    a, b = Var("a", "float32"), Var("b", "float32")
    return Let(a, value, Let(b, sums, Seq((Store(ROW, (COLUMN,), a), Store(SUM, (COLUMN,), b)))))


def program(update: Stmt) -> Stmt:
    """Begin, update twice, and store the sums by the rows."""
    begin = along(merged(number(1.0), number(0.0)))
    store = along(Store(OUT, (COLUMN,), Load(SUM, (COLUMN,)) + Load(ROW, (COLUMN,))))
    return Allocate(ROW, Allocate(SUM, Seq((begin, along(update, STEP, 2), store))))


def shapes(stmt: Stmt) -> dict[str, int]:
    return {s.buffer.name: int(s.buffer.shape[0].value) for s in walk(stmt) if isinstance(s, Allocate)}  # type: ignore[attr-defined]


def computed(stmt: Stmt) -> list[float]:
    arrays = {
        "factor": np.array([3], np.float32),
        "given": np.arange(4, dtype=np.float32),
        "out": np.zeros(4, np.float32),
    }
    run(Kernel("k", (FACTOR, GIVEN, OUT), (), ("out",), stmt), arrays)
    return [float(x) for x in arrays["out"]]


GROWN = binary("mul", Load(ROW, (COLUMN,)), Load(FACTOR, (Const(0, INDEX),)))
SUMMED = Load(SUM, (COLUMN,)) + Load(ROW, (COLUMN,)) * Load(GIVEN, (COLUMN,))


def test_what_is_equal_is_kept_once_and_updated_after_its_readers() -> None:
    before = program(along(merged(GROWN, SUMMED)))
    after = kept_once(before)
    assert shapes(after) == {"row": 1, "sum": 4}
    assert computed(after) == computed(before) == [9.0, 13.0, 17.0, 21.0]


def test_a_loop_around_and_one_beside_do_not_matter() -> None:
    """Other statements may stand between the loops, as long as they leave the arrays alone."""
    other = Store(GIVEN, (Const(0, INDEX),), number(5.0))
    before = program(along(Seq((other, merged(GROWN, SUMMED)))))
    after = kept_once(before)
    assert shapes(after) == {"row": 1, "sum": 4}
    assert computed(after) == computed(before)


@pytest.mark.parametrize(
    "update",
    [
        along(merged(Load(ROW, (COLUMN,)) + Load(GIVEN, (COLUMN,)), SUMMED)),
        along(merged(GROWN, SUMMED), extent=3),
        along(If(COLUMN < 2, merged(GROWN, SUMMED))),
        along(Seq((Store(FACTOR, (Const(0, INDEX),), Load(GIVEN, (COLUMN,))), merged(GROWN, SUMMED)))),
        along(Seq((merged(GROWN, SUMMED), Store(GIVEN, (COLUMN,), Load(ROW, (COLUMN,)))))),
        along(Seq((Store(ROW, (COLUMN,), number(2.0)), Store(SUM, (COLUMN,), SUMMED)))),
        along(along(merged(GROWN, SUMMED), Var("k", INDEX), 2)),
    ],
    ids=["values", "part", "test", "changed", "read", "ordered", "again"],
)
def test_what_may_differ_or_is_used_in_between_stays(update: Stmt) -> None:
    before = program(update)
    after = kept_once(before)
    assert shapes(after) == {"row": 4, "sum": 4}
    assert computed(after) == computed(before)
