"""What the lanes of a vector prove: nothing about loops inside, and nothing that a serial loop would break."""

from __future__ import annotations

from typing import Any

import pytest

from tensorlang import te
from tensorlang.errors import IllegalOrder, IllegalParallel
from tensorlang.testing.check import check_schedule


@te.hybrid.script
def diagonal(a: Any, b: Any) -> None:
    for i in range(4):
        for j in range(i, i + 1):
            b[i] = a[3 - j]
            a[i] = a[i] * 7 + b[i] + 1


@te.hybrid.script
def upwind(a: Any) -> None:
    for j in range(1, 6):
        for i in range(8):
            a[j, i] = a[j - 1, i + 1] * 2 + a[j, i]


@te.hybrid.script
def chained(a: Any, b: Any) -> None:
    for i in range(1, 9):
        a[i] = a[i] * 3
        b[i] = a[i - 1] + b[i]


@te.hybrid.script
def alternating(a: Any, b: Any) -> None:
    for i in range(9):
        if i % 2 == 1:
            a[i] = b[i] * 2
        else:
            a[i] = b[i] * 3
        if i % 2 == 1:
            b[i] = 5
        else:
            b[i] = a[i - 1] if i > 0 else 1


def test_a_loop_inside_may_be_another_iteration_in_every_lane() -> None:
    """The loop j has one iteration in each lane: none is left in the code, and lanes run the two statements in turn."""
    A, B = te.placeholder((8,), "int32", name="A"), te.placeholder((8,), "int32", name="B")
    s = te.create_schedule(diagonal(A, B)[0].op)
    with pytest.raises(IllegalParallel, match="iterations of i would run at the same time"):
        s["diagonal"].vectorize("i")
    check_schedule(s, [A, B])


@pytest.mark.parametrize("factor", [None, 3])
def test_lanes_moved_outwards_may_have_to_run_serially(factor: int | None) -> None:
    A = te.placeholder((6, 9), "int32", name="A")
    s = te.create_schedule(upwind(A).op)
    lane = s["upwind"].split("i", factor=factor)[1] if factor else "i"
    s["upwind"].vectorize(lane)
    with pytest.raises(IllegalOrder):
        s["upwind"].reorder(lane, "j")
    check_schedule(s, [A])


def test_statements_of_a_body_run_one_after_the_other_in_all_lanes() -> None:
    A, B = te.placeholder((9,), "int32", name="A"), te.placeholder((9,), "int32", name="B")
    s = te.create_schedule(chained(A, B)[0].op)
    s["chained"].vectorize("i")
    check_schedule(s, [A, B])
    s = te.create_schedule(chained(A, B)[0].op)
    with pytest.raises(IllegalParallel):
        s["chained"].parallel("i")


def test_one_lane_holds_one_iteration() -> None:
    """The generated loop has steps of two, and the statements of two iterations in its body."""
    A, B = te.placeholder((9,), "int32", name="A"), te.placeholder((9,), "int32", name="B")
    s = te.create_schedule(alternating(A, B)[0].op)
    s["alternating"].vectorize("i")
    check_schedule(s, [A, B])
