"""Reads outside an array are refused when the schedule is made, or raise KernelError: none slips through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorlang import build, te
from tensorlang.errors import DefinitionError, KernelError
from tensorlang.schedule import Schedule
from tensorlang.te.numpy_eval import extent
from tensorlang.te.reference import evaluate
from tensorlang.testing.check import TARGETS, check_schedule

N = 16
FAR = 2**31 - 1


def table(name: str = "A", length: int = N) -> te.Tensor:
    return te.placeholder((length,), name=name)


def indices(name: str = "P") -> te.Tensor:
    return te.placeholder((N,), name=name, dtype="int32")


def result(s: Schedule, args: list[te.Tensor], target: str, **inputs: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The output of a kernel, or None when it raised KernelError."""
    out = np.zeros([extent(e, {}) for e in args[-1].shape], args[-1].dtype)
    try:
        build(s, args, target=target)(*inputs.values(), out)
    except KernelError:
        return None
    return out


def test_a_read_with_and_without_a_guard_is_proven_both_times() -> None:
    A = table(length=5)
    C = te.compute((10,), lambda i: A[i] + te.if_then_else(i < 5, A[i], 0.0), name="C")
    with pytest.raises(DefinitionError, match="outside A"):
        te.create_schedule(C.op)


def test_the_start_of_a_reduction_is_proven_even_where_nothing_is_reduced() -> None:
    A, k = table(), te.reduce_axis((0, 0), "k")
    C = te.compute((N,), lambda i: te.sum(A[k], axis=k, init=A[i + 5]), name="C")
    with pytest.raises(DefinitionError, match=r"A\[i \+ 5\] outside A"):
        te.create_schedule(C.op)


Body = Callable[[te.Tensor, te.Tensor, te.Tensor, te.Tensor], Callable[[te.Axis], Any]]
GATHERS: dict[str, Body] = {
    "guarded and not": lambda A, B, P, Q: lambda i: A[P[i]] + te.if_then_else(P[i] < 5, A[P[i]], B[Q[i]]),
    "a guard that gathers": lambda A, B, P, Q: lambda i: te.if_then_else(A[P[i]] > 0, B[Q[i]], 0.0),
    "the guard's read alone, too": lambda A, B, P, Q: lambda i: A[P[i]] + te.if_then_else(A[P[i]] > 0, B[Q[i]], 0.0),
    "a guard within a guard": lambda A, B, P, Q: (
        lambda i: te.if_then_else(
            te.all(P[i] >= 0, P[i] < N), te.if_then_else(A[P[i]] > 0, B[Q[i]], 0.0), te.const(7.0, "float32")
        )
    ),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
def test_gathers_fail_exactly_where_the_reference_does(name: str, target: str, vector: bool) -> None:
    A, B, P, Q = table("A"), table("B"), indices("P"), indices("Q")
    C = te.compute((N,), GATHERS[name](A, B, P, Q), name="C")
    s = te.create_schedule(C.op)
    if vector:
        s[C].vectorize(C.op.axis[0])
    ones = np.ones(N, np.float32)
    seen = set()
    for at in (FAR, -(2**31), -1, N, 3):
        for then in (FAR, -5, 3):
            i, j = np.zeros(N, np.int32), np.zeros(N, np.int32)
            i[5], j[5] = at, then
            inputs = {"A": ones, "B": ones, "P": i, "Q": j}
            try:
                expected = evaluate(s.original, inputs)["C"]
            except KernelError:
                expected = None
            got = result(s, [A, B, P, Q, C], target, **inputs)
            assert (got is None) == (expected is None), (at, then)
            if got is not None and expected is not None:
                np.testing.assert_array_equal(got, expected)
            seen.add(got is None)
    assert seen == {True, False}


@pytest.mark.parametrize("target", TARGETS)
def test_the_condition_of_a_reduction_is_checked(target: str) -> None:
    A, P, k = table(), indices(), te.reduce_axis((0, N), "k")
    C = te.compute((1,), lambda i: te.sum(A[k], axis=k, where=A[P[k]] > 0), name="C")
    s = te.create_schedule(C.op)
    good, far = np.zeros(N, np.int32), np.full(N, FAR, np.int32)
    ones = np.ones(N, np.float32)
    assert result(s, [A, P, C], target, A=ones, P=good) == [N]
    assert result(s, [A, P, C], target, A=ones, P=far) is None


@pytest.mark.parametrize("target", TARGETS)
def test_the_start_of_a_reduction_is_checked(target: str) -> None:
    A, P, k = table(), indices(), te.reduce_axis((0, 0), "k")
    C = te.compute((N,), lambda i: te.sum(A[k], axis=k, init=A[P[i]]), name="C")
    s = te.create_schedule(C.op)
    ones = np.ones(N, np.float32)
    got = result(s, [A, P, C], target, A=ones, P=np.zeros(N, np.int32))
    assert got is not None and (got == 1).all()
    assert result(s, [A, P, C], target, A=ones, P=np.full(N, FAR, np.int32)) is None


def conditional_sum() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Axis]:
    """C = the row sums of A where B = A - 1 is positive."""
    A = te.placeholder((N, N), name="A")
    B = te.compute((N, N), lambda i, j: A[i, j] - 1, name="B")
    k = te.reduce_axis((0, N), "k")
    return A, B, te.compute((N,), lambda i: te.sum(A[i, k], axis=k, where=B[i, k] > 0), name="C"), k


