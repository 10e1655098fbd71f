"""The verifier accepts well-formed device kernels and names what is wrong with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorlang.errors import InternalError
from tensorlang.ir.construct import array, index, indices, load, loop, store
from tensorlang.ir.expr import Buffer, Cast, Const, Var
from tensorlang.ir.stmt import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    BoxCopy,
    CallMachine,
    CallPython,
    Combiner,
    DeviceKernel,
    If,
    Let,
    LoopKind,
    MachineCode,
    MachineCommit,
    MachineWait,
    Seq,
    Stmt,
    ThreadReduce,
)
from tensorlang.ir.verify_device import verify_device

i, n = indices("i n")
TX, BX = indices("threadIdx.x blockIdx.x")
A, B = array("A", (n,)), array("B", (64,))
S, L = array("S", (32,), scope="shared"), array("L", (2,), scope="local")
ONE = Const(1, "int64")
X, Y = Var("x", "float32"), Var("y", "float32")
SUM = Combiner((X,), (Y,), (X + Y,), (Const(0.0, "float32"),))
KEPT = array("K", (4,), "int32")
F = array("F", (2,), "uint64", "shared")
BOX = BoxCopy(S, (index(0),), A, (index(8),), (32,), F)
CODE = CallMachine(MachineCode("code", (), Seq(()), lanes=32, group="own"), (), Seq(()))


def made(body: Stmt, **changes: Any) -> DeviceKernel:
    kernel = DeviceKernel("k", (A, B, KEPT), (n,), (n, ONE, ONE), (32, 1, 1), (S, F), body)
    return replace(kernel, **changes)


def reduction(extent: int = 32, tag: str = "threadIdx.x") -> ThreadReduce:
    return ThreadReduce(((L, (ONE,)),), (load(L, 0),), SUM, ((tag, extent),))


@pytest.mark.parametrize(
    "body",
    [
        Seq((store(S, TX, 1.0), Barrier(), store(B, TX, load(S, 31 - TX)))),
        If(n > BX, Barrier()),
        loop(i, 0, BX, Barrier()),
        If(TX < 3, store(B, TX, 1.0), store(B, TX, 2.0)),
        Let(Var("t", "int32"), load(KEPT, BX), If(Var("t", "int32") < 3, Barrier())),
        Allocate(L, reduction()),
        loop(i, 0, 4, store(B, 4 * TX + i, 1.0), LoopKind.VECTORIZED),
        Seq((AsyncCopy(S, (TX,), A, (TX,), 1, n > TX), AsyncWait(0))),
        Seq((If(TX < 1, BOX), AsyncCommit(F), AsyncWait(0, F))),
        Seq((CODE, MachineCommit("own"), If(BX < 1, MachineWait("own", 0)))),
    ],
)
def test_well_formed(body: Stmt) -> None:
    verify_device(made(body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (If(TX < 3, Barrier()), "not all threads of a block come here together"),
        (If(TX < 3, store(B, TX, 1.0), Barrier()), "not all threads"),
        (loop(i, 0, TX, Barrier()), "not all threads"),
        (loop(i, TX, TX + 1, If(i < 3, AsyncWait(0))), "not all threads"),
        (Let(i, TX * 2, If(i < 3, Barrier())), "not all threads"),
        (Seq((store(B, TX, 1.0), If(load(B, 0) < 1.0, Barrier()))), "not all threads"),
        (loop(i, 0, 2, Barrier(), LoopKind.VECTORIZED), "not all threads"),
        (If(TX < 3, Allocate(L, reduction())), "not all threads"),
        (Seq((CODE, If(TX < 3, MachineWait("own", 0)))), "not all threads of a group that run own together"),
        (replace(CODE, accumulates=TX), "an expression is int64, expected int32"),
        (Allocate(L, reduction(33)), "a reduction takes 33 threads along threadIdx.x, the block has 32"),
        (Allocate(L, reduction(1, "blockIdx.x")), "a reduction takes 1 threads along blockIdx.x, the block has 0"),
        (Allocate(L, replace(reduction(), threads=())), "along one at least"),
        (Allocate(L, replace(reduction(), values=())), "has not one value for each of its targets"),
        (loop(i, 0, 4, store(B, i, 1.0), LoopKind.BOUND, "threadIdx.y"), "a bound loop is left"),
        (loop(i, 0, 4, store(B, i, 1.0), LoopKind.PARALLEL), "a parallel loop is left"),
        (loop(i, 0, 3, store(B, i, 1.0), LoopKind.VECTORIZED), "a vectorized loop has 3 lanes"),
        (loop(i, 0, n, store(B, i, 1.0), LoopKind.UNROLLED), "an unrolled loop has no constant extent"),
        (store(B, i, 1.0), "variable i .* is used outside its scope"),
        (loop(i, 0, 2, loop(i, 0, 2, Barrier())), "variable i is defined twice"),
        (store(B, Cast(TX, "int32"), 1.0), "an expression is int32, expected int64"),
        (store(B, (TX, TX), 1.0), r"B: float32\[64\] has 1 dimensions, indexed with 2"),
        (store(B, TX, ONE), "an expression is int64, expected float32"),
        (store(L, 0, 1.0), "array L is used outside its scope"),
        (store(array("B", (3,)), 0, 1.0), r"array B is used as B: float32\[3\] \(global\), declared as"),
        (Allocate(S, Barrier()), "array S is declared twice"),
        (Allocate(array("T", (2,)), Barrier()), "array T has the scope 'global', not 'local'"),
        (Allocate(Buffer("T", (n,), "int8", "local"), Barrier()), r"the shape of T: int8\[n\] is not constant"),
        (Allocate(L, Barrier(), ("threadIdx.x",)), "still has a copy for each of threadIdx.x"),
        (AsyncCopy(B, (TX,), A, (TX,), 1), "from global to shared memory"),
        (If(TX < 1, replace(BOX, buffer=B)), "from global to shared memory"),
        (If(TX < 1, replace(BOX, box=(2, 2))), r"a box of A: float32\[n\] has 2 sides"),
        (If(TX < 1, replace(BOX, barriers=B)), "counted in B, which is no array in shared memory"),
        (If(TX < 1, AsyncCommit(F)), "not all threads"),
        (AsyncWait(0, L), "counted in L, which is no array in shared memory"),
        (CallPython("f", (A,)), "does not run on a device"),
    ],
)
def test_malformed(body: Stmt, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify_device(made(body))


def test_malformed_kernels() -> None:
    with pytest.raises(InternalError, match=r"the block has \(32, 0, 1\) threads"):
        verify_device(made(Barrier(), block=(32, 0, 1)))
    with pytest.raises(InternalError, match="the scalar m is int32, not int64"):
        verify_device(made(Barrier(), scalars=(n, Var("m", "int32"))))
    with pytest.raises(InternalError, match=r"variable i .* is used outside its scope"):
        verify_device(made(Barrier(), grid=(i, ONE, ONE)))
    with pytest.raises(InternalError, match="array S has the scope 'global', not 'shared'"):
        verify_device(made(Barrier(), shared=(replace(S, scope="global"),)))
