"""The verifier accepts well-formed kernels and names what is wrong with the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorlang.errors import InternalError
from tensorlang.ir.construct import array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Binary, Buffer, Call, Cast, Const, Expr, Select, Unary, Var
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    CallPython,
    DeviceKernel,
    Fail,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Seq,
    Stmt,
)
from tensorlang.ir.verify import verify

i, j, n = indices("i j n")
A, B = array("A", (n,)), array("B", (n,))
L = array("L", (4,), "float32", "local")
X32 = Var("x", "int32")
ONE = Const(1.0, "float32")
ZERO, GRID = Const(0, "int64"), (n, Const(1, "int64"), Const(1, "int64"))
W = array("W", (4,), "float32", "warp")
DEVICE = DeviceKernel("d", (A, B), (j,), GRID, (1, 1, 1), (), store(B, j, 1.0))
VECTOR, PARALLEL = LoopKind.VECTORIZED, LoopKind.PARALLEL


def made(body: Stmt) -> Kernel:
    return kernel("k", [A, B], "B", body, [n])


def over_i(body: Stmt) -> Stmt:
    return loop(i, 0, n, body)


@pytest.mark.parametrize(
    "body",
    [
        over_i(store(B, i, load(A, i) + 1.0)),
        Seq((over_i(store(B, i, 0.0)), over_i(store(B, i, 1.0)))),
        Allocate(L, Seq((store(L, 1, 2.0), store(B, 0, load(L, 1))))),
        Let(X32, Const(3, "int32"), store(B, 0, Cast(X32, "float32"))),
        loop(j, 8 * n, 8 * n + 8, loop(i, 0, n, store(B, i, 1.0)), VECTOR),
        If(n > 3, Fail("too long"), Seq(())),
        loop(i, 0, 1, store(B, i, 1.0), LoopKind.BOUND, "threadIdx.x"),
        loop(i, 0, n, Seq((Barrier(), AsyncCommit(), AsyncWait(0)))),
        Allocate(W, AsyncCopy(W, (ZERO,), A, (ZERO,), 1, n > 0)),
        loop(i, 0, n, Launch(DEVICE, (i,))),
    ],
)
def test_well_formed(body: Stmt) -> None:
    verify(made(body))


def value(expr: Expr) -> Stmt:
    """A store of an expression of any dtype."""
    return Let(Var("t", expr.dtype), expr, Seq(()))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (store(B, i, 1.0), "variable i is used outside its scope: i"),
        (over_i(over_i(store(B, i, 1.0))), "variable i is defined twice on one path"),
        (Let(X32, Const(3, "int64"), Fail("")), "the value of x is int64, expected int32"),
        (Let(X32, Const(3, "int32"), value(Var("x", "int64"))), "x is used as int64, defined as int32"),
        (store(B, (0, 0), 1.0), r"B: float32\[n\] has 1 dimensions, indexed with 2"),
        (store(B, Const(0, "int32"), 1.0), "an index of B is int32, expected int64: 0"),
        (store(B, 0, Const(1, "int64")), "the value stored into B is int64, expected float32"),
        (store(A, 0, 1.0), "A is written but is not an output"),
        (store(L, 0, 1.0), "buffer L is used outside its scope"),
        (store(array("B", (3,)), 0, 1.0), r"buffer B is used as B: float32\[3\] \(global\), declared as"),
        (Allocate(L, Allocate(L, Fail(""))), "buffer L is declared twice on one path"),
        (Allocate(array("B", (4,)), Fail("")), "buffer B is declared twice on one path"),
        (over_i(Allocate(array("S", (i,)), Fail(""))), "not made of integers and size parameters only"),
        (Allocate(Buffer("S", (), "int8", "heap"), Fail("")), "has the scope 'heap', not one of global, local, shared"),
        (If(Const(1, "int64"), Fail("")), "the condition is int64, expected bool"),
        (loop(X32, 0, 3, Fail("")), "loop variable x is int32, not int64"),
        (loop(i, 0, Const(3, "int32"), Fail("")), "a loop bound is int32, expected int64"),
        (loop(i, 0, 3, Fail(""), LoopKind.BOUND), "a bound loop has the thread tag ''"),
        (loop(i, 0, 3, Fail(""), PARALLEL, "threadIdx.x"), "a parallel loop has the thread tag 'threadIdx.x'"),
        (loop(i, 0, 4, loop(j, 0, 4, Fail(""), VECTOR), VECTOR), "a vectorized loop stands inside the vectorized loop"),
        (loop(i, 0, 4, loop(j, 0, 4, Fail(""), PARALLEL), VECTOR), "a parallel loop stands inside the vectorized"),
        (loop(i, 0, 4, loop(j, 0, i, Fail("")), VECTOR), "the bounds of a loop vary over the lanes i"),
        (CallPython("f", (A,)), "f is not among the callbacks"),
        (AsyncCopy(B, (ZERO,), A, (ZERO,), 1, n), "where a copy is valid is int64, expected bool"),
        (Launch(DEVICE, ()), "d takes 1 scalars, got 0"),
        (Launch(DEVICE, (i,)), "variable i is used outside its scope"),
        (Launch(replace(DEVICE, params=(A, L)), (n,)), "buffer L is used outside its scope"),
        (Launch(replace(DEVICE, body=store(A, j, 1.0)), (n,)), "A is written but is not an output"),
        (value(Binary("add", Const(1, "int8"), Const(1, "int32"), "int32")), "operands of add are int8 and int32"),
        (value(Binary("add", Const(1, "int8"), Const(1, "int8"), "int32")), "add of int8 gives int32"),
        (value(Binary("lt", Const(1, "int8"), Const(1, "int8"), "int8")), "lt gives int8"),
        (value(Binary("and", Const(1, "int8"), Const(1, "int8"), "bool")), "and of int8"),
        (value(Binary("div", Const(1, "int8"), Const(1, "int8"), "int8")), "div of int8"),
        (value(Binary("shl", ONE, ONE, "float32")), "shl of float32"),
        (value(Binary("add", Const(True, "bool"), Const(True, "bool"), "bool")), "add of bool"),
        (value(Binary("plus", ONE, ONE, "float32")), "unknown operation plus"),
        (value(Unary("neg", Const(True, "bool"), "bool")), "neg of bool"),
        (value(Unary("minus", ONE, "float32")), "unknown operation minus"),
        (value(Unary("neg", ONE, "float64")), "an operand is float32, expected float64"),
        (value(Cast(ONE, "float32")), "a cast to its own dtype"),
        (value(Select(Const(1, "int8"), ONE, ONE, "float32")), "an operand is int8, expected bool"),
        (value(Select(Const(True, "bool"), ONE, ONE, "float64")), "an operand is float32, expected float64"),
        (value(Const(300, "int8")), "a literal does not fit int8"),
        (value(Const(1.0, "int8")), "a int8 literal holds a Python float"),
        (value(Call("exponential", (ONE,), "float32")), "unknown intrinsic exponential"),
        (value(Call("exp", (ONE, ONE), "float32")), "exp takes 1 operands, got 2"),
        (value(Call("isnan", (ONE,), "float32")), "isnan gives bool"),
    ],
)
def test_malformed(body: Stmt, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(made(body))


def test_lanes_can_wait() -> None:
    early = made(loop(i, 0, n, loop(j, 0, i, store(B, j, 1.0)), VECTOR))
    verify(early, lanes=False)
    with pytest.raises(InternalError):
        verify(early)


def test_parameters_and_outputs() -> None:
    with pytest.raises(InternalError, match="two parameters of one name: A, A"):
        verify(kernel("k", [A, A], "", Seq(()), [n]))
    with pytest.raises(InternalError, match="writes C, which it has no parameter for"):
        verify(kernel("k", [A], "C", Seq(()), [n]))
    with pytest.raises(InternalError, match="size n of kernel k is int32, not int64"):
        verify(kernel("k", [], "", Seq(()), [Var("n", "int32")]))


def test_the_place_is_shown() -> None:
    long = loop(i, 0, n, loop(j, 0, i, Seq(tuple(store(B, i, float(n)) for n in range(20)))), VECTOR)
    with pytest.raises(InternalError) as caught:
        verify(made(long))
    text = str(caught.value)
    assert "kernel k: the bounds of a loop vary over the lanes i" in text
    assert "for j in range(i):" in text
    assert "... 9 lines more" in text
