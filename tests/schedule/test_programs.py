"""Programs with something of their own under schedules: pairs, gathers, several outputs, externs, lower bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.errors import KernelError
from tensorlang.testing.check import check_schedule
from tests.programs import Case, argmax, with_extern

n, m = te.var("n"), te.var("m")


def gather() -> Case:
    """C = rows of A chosen by I, doubled."""
    A = te.placeholder((10, 6), name="A")
    rows = te.placeholder((8,), "int32", name="I")
    B = te.compute((10, 6), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((8, 6), lambda i, j: B[rows[i], j] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, rows, C))


ROWS = {"I": np.array([0, 9, 3, 3, 7, 1, 0, 5], np.int32)}


def test_gather_from_a_stage_computed_first() -> None:
    s, args = gather()
    s["C"].tile("i", "j", 3, 4)
    s["C"].parallel("i_o")
    s["B"].vectorize("j")
    check_schedule(s, args, inputs=ROWS)


@pytest.mark.parametrize("axis", ["i", "j"])
def test_gather_from_a_stage_computed_for_each_row(axis: str) -> None:
    """The rows that a tile needs are unknown, so all of them are computed; the columns are known."""
    s, args = gather()
    s["B"].compute_at(s["C"], axis)
    check_schedule(s, args, inputs=ROWS)
    shape = "[10, 6]" if axis == "i" else "[10, 1]"
    assert f"allocate B: float32{shape}" in str(tensorlang.lower(s, args))


def test_gather_through_an_inlined_stage() -> None:
    s, args = gather()
    s["B"].compute_inline()
    s["C"].vectorize("j")
    check_schedule(s, args, inputs=ROWS)


@pytest.mark.parametrize("target", ["interpreter", "llvm"])
@pytest.mark.parametrize("bad", [-1, 10, 2**31 - 1])
def test_gather_out_of_range(target: str, bad: int) -> None:
    s, args = gather()
    s["C"].split("i", factor=4)
    s["C"].parallel("i_o")
    rows = ROWS["I"].copy()
    rows[5] = bad
    kernel = tensorlang.build(s, args, target=target)
    with pytest.raises(KernelError, match=r"C reads B\[I\[i\], j\] out of bounds of B"):
        kernel(np.zeros((10, 6), np.float32), rows, np.zeros((8, 6), np.float32))


def test_gather_under_a_guard_reads_nothing_elsewhere() -> None:
    A, rows = te.placeholder((10,), name="A"), te.placeholder((8,), "int32", name="I")
    C = te.compute((8,), lambda i: te.if_then_else(te.all(rows[i] >= 0, rows[i] < 10), A[rows[i]], -1.0), name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=3)
    check_schedule(s, (A, rows, C), inputs={"I": np.array([0, -5, 9, 10, 99, 3, 2, -1], np.int32)})


@pytest.mark.parametrize("size", [0, 1, 2, 7, 9, 33])
def test_pairs_of_any_size(size: int) -> None:
    s, args = argmax(n, m)
    s["T"].split("k", factor=4, tail="peel")
    s["T"].split("i", factor=2)
    s["T"].parallel("i_o")
    check_schedule(s, args, {"n": 5, "m": size})


def test_pairs_in_parts() -> None:
    s, args = argmax(4, 37)
    s["T"].split("k", factor=8)
    partial = s.rfactor("T", "k_o", 1)
    s[partial[0]].parallel("i")
    s[partial[0]].vectorize("k_o")
    check_schedule(s, args)


def several() -> Case:
    """Sum and difference at once, then their product."""
    A, B = te.placeholder((13, 9), name="A"), te.placeholder((13, 9), name="B")
    S, D = te.compute((13, 9), lambda i, j: (A[i, j] + B[i, j], A[i, j] - B[i, j]), name="S")
    P = te.compute((13, 9), lambda i, j: S[i, j] * D[i, j], name="P")
    return Case(te.create_schedule([S.op, P.op]), (A, B, S, D, P))


def test_several_outputs() -> None:
    s, args = several()
    s["S"].tile("i", "j", 4, 4, tail="peel")
    s["S"].vectorize("j_i")
    s["P"].fuse("i", "j")
    check_schedule(s, args)


def test_several_values_computed_in_a_tile() -> None:
    A = te.placeholder((20,), name="A")
    S, D = te.compute((20,), lambda i: (A[i] + 1, A[i] - 1), name="S")
    P = te.compute((18,), lambda i: S[i] * D[i + 2], name="P")
    s = te.create_schedule(P.op)
    s[P].split("i", factor=5)
    s[S].compute_at(s[P], "i_o")
    check_schedule(s, (A, P))
    text = str(tensorlang.lower(s, (A, P)))
    assert "allocate S.v0: float32[7]" in text and "allocate S.v1: float32[7]" in text


@pytest.mark.parametrize("factor", [1, 3, 4, 16])
def test_quasi_affine_reads(factor: int) -> None:
    A = te.placeholder((6, 5), name="A")
    B = te.compute((30,), lambda i: A[i // 5, i % 5] + 1, name="B")
    C = te.compute((15,), lambda i: B[2 * i] + B[(3 * i) % 30] + B[29 - i // 2], name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=factor)
    s[B].compute_at(s[C], "i_o")
    check_schedule(s, (A, C))


def test_space_to_depth_and_back() -> None:
    A = te.placeholder((6, 8), name="A")
    B = te.compute((2, 2, 3, 4), lambda a, b, i, j: A[i * 2 + a, j * 2 + b], name="B")
    C = te.compute((6, 8), lambda i, j: B[i % 2, j % 2, i // 2, j // 2] + 1, name="C")
    s = te.create_schedule(C.op)
    s[C].tile("i", "j", 2, 4)
    s[B].compute_at(s[C], "j_o")
    check_schedule(s, (A, C))


def test_externs_between_scheduled_stages() -> None:
    s, args = with_extern()
    s["B"].split("i", factor=5, tail="peel")
    s["B"].vectorize("i_i")
    s.cache_read("S", "local", ["C"])
    s["C"].split("i", factor=4)
    s["S.local"].compute_at(s["C"], "i_o")
    s["C"].parallel("i_o")
    check_schedule(s, args)


def test_extern_with_several_outputs_and_its_own_result_as_output() -> None:
    def halves(values: Any, low: Any, high: Any) -> None:
        low[:], high[:] = np.minimum(values, 0), np.maximum(values, 0)

    A = te.placeholder((n,), name="A")
    L, H = te.extern([(n,), (n,)], [A], halves, name="E", dtype=["float32", "float32"])
    C = te.compute((n,), lambda i: H[i] - L[i], name="C")
    s = te.create_schedule([L.op, C.op])
    s[C].split("i", factor=4)
    for size in (0, 3, 9):
        check_schedule(s, (A, L, H, C), {"n": size})


def test_triangular_reduction() -> None:
    A = te.placeholder((9, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    C = te.compute((9, 9), lambda i, j: te.sum(A[i, k], axis=k, where=te.all(k <= j, k >= i - 2)), name="C")
    s = te.create_schedule(C.op)
    i_o, j_o, i_i, j_i = s[C].tile("i", "j", 4, 4, tail="peel")
    k_o, k_i = s[C].split("k", factor=3)
    s[C].reorder(i_o, j_o, k_o, i_i, k_i, j_i)
    s[C].vectorize(j_i)
    check_schedule(s, (A, C))


def test_reduction_with_a_start_of_its_own() -> None:
    A, D = te.placeholder((5, 12), "int32", name="A"), te.placeholder((5,), "int32", name="D")
    k = te.reduce_axis((0, 12), "k")
    C = te.compute((5,), lambda i: te.sum(A[i, k], axis=k, init=D[i] * 10), name="C")
    s = te.create_schedule(C.op)
    s[C].split("k", factor=5)
    s.rfactor(C, "k_i")
    check_schedule(s, (A, D, C))


def test_reduce_axes_with_a_lower_bound() -> None:
    A = te.placeholder((20,), "int32", name="A")
    k = te.reduce_axis((3, 17), "k")
    C = te.compute((4,), lambda i: te.sum(A[i + k], axis=k), name="C")
    for factor in (1, 4, 5, 20):
        s = te.create_schedule(C.op)
        s[C].split("k", factor=factor)
        s[C].reorder("k_o", "i", "k_i")
        check_schedule(s, (A, C))
    s = te.create_schedule(C.op)
    s.rfactor(C, "k")
    check_schedule(s, (A, C))


def test_scalars() -> None:
    A, x = te.placeholder((7,), name="A"), te.placeholder((), name="x")
    k = te.reduce_axis((0, 7), "k")
    S = te.compute((), lambda: te.sum(A[k], axis=k), name="S")
    C = te.compute((7,), lambda i: A[i] * x() - S(), name="C")
    s = te.create_schedule([S.op, C.op])
    s[S].split("k", factor=4)
    s[C].vectorize("i")
    check_schedule(s, (A, x, S, C))


@pytest.mark.parametrize("sizes", [{"n": 0, "m": 3}, {"n": 3, "m": 0}, {"n": 1, "m": 1}, {"n": 7, "m": 10}])
def test_three_stages_in_tiles_of_any_size(sizes: dict[str, int]) -> None:
    A = te.placeholder((n + 2, m), name="A")
    B = te.compute((n + 2, m), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((n + 1, m), lambda i, j: B[i, j] + B[i + 1, j], name="C")
    D = te.compute((n, m), lambda i, j: C[i, j] * C[i + 1, j], name="D")
    s = te.create_schedule(D.op)
    s[D].tile("i", "j", 4, 3)
    s[C].compute_at(s[D], "j_o")
    s[B].compute_at(s[C], "i")
    s[D].parallel("i_o")
    check_schedule(s, (A, D), sizes)


@pytest.mark.parametrize("target", ["interpreter", "llvm"])
def test_a_tile_that_only_the_first_iteration_fills(target: str) -> None:
    """isl would put the one producer in front of the loop, away from the array that each iteration has for itself."""
    A = te.placeholder((3,), name="A")
    B = te.compute((3,), lambda i: A[i] + 1, name="B")
    C = te.compute((2,), lambda i: te.if_then_else(i + 2 < 3, B[i + 2], 0.0), name="C")
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], "i")
    check_schedule(s, (A, C), targets=(target,))
    text = str(tensorlang.lower(s, (A, C)))
    assert text.count("allocate") == 1 and text.index("for i") < text.index("allocate") < text.index("B[0] =")


@pytest.mark.parametrize("size", [0, 1, 6])
def test_a_layout_with_holes(size: int) -> None:
    """Its last place is 2 n - 2: an extent that is negative for no elements."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    s[B].transform_layout(lambda i: 2 * i)
    check_schedule(s, (A, C), {"n": size})


@pytest.mark.parametrize("steps", [(), ("vectorize",), ("parallel",), ("unroll",)])
def test_a_condition_that_fusing_makes_a_remainder_of_a_quotient(steps: tuple[str, ...]) -> None:
    A = te.placeholder((3, 4), name="A")
    k = te.reduce_axis((0, 4), "k")
    C = te.compute((3, 3), lambda i, j: te.sum(A[i, k], axis=k, where=te.any(i != k, (i + k) % 2 == 0)), name="C")
    s = te.create_schedule(C.op)
    fused = s[C].fuse("i", "j")
    for word in steps:
        getattr(s[C], word)(fused)
    check_schedule(s, (A, C))


@pytest.mark.parametrize("rows, columns", [(8, 4), (5, 3), (7, 1)])
def test_a_layout_of_several_axes_in_one(rows: int, columns: int) -> None:
    A = te.placeholder((rows, columns), name="A")
    B = te.compute((rows, columns), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((rows, columns), lambda i, j: B[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    (flat,) = s[B].transform_layout(lambda i, j: [i * columns + j])
    assert str(flat.extent) == str(rows * columns)
    check_schedule(s, [A, C])
