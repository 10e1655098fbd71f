"""Reads branch by branch, and the proof that they stay inside their arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.polyhedral.extract import check_bounds, guarded_loads, unproven
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import canonical

n, m = te.var("n"), te.var("m")
A = te.placeholder((10,), name="A")
P = te.placeholder((10, 6), name="P")
V = te.placeholder((n,), name="V")
I = te.placeholder((10,), "int32", name="I")  # noqa: E741
k = te.reduce_axis((0, 4), "k")


def compute(shape: Any, body: Callable[..., Any]) -> ComputeOp:
    """The canonical operation of one computed tensor C."""
    op = canonical([te.compute(shape, body, name="C")])[0]["C"]
    assert isinstance(op, ComputeOp)
    return op


OUTSIDE: dict[str, tuple[Callable[[], Any], str]] = {
    "past the end": (
        lambda: te.compute((10,), lambda i: A[i + 1], name="C"),
        "C reads A[i + 1] outside A of shape (10), for instance at i=9;",
    ),
    "before the start": (
        lambda: te.compute((10,), lambda i: A[i - 3], name="C"),
        "C reads A[i - 3] outside A of shape (10), for instance at i=0;",
    ),
    "a larger extent": (lambda: te.compute((11,), lambda i: A[i], name="C"), "for instance at i=10;"),
    "the second dimension": (
        lambda: te.compute((10, 7), lambda i, j: P[i, j], name="C"),
        "C reads P[i, j] outside P of shape (10, 6), for instance at i=0, j=6;",
    ),
    "a reduce axis": (
        lambda: te.compute((8,), lambda i: te.sum(A[i + k], axis=k), name="C"),
        "for instance at i=7, k=3;",
    ),
    "a stride": (lambda: te.compute((6,), lambda i: A[2 * i], name="C"), "C reads A[2 * i] outside A", ),
    "a quotient": (lambda: te.compute((22,), lambda i: A[i // 2], name="C"), "for instance at i=20;"),
    "a guard that is too weak": (
        lambda: te.compute((10,), lambda i: te.if_then_else(i > 0, A[i - 2], 0.0), name="C"),
        "for instance at i=1;",
    ),
    "the branch that the guard leaves": (
        lambda: te.compute((12,), lambda i: te.if_then_else(i < 10, 0.0, A[i]), name="C"),
        "for instance at i=10;",
    ),
    "any size": (lambda: te.compute((n,), lambda i: V[i + 1], name="C"), "for instance at i=0 with n=1;"),
    "two sizes": (
        lambda: te.compute((m,), lambda i: V[i], name="C"),
        "C reads V[i] outside V of shape (n), for instance at i=0 with n=0, m=1;",
    ),
    "no axis": (lambda: te.compute((), lambda: A[10], name="C"), "for instance at its only point;"),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTSIDE)
def test_reads_outside_are_refused_at_their_line(name: str) -> None:
    make, message = OUTSIDE[name]
    tensor = make()
    with pytest.raises(DefinitionError) as caught:
        te.create_schedule(tensor.op)
    assert message in caught.value.message.replace("with m=1, n=0", "with n=0, m=1")
    assert "guard the read with te.if_then_else, or change the extents" in caught.value.message
    where = caught.value.where
    lines, first = inspect.getsourcelines(make)
    assert where is not None and where.file == __file__ and first <= where.line < first + len(lines)


INSIDE: dict[str, Callable[[], Any]] = {
    "shifted within a guard": lambda: te.compute((10,), lambda i: te.if_then_else(i < 9, A[i + 1], 0.0)),
    "both branches": lambda: te.compute((12,), lambda i: te.if_then_else(i < 10, A[i], A[i - 10])),
    "guards of a conjunction": lambda: te.compute(
        (12, 8), lambda i, j: te.if_then_else(te.all(i >= 1, i < 11, j >= 1, j < 7), P[i - 1, j - 1], 0.0)
    ),
    "a window": lambda: te.compute((7,), lambda i: te.sum(A[i + k], axis=k)),
    "a condition of the reduction": lambda: te.compute((10,), lambda i: te.sum(A[i + k], axis=k, where=i + k < 10)),
    "quotient and remainder": lambda: te.compute((60,), lambda i: P[i // 6, i % 6]),
    "any size": lambda: te.compute((n,), lambda i: V[n - 1 - i]),
    "no elements": lambda: te.compute((0,), lambda i: A[i + 99]),
    "nested choices": lambda: te.compute(
        (30,), lambda i: te.select(i < 20, te.select(i < 10, A[i], A[i - 10]), A[i - 20])
    ),
    "data decides": lambda: te.compute((10,), lambda i: A[I[i]]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_reads_inside_are_accepted(name: str) -> None:
    check_bounds(canonical([INSIDE[name]()])[0])


def test_loads_know_their_conditions() -> None:
    op = compute((10,), lambda i: te.if_then_else(i < 4, A[i], A[i - 4] + A[0]))
    found = [(str(load), [str(c) for c in conditions]) for load, conditions in guarded_loads(op.body[0])]
    assert found == [("A[i]", ["i < 4"]), ("A[i - 4]", ["not (i < 4)"]), ("A[0]", ["not (i < 4)"])]


def test_conditions_of_reductions_and_of_conditions() -> None:
    op = compute((5,), lambda i: te.sum(te.select(A[k] > 0.0, P[i, k], 1.0), axis=k, where=k >= i))
    found = {str(load): [str(c) for c in conditions] for load, conditions in guarded_loads(op.body[0])}
    assert found == {"A[k]": ["k >= i"], "P[i, k]": ["k >= i", "A[k] > 0.0"]}


def test_unproven_loads_are_those_that_isl_cannot_see() -> None:
    op = compute((6,), lambda i: A[I[i]] + A[i] + te.if_then_else(A[i] > 0.0, A[i + 1], 0.0))
    assert [str(load) for load, _ in unproven(op, frozenset())] == ["A[I[i]]", "A[i + 1]"]
    assert not unproven(compute((6,), lambda i: A[i] + P[i, i % 6]), frozenset())
    product = compute((2,), lambda i: te.sum(A[i * k], axis=k))
    assert [str(load) for load, _ in unproven(product, frozenset())] == ["A[i * k]"]