def test_a_condition_follows_its_array_to_where_it_is_computed() -> None:
    A, B, C, k = conditional_sum()
    s = te.create_schedule(C.op)
    i_o, i_i = s[C].split("i", factor=5)
    s[B].compute_at(s[C], i_o)
    s[C].reorder(k, i_i)
    s[C].vectorize(i_i)
    check_schedule(s, [A, C])


def test_a_condition_is_read_within_the_bounds_of_a_factored_reduction() -> None:
    A, B, C, k = conditional_sum()
    s = te.create_schedule(C.op)
    partial = s.rfactor(C, s[C].split(k, factor=5)[1])
    check_schedule(s, [A, C])
    s[B].compute_at(s[partial], s[partial].op.axis[0])
    check_schedule(s, [A, C])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", [8, 16], ids=["exact", "padded"])
def test_a_gather_from_another_layout_keeps_the_bounds(target: str, block: int) -> None:
    A = te.placeholder((40, 6), name="A")
    P = indices()
    B = te.compute((40, 6), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((N, 6), lambda i, j: B[P[i], j], name="C")
    s = te.create_schedule(C.op)
    s[B].transform_layout(lambda i, j: (i // block, j, i % block))
    a, index = np.ones((40, 6), np.float32), np.arange(N, dtype=np.int32)
    got = result(s, [A, P, C], target, A=a, P=index)
    assert got is not None and (got == 2).all()
    for wrong in (40, 45, -1):
        index[3] = wrong
        assert result(s, [A, P, C], target, A=a, P=index) is None


BODIES: dict[str, Callable[[te.Tensor], Callable[[te.Axis], Any]]] = {
    "shifted": lambda A: lambda i: A[i + 1],
    "periodic": lambda A: lambda i: A[i % 4],
    "without a read": lambda A: lambda i: i.astype("float32"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BODIES)
def test_a_gather_from_an_inlined_stage_keeps_the_bounds(target: str, name: str) -> None:
    A, P = table(length=41), indices()
    B = te.compute((40,), BODIES[name](A), name="B")
    C = te.compute((N,), lambda i: B[P[i]] + A[i], name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    a, index = np.arange(41, dtype=np.float32), np.arange(N, dtype=np.int32)
    expected = evaluate(s.original, {"A": a, "P": index})["C"]
    np.testing.assert_array_equal(result(s, [A, P, C], target, A=a, P=index), expected)
    for wrong in (-1, 40):
        index[3] = wrong
        assert result(s, [A, P, C], target, A=a, P=index) is None
