"""What a type checker knows of programs: mypy reads this file, and an `ignore` that nothing needs is an error."""

from __future__ import annotations

from typing import assert_type

from tensorlang import te, topi
from tensorlang.driver import Lowered, build, lower
from tensorlang.ir.expr import Expr, Var
from tensorlang.runtime.executable import Executable
from tensorlang.schedule import Schedule, Stage, create_schedule
from tensorlang.te.axis import Axis
from tensorlang.te.operation import Tensor

A, x = te.placeholder((8, 4), name="A"), te.placeholder(8, "float32", name="x")


def test_declarations() -> None:
    assert_type(A, Tensor)
    assert_type(te.var("n"), Var)
    assert_type(te.var("n", "int64"), Var)
    assert_type(te.reduce_axis((0, 4), "k"), Axis)
    assert_type(te.placeholder((te.var("n"), 3)), Tensor)
    assert_type(te.size_var("m"), Var)


def test_computed_tensors() -> None:
    k = te.reduce_axis((0, 4), "k")
    assert_type(te.compute((8,), lambda i: x[i] + 1), Tensor)
    assert_type(te.compute((8,), lambda i: te.sum(A[i, k], axis=k)), Tensor)
    assert_type(te.compute(8, lambda i: 1.0), Tensor)
    assert_type(te.compute(A.shape, lambda *i: te.exp(A(*i))), Tensor)
    pair = te.compute((8,), lambda i: (x[i], x[i] * 2))
    assert_type(pair, tuple[Tensor, ...])
    assert len(pair) == 2 and pair[0].shape == x.shape


def test_elements() -> None:
    assert_type(A[0, 1], Expr)
    assert_type(A[0][1], Expr)
    assert_type(A(0, 1), Expr)
    assert_type(x[0] + 1, Expr)
    total = x[0]
    total = total + te.exp(x[1])
    assert_type(total, Expr)


def test_whole_tensors() -> None:
    assert_type(topi.softmax(A), Tensor)
    assert_type(topi.sum(A, axis=1), Tensor)
    assert_type(topi.matmul(A, topi.transpose(A)), Tensor)


def test_schedules_and_kernels() -> None:
    B = te.compute((8,), lambda i: x[i] + 1, name="B")
    s = create_schedule(B.op)
    assert_type(s, Schedule)
    assert_type(s[B], Stage)
    outer, inner = s[B].split("i", factor=4)
    assert_type(outer, Axis)
    s[B].vectorize(inner)
    assert_type(lower(s, [x, B]), Lowered)
    assert_type(build(s, [x, B]), Executable)


def refused() -> None:
    """Nobody calls it: a type checker finds these mistakes."""
    te.compute((8,), lambda i: "text")  # type: ignore[arg-type, return-value]
    te.compute((8,), 3)  # type: ignore[call-overload]
    te.placeholder(("n",))  # type: ignore[arg-type]
    te.reduce_axis(16)  # type: ignore[arg-type]
    te.exp("x")  # type: ignore[arg-type]
    topi.softmax(3)  # type: ignore[arg-type]
