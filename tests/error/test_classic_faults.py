"""What classic te accepted and got wrong, or let crash: here refused, or right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import BadArgument
from tensorlang.testing.check import check_schedule
from tests.programs import Case, chain, matmul

DIVISORS = (-4, -3, -1, 1, 3, 7)


@pytest.mark.parametrize("factor", [0, -1, -64])
def test_split_factors_below_one(factor: int) -> None:
    with pytest.raises(BadArgument, match="factor must be at least 1"):
        chain().s["C"].split("i", factor=factor)
    with pytest.raises(BadArgument, match="nparts must be at least 1"):
        chain().s["C"].split("i", nparts=factor)


def test_inlining_an_output() -> None:
    s = chain().s
    with pytest.raises(BadArgument, match="C is an output"):
        s["C"].compute_inline()


@pytest.mark.parametrize("axis", ["i_j_fused_o", "i_j_fused_i"])
@pytest.mark.parametrize("n", [10, 12])
def test_compute_at_under_a_fused_and_split_loop(n: int, axis: str) -> None:
    A = te.placeholder((n + 1, n), name="A")
    B = te.compute((n + 1, n), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n, n), lambda i, j: B[i, j] + B[i + 1, j], name="C")
    s = te.create_schedule(C.op)
    s[C].split(s[C].fuse("i", "j"), factor=4)
    s[B].compute_at(s[C], axis)
    check_schedule(s, (A, C))


@pytest.mark.parametrize("axis", ["i_o", "i_i_o", "i_i_i"])
def test_compute_at_under_loops_split_twice(axis: str) -> None:
    A = te.placeholder((40,), name="A")
    B = te.compute((40,), lambda i: A[i] + 1, name="B")
    C = te.compute((37,), lambda i: B[i] * B[i + 3], name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=10)
    s[C].split("i_i", factor=4)
    s[B].compute_at(s[C], axis)
    check_schedule(s, (A, C))


def quotients(divisor: int) -> Case:
    """Floor and truncating division and remainder of int32 by a constant."""
    A = te.placeholder((41,), "int32", name="A")
    made = te.compute(
        (41,),
        lambda i: (
            te.floordiv(A[i], divisor),
            te.floormod(A[i], divisor),
            te.truncdiv(A[i], divisor),
            te.truncmod(A[i], divisor),
        ),
        name="Q",
    )
    return Case(te.create_schedule(made[0].op), (A, *made))


@pytest.mark.parametrize("target", ["interpreter", "llvm"])
@pytest.mark.parametrize("divisor", DIVISORS)
def test_division_of_negative_integers(divisor: int, target: str) -> None:
    s, args = quotients(divisor)
    s["Q"].split("i", factor=8, tail="peel")
    s["Q"].vectorize("i_i")
    values = np.arange(-20, 21, dtype=np.int32)
    outputs = [np.full(41, 99, np.int32) for _ in range(4)]
    tensorlang.build(s, args, target=target)(values, *outputs)
    truncated = np.fix(values / divisor).astype(np.int32)
    assert outputs[0].tolist() == [int(v) // divisor for v in values]
    assert outputs[1].tolist() == [int(v) % divisor for v in values]
    assert outputs[2].tolist() == truncated.tolist()
    assert outputs[3].tolist() == (values - truncated * divisor).tolist()


@pytest.mark.parametrize("target", ["interpreter", "llvm"])
def test_division_of_negative_integers_by_each_other(target: str) -> None:
    A, B = te.placeholder((9,), "int32", name="A"), te.placeholder((6,), "int32", name="B")
    C, D = te.compute((9, 6), lambda i, j: (A[i] // B[j], A[i] % B[j]), name="C")
    s = te.create_schedule(C.op)
    s["C"].vectorize("j")
    a, b = np.arange(-4, 5, dtype=np.int32), np.array(DIVISORS, np.int32)
    c, d = np.zeros((9, 6), np.int32), np.zeros((9, 6), np.int32)
    tensorlang.build(s, [A, B, C, D], target=target)(a, b, c, d)
    assert c.tolist() == [[int(x) // int(y) for y in b] for x in a]
    assert d.tolist() == [[int(x) % int(y) for y in b] for x in a]


def test_indices_that_divide_negative_values() -> None:
    A = te.placeholder((5,), name="A")
    B = te.compute((9,), lambda i: A[(i - 4) // 2 + 2] + A[(i - 4) % 3], name="B")
    s = te.create_schedule(B.op)
    s[B].split("i", factor=4)
    check_schedule(s, (A, B))


def test_a_refused_step_can_be_followed_by_a_legal_one() -> None:
    s, args = matmul()
    for method, arguments in (("parallel", ("k",)), ("split", ("i", 0)), ("compute_inline", ())):
        with pytest.raises(tensorlang.ScheduleError):
            getattr(s["C"], method)(*arguments)
    s["C"].parallel("i")
    check_schedule(s, args)


def test_an_inlined_tensor_is_gone_and_says_so() -> None:
    A: Any = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    with pytest.raises(BadArgument, match=r"no stage 'B' \(inlined\?\)"):
        s[B]
