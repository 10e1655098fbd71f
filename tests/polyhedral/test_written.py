"""Reads before any write, in scripts, scans and recurrences."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tensorlang import config, te
from tensorlang.errors import DefinitionError
from tensorlang.polyhedral.written import check_written
from tensorlang.te.program import canonical


@te.hybrid.script
def suffix(A: Any) -> Any:
    """Backwards: the last element is written first."""
    n = A.shape[0]
    C = te.output_tensor((n,), "float32")
    for i in range(n):
        C[n - 1 - i] = A[n - 1 - i]
        if i > 0:
            C[n - 1 - i] += C[n - i]
    return C


@te.hybrid.script
def never_begun(A: Any) -> Any:
    """Sums into an element that holds nothing yet."""
    C = te.output_tensor((A.shape[0],), "float32")
    for i in range(A.shape[0]):
        for k in range(A.shape[0]):
            C[i] += A[k]
    return C


@te.hybrid.script
def in_place(A: Any) -> Any:
    """An input that is updated has contents."""
    for i in range(A.shape[0]):
        A[i] += 1
    return A


@te.hybrid.script
def every_other(A: Any) -> Any:
    """Only even elements of the local array are written, and all are read."""
    C = te.output_tensor((A.shape[0],), "float32")
    T = te.allocate((A.shape[0],), "float32")
    for i in range(A.shape[0]):
        if i % 2 == 0:
            T[i] = A[i]
    for j in range(A.shape[0]):
        C[j] = T[j]
    return C


@te.hybrid.script
def where_data_says(A: Any) -> Any:
    """Whether the local array is written depends on data: nothing is known."""
    C = te.output_tensor((A.shape[0],), "float32")
    T = te.allocate((A.shape[0],), "float32")
    for i in range(A.shape[0]):
        if A[i] > 0:
            T[i] = A[i]
    for j in range(A.shape[0]):
        C[j] = T[j]
    return C


@te.hybrid.script
def anew(A: Any) -> Any:
    """A local array is another one in every iteration: what the last one wrote is gone."""
    C = te.output_tensor((A.shape[0],), "float32")
    for i in range(A.shape[0]):
        T = te.allocate((2,), "float32")
        if i == 0:
            T[0] = A[i]
        C[i] = T[0]
    return C


@te.hybrid.script
def permuted(A: Any, P: Any) -> Any:
    """Elements at data-dependent indices are left alone."""
    C = te.output_tensor((A.shape[0],), "float32")
    for i in range(A.shape[0]):
        C[P[i]] = A[i]
    for j in range(A.shape[0]):
        C[j] += 1
    return C


def declared(script: Any) -> Any:
    """A script on vectors of symbolic length."""
    n = te.var("n")
    A, P = te.placeholder((n,), name="A"), te.placeholder((n,), "int32", name="P")
    return script(A, P) if script is permuted else script(A)


@pytest.mark.parametrize("script", [suffix, in_place, where_data_says, permuted])
def test_what_is_written_first_is_accepted(script: Any) -> None:
    te.create_schedule(declared(script).op)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (
            never_begun,
            r"never_begun: S0\[0, 0\] reads never_begun\[0\] before anything wrote it, for instance with .*=1;",
        ),
        (
            every_other,
            r"every_other: S1\[1\] reads every_other.T\[1\] before anything wrote it, for instance with .*=2;",
        ),
        (anew, r"anew: S1\[1\] reads anew.T\[0\] before anything wrote it, for instance with .*=2;"),
    ],
)
def test_what_is_read_first_is_refused(script: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        te.create_schedule(declared(script).op)


n = te.var("n")
A = te.placeholder((n,), name="A")
K = te.reduce_axis((0, n), "k")
BODIES: dict[str, tuple[Callable[..., Any], str]] = {
    "one back": (lambda self, i: te.if_then_else(i > 0, self[i - 1], 1.0), ""),
    "one ahead": (lambda self, i: te.if_then_else(i < n - 1, self[i + 1], 1.0), r"S0\[0\] reads h\[1\] .* n=2;"),
    "itself": (lambda self, i: self[i] + A[i], r"S0\[0\] reads h\[0\] .* n=1;"),
    "mirrored": (lambda self, i: self[n - 1 - i], r"S0\[0\] reads h\[0\] .* n=1;"),
    "half": (lambda self, i: te.if_then_else(i > 0, self[i // 2], 1.0), ""),
    "before in a sum": (lambda self, i: te.sum(self[K], axis=K, where=i > K), ""),
    "itself in a sum": (lambda self, i: te.sum(self[K], axis=K, where=i >= K), r"S1\[0, 0\] reads h\[0\] .* n=1;"),
}


@pytest.mark.parametrize("case", BODIES)
def test_recurrences(case: str) -> None:
    body, text = BODIES[case]
    op = te.recurrence((n,), body, name="h", dtype="float32").op
    if not text:
        te.create_schedule(op)
        return
    with pytest.raises(DefinitionError, match=f"h: {text} write the element first, or guard the read"):
        te.create_schedule(op)


def test_a_proof_that_is_too_long_refuses_nothing() -> None:
    """What is not known to be wrong is left to the user."""
    program, _ = canonical([te.recurrence((n,), lambda self, i: self[i] + A[i], name="h")])
    with config.override(budget=1):
        check_written(program)
    with pytest.raises(DefinitionError, match="before anything wrote it"):
        check_written(program)


OFFSETS = st.tuples(st.integers(-2, 2), st.integers(-2, 2))


@settings(max_examples=60, deadline=None, phases=[Phase.generate])
@given(st.lists(OFFSETS, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 4))
def test_the_verdict_is_that_of_running_the_loops(offsets: list[tuple[int, int]], rows: int, columns: int) -> None:
    """Reads at constant distances, guarded by the extents: refused exactly when a run meets an unwritten element."""

    def element(self: Any, i: Any, j: Any) -> Any:
        total: Any = te.const(1.0)
        for a, b in offsets:
            inside = te.all(i + a >= 0, i + a < rows, j + b >= 0, j + b < columns)
            total = total + te.if_then_else(inside, self[i + a, j + b], 0.0)
        return total

    op = te.recurrence((rows, columns), element, dtype="float32").op
    bad = any(
        (i + a, j + b) >= (i, j) and 0 <= i + a < rows and 0 <= j + b < columns
        for i, j in itertools.product(range(rows), range(columns))
        for a, b in offsets
    )
    if bad:
        with pytest.raises(DefinitionError, match="before anything wrote it"):
            te.create_schedule(op)
    else:
        te.create_schedule(op)
