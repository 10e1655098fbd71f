"""Bounds that isl writes as a choice between two numbers are compared with what should run, as all others are."""

from __future__ import annotations

from tensorlang import lower, te
from tensorlang.testing.check import check_schedule


def test_a_bound_of_a_tile_may_be_a_choice() -> None:
    A = te.placeholder((30,), "int32", name="A")
    k0, k1 = te.reduce_axis((3, 4), name="k0"), te.reduce_axis((0, 4), name="k1")
    C = te.compute((7,), lambda i: te.sum(A[k0] + A[k1] * i, axis=[k0, k1]), name="C")
    s = te.create_schedule(C.op)
    s[C].tile_by([k0, k1], [[1, 1], [1, -1]], [2, 3], [2, 0])
    assert "select(" in str(lower(s, [A, C]))
    check_schedule(s, [A, C])
