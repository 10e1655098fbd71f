"""Offsets of elements: the same as those of the indices, and without divisions where these cancel."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir.expr import Const, Expr, Var, substitute
from tensorlang.ir.flat import divides, flat_offset, row_major
from tensorlang.ir.simplify import simplify

FUSED, OUTER, INNER = Var("f", "int64"), Var("o", "int64"), Var("i", "int64")


def unfused(flat: Expr, extents: list[int]) -> list[Expr]:
    """The indices of one loop over all dimensions."""
    index: list[Expr] = []
    for extent in reversed(extents[1:]):
        index.insert(0, flat % Const(extent, "int64"))
        flat = flat // Const(extent, "int64")
    return [flat, *index]


def test_row_major() -> None:
    assert row_major([2, 3, 5]) == [15, 5, 1]
    assert row_major([7]) == [1]
    assert row_major([]) == []


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 5000))
def test_indices_of_a_fused_loop_cancel(extents: list[int], at: int) -> None:
    offset = flat_offset(unfused(FUSED, extents), row_major(extents), {})
    assert not divides(offset)
    assert simplify(substitute(offset, {"f": Const(at, "int64")})) == Const(at, "int64")


@given(st.lists(st.integers(1, 60), min_size=1, max_size=3), st.sampled_from([8, 16, 64]))
def test_they_cancel_in_vectors_of_a_loop_too(extents: list[int], width: int) -> None:
    ranges = {"i": (0, width - 1)}
    indices = [simplify(part, ranges) for part in unfused(OUTER * Const(width, "int64") + INNER, extents)]
    assert not divides(flat_offset(indices, row_major(extents), ranges))


def test_a_real_division_stays() -> None:
    assert divides(flat_offset([FUSED // Const(3, "int64")], [1], {}))
