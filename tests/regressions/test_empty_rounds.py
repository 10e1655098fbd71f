"""Loops around nothing, beside a stage with work: 2^40 iterations took 20 minutes, interpreted ones days."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.ir.empty_rounds import skipping_empty_rounds
from tensorlang.ir.expr import as_expr
from tensorlang.ir.stmt import For, If
from tensorlang.schedule import Schedule, create_schedule

n, m = te.var("n"), te.var("m")
ROWS = 2**40
A, B = te.placeholder((n, m), name="A"), te.placeholder((4,), name="B")
D = te.compute((4,), lambda i: B[i] + 1.0, name="D")


def _plain(s: Schedule) -> None:
    """As declared."""


def _parallel(s: Schedule) -> None:
    s["C"].parallel("i")


def _tiles(s: Schedule) -> None:
    s["C"].tile("i", "j", 8, 16)


def _lanes(s: Schedule) -> None:
    s["C"].vectorize(s["C"].split("j", factor=8, tail="peel")[1])


@pytest.mark.parametrize("scheduled", [_plain, _parallel, _tiles, _lanes])
@pytest.mark.parametrize("target", ["llvm", "interpreter"])
def test_rows_without_elements_are_not_run(target: str, scheduled: Callable[[Schedule], None]) -> None:
    C = te.compute((n, m), lambda i, j: A[i, j] + 1.0, name="C")
    s = create_schedule([C.op, D.op])
    scheduled(s)
    built = tensorlang.build(s, [A, B, C, D], target=target)
    long, out = np.zeros((ROWS, 0), "f4"), np.zeros(4, "f4")
    built(long, np.ones(4, "f4"), long.copy(), out)
    assert (out == 2).all()
    rows, made = np.arange(6, dtype="f4").reshape(2, 3), np.zeros((2, 3), "f4")
    built(rows, np.ones(4, "f4"), made, out)
    assert (made == rows + 1).all()


def test_loops_that_some_sizes_leave_without_work_are_tested_once() -> None:
    """Tests stand around the outermost loop; where something runs for all sizes there is none."""
    r = te.reduce_axis((0, m), "r")
    sums = te.compute((n,), lambda i: te.sum(A[i, r], axis=r), name="C")
    kernel = tensorlang.lower(create_schedule(sums.op), [A, sums]).kernel
    names = frozenset(v.name for v in kernel.sizes)
    assert skipping_empty_rounds(kernel.body, names) == kernel.body
    doubled = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="C")
    body = tensorlang.lower(create_schedule(doubled.op), [A, doubled]).kernel.body
    assert isinstance(body, For)
    tested = skipping_empty_rounds(body, names)
    assert isinstance(tested, If) and str(tested.cond) == "0 < m" and tested.then is body
    short = replace(body, upper=as_expr(8, "int64"))
    assert skipping_empty_rounds(short, names) is short


def test_constant_extents_of_zero_leave_no_loop() -> None:
    E = te.placeholder((ROWS, 0), name="E")
    C = te.compute(E.shape, lambda i, j: E[i, j] + 1.0, name="C")
    assert str(ROWS) not in str(tensorlang.lower(create_schedule([C.op, D.op]), [E, B, C, D])).partition("\n")[2]
