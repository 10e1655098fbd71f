"""Arrays have to outlive the iterations that share them, and every build sees to it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import tensorlang
from tensorlang.errors import InternalError
from tensorlang.ir.expr import Buffer, Const
from tensorlang.ir.stmt import INDEX, Allocate, Seq
from tensorlang.lowering.read_back.lifetimes import check_lifetimes
from tensorlang.lowering.read_back.reader import runs_of
from tensorlang.polyhedral.statement import Access, Role, Scop, Statement
from tensorlang.schedule.derive import threads
from tests.conformance.test_device_kernels import registers_ahead
from tests.lowering.read_back.test_code_order import code, leaf


def test_registers_that_do_not_outlive_an_iteration_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "takewhile", lambda keep, loops: loops)
    case = registers_ahead()
    with pytest.raises(InternalError, match=r"makes A\.local anew \(k_o\) where it has to live on"):
        tensorlang.lower(case.s, case.args, target="interpreter")


def test_registers_are_made_outside_of_the_loop() -> None:
    case = registers_ahead()
    text = str(tensorlang.lower(case.s, case.args, target="interpreter"))
    assert text.index("allocate A.local") < text.index("for k_o")


@pytest.mark.parametrize("copies", [range(4), (0, 2, 3)], ids=["copies of a loop", "others"])
def test_an_array_that_each_copy_makes_anew_is_found(copies: Sequence[int]) -> None:
    array = Buffer("B", (Const(4, INDEX),), "float32", "local")
    access = Access("B", (Const(0, INDEX),))
    program = Scop(
        (Statement("S", "S", Role.UPDATE, ("x",), (), (), (access,), (access,), (0, "x", 0)),), (), frozenset()
    )
    body = Seq(tuple(Allocate(array, leaf(0, number)) for number in copies))
    with pytest.raises(InternalError, match="makes B anew"):
        check_lifetimes(runs_of(code(body)), program)
    check_lifetimes(runs_of(code(Allocate(array, Seq(tuple(leaf(0, number) for number in copies))))), program)
