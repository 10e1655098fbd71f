"""Tests that isl cannot see: part of a statement as guards, and refused where they choose instances."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang.errors import InternalError
from tensorlang.ir.construct import array, loop
from tensorlang.ir.expr import Load, Var, binary
from tensorlang.ir.stmt import INDEX, If, Seq, Stmt
from tensorlang.lowering.read_back.implemented import check_implemented
from tests.lowering.read_back.test_code_order import code, i, leaf, scop, statement

TEST = binary("gt", Load(array("X", (8,)), (i,)), 0.0)
X = Var("x", INDEX)
ROW = replace(statement("S", (0, "x", 0)), domain=(binary("ge", X, 0), binary("lt", X, 8)))
FREE = scop(ROW, unordered=frozenset({"x"}))


def test_a_guard_is_part_of_what_a_statement_does() -> None:
    check_implemented(code(loop(i, 0, 8, If(TEST, leaf(0, i), is_guard=True))), FREE, frozenset())


@pytest.mark.parametrize(
    "body",
    [
        loop(i, 0, 8, If(TEST, leaf(0, i), leaf(0, 7 - i))),
        Seq((loop(i, 0, 8, If(TEST, leaf(0, i))), loop(i, 0, 8, If(~TEST, leaf(0, 7 - i))))),
    ],
    ids=["branches", "loops"],
)
def test_outcomes_may_differ_between_iterations(body: Stmt) -> None:
    """Each outcome alone would run all instances; where both occur, some run twice, and others never."""
    with pytest.raises(InternalError, match="a test that isl did not make"):
        check_implemented(code(body), FREE, frozenset())
