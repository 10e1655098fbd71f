"""Arrays that are updated in place: one memory, one life, and readers of the old values in time."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import BadArgument, DefinitionError
from tensorlang.testing.check import check_schedule

N = 8


@te.hybrid.script
def twice(y: Any) -> None:
    for t in range(2):  # noqa: B007
        for i in range(N):
            y[i] = y[i] * 2


@te.hybrid.script
def sums(y: Any) -> None:
    for i in range(1, N):
        y[i] = y[i] + y[i - 1]


def ones_more(name: str) -> tuple[te.Tensor, te.Tensor]:
    A = te.placeholder((N,), "int32", name="A")
    return A, te.compute((N,), lambda i: A[i] + 1, name=name)


@pytest.mark.parametrize("axis", ["t", "i"])
@pytest.mark.parametrize("updates", [1, 2])
def test_what_is_updated_in_place_is_computed_once(axis: str, updates: int) -> None:
    """Inside the loop that updates it, each iteration would begin with the values of before."""
    A, Y = ones_more("Y")
    last = twice(Y) if updates == 1 else sums(twice(Y))
    s = te.create_schedule(last.op)
    with pytest.raises(BadArgument, match="twice updates Y in place"):
        s[Y].compute_at(s["twice"], axis)
    check_schedule(s, [A, last])


@pytest.mark.parametrize("updated_first", [False, True])
def test_a_reader_of_the_old_values_comes_before_the_update(updated_first: bool) -> None:
    A = te.placeholder((N,), "int32", name="A")
    updated, Z = twice(A), te.compute((N,), lambda i: A[i] * 3, name="Z")
    outputs = (updated.op, Z.op) if updated_first else (Z.op, updated.op)
    s = te.create_schedule(outputs)
    check_schedule(s, [A, Z])


def test_readers_of_every_version_come_in_time() -> None:
    A = te.placeholder((N,), "int32", name="A")
    once = twice(A)
    both = sums(once)
    between = te.compute((N,), lambda i: once[i] + 7, name="between")
    start = te.compute((N,), lambda i: A[i] - between[i], name="start")
    with pytest.raises(DefinitionError, match="start reads A as it was before twice updates it in place, and needs"):
        te.create_schedule([both.op, start.op])
    old = te.compute((N,), lambda i: A[i] * 5, name="old")
    mixed = te.compute((N,), lambda i: old[i] - between[i], name="mixed")
    check_schedule(te.create_schedule([both.op, mixed.op]), [A, mixed])


def test_only_the_first_name_of_a_memory_can_be_folded() -> None:
    A, Y = ones_more("Y")
    doubled = twice(Y)
    D = te.compute((N,), lambda i: doubled[i] + 1, name="D")
    s = te.create_schedule(D.op)
    with pytest.raises(BadArgument, match="twice is Y, updated in place"):
        s["twice"].fold_storage("twice", 0)
    assert s[Y].fold_storage("Y", 0) == N
    check_schedule(s, [A, D])


def test_memory_of_an_output_is_not_folded_under_its_first_name() -> None:
    _, Y = ones_more("Y")
    s = te.create_schedule(twice(Y).op)
    with pytest.raises(BadArgument, match="Y belongs to the caller"):
        s[Y].fold_storage("Y", 0, 4)
