"""isl's order of a stage as steps: the known ones are found, and every kernel of the suite computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang
from examples.polybench import KERNELS
from examples.polybench.case import Case
from tensorlang import te
from tensorlang.schedule import Trace
from tensorlang.testing.check import check_schedule
from tests.programs import matmul
from tests.stencils import Stencil, jacobi
from tests.test_polybench import draw

n = te.var("n")


@te.hybrid.script
def antidiagonal(A: Any) -> Any:
    for i in range(1, A.shape[0]):
        for j in range(A.shape[1] - 1):
            A[i, j] = A[i - 1, j + 1] + 1
    return A


@te.hybrid.script
def unrelated(A: Any, B: Any) -> Any:
    for i in range(A.shape[0]):
        for j in range(1, A.shape[1]):
            A[i, j] = A[i, j - 1] + 1
            B[j, i] = B[j - 1, i] * 2
    return A, B


@te.hybrid.script
def pipeline(A: Any) -> Any:
    B = te.allocate((A.shape[0],), "int64")
    C = te.output_tensor((A.shape[0],), "int64")
    for i in range(A.shape[0]):
        B[i] = A[i] * 2
        C[i] = 0
    for j in range(1, A.shape[0] - 1):
        C[j] = B[j - 1] + B[j + 1]
    return C


def test_seidel_is_skewed_as_in_the_books() -> None:
    case = KERNELS["seidel-2d"]
    s = case.declare().create_schedule()
    made = s.auto_order()
    (name,) = s.state.stages
    assert made.left_out == ()
    assert str(made).splitlines() == [
        f"s['{name}'].skew('i', by='t', factor=1)",
        f"s['{name}'].skew('j', by='t', factor=1)",
        f"s['{name}'].skew('j_s', by='i_s', factor=1)",
    ]


def test_jacobi_is_shifted_fused_and_skewed() -> None:
    case = Stencil(jacobi, (n, n), (n, n))
    made = case.s.auto_order(parallel=True, tile=4)
    assert made.left_out == ()
    assert str(made).splitlines() == [
        "s['jacobi'].shift('i_1', 1)",
        "s['jacobi'].fuse_with('i', 'i_1_s')",
        "s['jacobi'].skew('i_fused', by='t', factor=2)",
        "s['jacobi'].shift('j_1', 1)",
        "s['jacobi'].fuse_with('j', 'j_1_s')",
        "s['jacobi'].skew('j_fused', by='t', factor=2)",
        "s['jacobi'].tile_by(['t', 'i_fused_s', 'j_fused_s'], [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [4, 4, 4])",
        "s['jacobi'].skew('i_fused_s_tile', by='t_tile', factor=1)",
        "s['jacobi'].reorder('i_fused_s_tile_s', 't_tile')",
        "s['jacobi'].parallel('t_tile')",
    ]
    for size in (3, 11):
        check_schedule(case.s, case.args, sizes={"n": size})


def test_the_steps_are_ordinary_ones() -> None:
    case = Stencil(jacobi, (n, n), (n, n))
    made = case.s.auto_order(parallel=True, tile=4)
    assert case.s.trace.steps == made.steps
    fresh = Stencil(jacobi, (n, n), (n, n))
    assert Trace.from_json(case.s.trace.to_json()).apply(fresh.s).trace == case.s.trace
    again = Stencil(jacobi, (n, n), (n, n))
    exec(case.s.trace.to_python(), {"s": again.s})
    assert again.s.trace == case.s.trace


def test_rows_that_are_no_skew_become_one_affine_step() -> None:
    A = te.placeholder((n, n), "int64", name="A")
    s = te.create_schedule(antidiagonal(A).op)
    made = s.auto_order(parallel=True)
    assert str(made).splitlines() == [
        "s['antidiagonal'].affine(['i', 'j'], [[1, 1], [1, 0]])",
        "s['antidiagonal'].parallel('i_a')",
    ]
    check_schedule(s, [A], sizes={"n": 7})


def test_statements_that_share_nothing_get_loops_of_their_own() -> None:
    A, B = (te.placeholder((n, n), "int64", name=name) for name in "AB")
    s = te.create_schedule(unrelated(A, B)[0].op)
    made = s.auto_order(parallel=True)
    text = str(made)
    assert "fission" in text
    assert text.count("parallel") == 2
    check_schedule(s, [A, B], sizes={"n": 6})


def test_a_pipeline_runs_in_one_loop() -> None:
    A = te.placeholder((12,), "int64", name="A")
    C = pipeline(A)
    s = te.create_schedule(C.op)
    made = s.auto_order()
    assert "fuse_with" in str(made)
    check_schedule(s, [A, C])


def test_a_reduction_is_no_parallel_loop() -> None:
    case = matmul()
    made = case.s.auto_order(parallel=True)
    assert str(made) == "s['C'].parallel('i')"
    check_schedule(case.s, case.args)


def test_nothing_to_do() -> None:
    case = matmul()
    assert str(case.s.auto_order()) == "the loops stay as they are"


def test_an_annotated_stage_is_left_out() -> None:
    case = matmul()
    case.s["C"].parallel("i")
    made = case.s.auto_order(parallel=True)
    assert made.steps == ()
    assert made.left_out == ("C: it is annotated, or computed inside another stage",)


@pytest.mark.sampled(5)
@pytest.mark.covering(1)
@pytest.mark.parametrize("case", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "symbolic"])
def test_every_kernel_computes_the_same(case: Case, constant: bool) -> None:
    declared = case.declare(case.sizes if constant else None)
    s = declared.create_schedule()
    s.auto_order(parallel=True, tile=4)
    given = draw(case, case.sizes)
    got = declared.call(tensorlang.build(s, declared.args), case.sizes, given)
    for name, wanted in case.run(case.sizes, given).items():
        np.testing.assert_allclose(got[name], wanted, rtol=1e-9, atol=1e-11, err_msg=name)


@te.hybrid.script
def under_a_condition(A: Any) -> Any:
    for i in range(8):
        if i < 4:
            A[i] = A[i] + 1
        if i > 9:
            A[i] = A[i] * 2
    return A


@te.hybrid.script
def between_others(A: Any) -> Any:
    for i in range(8):
        for j in range(8):
            if i > 9:
                A[i] = A[i] * 2
            A[j] = A[j] + A[i]
            if j > 9:
                A[i] = A[i] * 2
        for j in range(i, 0):
            A[i] = A[i] + A[j]
    return A


@te.hybrid.script
def alone(A: Any) -> Any:
    for i in range(8):
        for j in range(8, 4):
            A[i] = A[i] + A[j]
    return A


@te.hybrid.script
def before_a_pipeline(A: Any) -> Any:
    B = te.hybrid.output_tensor(A.shape, A.dtype)
    for i in range(8):
        if i > 9:
            B[i - 9] = A[i - 9] * 2
        x = A[i] * 2
        B[i] = x + 1
    for i in range(8):
        for j in range(8):
            if i + j > 40:
                B[i] = B[i] + A[j]
        B[i] = B[i] * 3
    return B


@pytest.mark.parametrize("script", [under_a_condition, between_others, alone, before_a_pipeline])
@pytest.mark.parametrize("tile", [None, 2])
def test_statements_that_never_run_are_in_no_order(script: Any, tile: int | None) -> None:
    A = te.placeholder((8,), "int64", name="A")
    made = script(A)
    s = te.create_schedule(made.op)
    s.auto_order(parallel=True, tile=tile)
    check_schedule(s, [A] if made.op.name != "before_a_pipeline" else [A, made])
