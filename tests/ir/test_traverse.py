"""Expressions of thousands of levels, and of shared parts: no walk nests as deep, or meets a shared part each time."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

from tensorlang.errors import DefinitionError
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import (
    Binary,
    Buffer,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    rewrite,
    same,
    substitute,
    to_text,
    variables,
    walk,
)
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import simplify
from tensorlang.ir.traverse import Asking, bounded, children_first, distinct, excess, operations, unwound

x, y, i = Var("x", "float32"), Var("y", "float32"), Var("i", "int64")


def chain(operations: int, start: Expr = x) -> Expr:
    """`(start * 3 + 1) * 3 + 1 ...`."""
    for _ in range(operations // 2):
        start = start * 3 + 1
    return start


def doubled(times: int, start: Expr = x) -> Expr:
    """A sum of 2**times terms, of as many nodes as times."""
    for _ in range(times):
        start = start + start
    return start


def test_chains_are_compared_hashed_and_written() -> None:
    one, other = chain(5000), chain(5000)
    assert one.levels == 5001
    assert hash(one) == hash(other) and same(one, other) and bool(one == other)
    assert not same(one, chain(4998)) and not same(one, chain(5000, y))
    assert {one: 1}[other] == 1
    assert to_text(one).startswith("(" * 2499 + "x * 3.0 + 1.0) * 3.0") and to_text(one) == str(other)


@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy])
def test_chains_are_copied(copied: Callable[[Expr], Expr]) -> None:
    load = Load(Buffer("A", (Const(8, "int64"),), "float32"), (i,))
    one = chain(5000, load + x)
    made = copied(one)
    assert made is not one and same(made, one) and made.levels == one.levels
    shared = copied(doubled(60))
    assert len(list(distinct(shared))) == 61


def test_chains_are_rebuilt() -> None:
    one = chain(5000)
    assert same(substitute(one, {"x": y}), chain(5000, y))
    assert same(rewrite(one, lambda node: y if isinstance(node, Var) else None), chain(5000, y))
    assert variables(one) == {"x"} and sum(1 for _ in walk(one)) == 10001


def test_shared_parts_are_met_once() -> None:
    one, other = doubled(60), doubled(60)
    assert hash(one) == hash(other) and same(one, other)
    assert same(substitute(one, {"x": y}), doubled(60, y))
    assert same(rewrite(one, lambda node: y if isinstance(node, Var) else None), doubled(60, y))
    assert operations([one]) == 2**60 - 1 and variables(one) == {"x"}
    assert to_text(one) == "<float32 expression of more than 10^18 operations>"


def test_what_can_be_compiled_is_bounded() -> None:
    assert excess([chain(5000), chain(0)]) == ""
    assert excess([doubled(16)]) == ""
    assert "131,071 operations" in excess([doubled(17)]) and "100,000" in excess([doubled(17)])
    assert excess([chain(7000)]) == "operations nested 7,001 deep, and at most 6,000 levels can be compiled"


def test_index_arithmetic_is_followed_however_deep() -> None:
    index: Expr = i
    for _ in range(3000):
        index = Binary("add", index, Const(1, "int64"), "int64")
    assert affine(index) == {"i": 1, "": 3000}
    assert str(simplify(to_index(index), {"i": (0, 7)})) == "i + 3000"
    chosen = Binary("min", index, Const(5, "int64"), "int64")
    assert str(simplify(chosen, {"i": (0, 7)})) == "5"


def test_deep_integers_that_wrap_are_simplified_to_what_they_are() -> None:
    wrapped = chain(1000, Load(Buffer("A", (Const(8, "int64"),), "int32"), (i,)))
    assert same(simplify(wrapped), wrapped)


def test_zeros_of_both_signs_are_two_constants_and_nan_is_one() -> None:
    zero, minus, nan = Const(0.0, "float32"), Const(-0.0, "float32"), float("nan")
    assert not same(zero, minus)
    assert same(Const(nan, "float32"), Const(float("nan"), "float32"))
    assert hash(Const(nan, "float32")) == hash(Const(float("nan"), "float32"))


def test_children_come_first_and_once() -> None:
    shared = x + y
    order = list(children_first(shared * shared))
    assert [str(node) for node in order] == ["x", "y", "x + y", "(x + y) * (x + y)"]


@bounded
def _leaves(expr: Expr) -> int:
    return sum(map(_leaves, expr.children())) if expr.children() else 1


@bounded
def _faulty(expr: Expr, name: str) -> int:
    if isinstance(expr, Var) and expr.name == name:
        raise DefinitionError("met", None)
    return sum(_faulty(c, name) for c in expr.children())


def test_bounded_functions_call_themselves() -> None:
    assert _leaves(chain(5000)) == 5001
    assert _leaves(doubled(60)) == 2**60
    assert _faulty(chain(5000), "y") == 0
    with pytest.raises(DefinitionError, match="met"):
        _faulty(chain(5000), "x")


class _Namer:
    """Counts what it is asked about."""

    def __init__(self) -> None:
        self.asked = 0

    @bounded
    def count(self, expr: Expr) -> int:
        self.asked += 1
        return 1 + sum(map(self.count, expr.children()))


def test_results_of_one_object_are_not_those_of_the_next() -> None:
    """Objects that take the place of others in memory had their results, and none of what is noted on the way."""
    deep = chain(5000)

    def asked() -> int:
        namer = _Namer()
        namer.count(deep)
        return namer.asked

    assert len({asked() for _ in range(20)}) == 1


def _signs(expr: Expr, sign: int) -> Asking[int]:
    """The sum of the signs of the leaves."""
    if isinstance(expr, Unary):
        return (yield expr.a, -sign)
    total = 0
    for child in expr.children():
        total += yield child, sign
    return total if expr.children() else sign


def test_generators_are_run_without_nesting() -> None:
    expr: Expr = x
    for _ in range(2001):
        expr = -expr + y
    assert unwound(_signs, expr, 1) == -1 + 1
