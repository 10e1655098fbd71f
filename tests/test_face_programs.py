"""Classic te programs as they stand in tutorials: only the import lines differ."""

from __future__ import annotations

from typing import Any

import numpy as np

import tensorlang as tvm
from tensorlang import te


def test_vector_add() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=64)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    tgt = tvm.target.Target("llvm")
    fadd = tvm.build(s, [A, B, C], tgt, name="myadd")
    dev = tvm.device("llvm", 0)
    for size in (1, 64, 1000):
        a = tvm.nd.array(np.random.uniform(size=size).astype(A.dtype), dev)
        b = tvm.nd.array(np.random.uniform(size=size).astype(B.dtype), dev)
        c = tvm.nd.array(np.zeros(size, dtype=C.dtype), dev)
        fadd(a, b, c)
        tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
    evaluator = fadd.time_evaluator(fadd.entry_name, dev, number=3, repeat=2)
    assert evaluator(a, b, c).mean > 0
    assert "parallel i" in str(tvm.lower(s, [A, B, C], simple_mode=True))


def test_blocked_gemm_with_packing_and_write_cache() -> None:
    M = K = N = 64
    bn = 16
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    packedB = te.compute((N // bn, K, bn), lambda bigN, k_, littleN: B[k_, bigN * bn + littleN], name="packedB")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=4)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    func = tvm.build(s, [A, B, C], target="llvm", name="mmult")
    a = tvm.nd.array(np.random.rand(M, K).astype("float32"))
    b = tvm.nd.array(np.random.rand(K, N).astype("float32"))
    c = tvm.nd.array(np.zeros((M, N), dtype="float32"))
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), np.dot(a.numpy(), b.numpy()), rtol=1e-5)
    assert len(s.stages) >= 4 and (no, mi, ni) is not None


def test_row_sum_with_rfactor() -> None:
    n = te.var("n")
    m = te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    s[BF].parallel(s[BF].op.axis[0])
    fsum = tvm.build(s, [A, B], "llvm", name="rowsum")
    a = np.random.uniform(size=(13, 77)).astype("float32")
    b = tvm.nd.empty((13,))
    fsum(tvm.nd.array(a), b)
    tvm.testing.assert_allclose(b.numpy(), a.sum(axis=1), rtol=1e-5)


def test_argmax_with_a_tuple_reduction() -> None:
    def fcombine(x: Any, y: Any) -> Any:
        lhs = tvm.tir.Select(x[1] >= y[1], x[0], y[0])
        rhs = tvm.tir.Select(x[1] >= y[1], x[1], y[1])
        return lhs, rhs

    def fidentity(t0: str, t1: str) -> Any:
        return tvm.tir.const(-1, t0), tvm.te.min_value(t1)

    argmax = te.comm_reducer(fcombine, fidentity, name="argmax")
    m = te.var("m")
    n = te.var("n")
    idx = te.placeholder((m, n), name="idx", dtype="int32")
    val = te.placeholder((m, n), name="val", dtype="int32")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
    s = te.create_schedule(T0.op)
    f = tvm.build(s, [idx, val, T0, T1])
    values = np.random.default_rng(0).permutation(35).reshape(5, 7).astype("int32")
    where = np.tile(np.arange(7, dtype="int32"), (5, 1))
    t0, t1 = tvm.nd.empty((5,), "int32"), tvm.nd.empty((5,), "int32")
    f(tvm.nd.array(where), tvm.nd.array(values), t0, t1)
    assert t0.numpy().tolist() == values.argmax(axis=1).tolist()
    assert t1.numpy().tolist() == values.max(axis=1).tolist()


def test_extern_with_a_registered_function() -> None:
    @tvm.register_func("tvm.contrib.my_tvm_addone", override=True)
    def my_tvm_addone(x: Any, y: Any) -> None:
        tvm.nd.array(x.numpy() + 1).copyto(y)

    n = 10
    A = te.placeholder((n,), name="A")
    B = te.extern(
        A.shape,
        [A],
        lambda ins, outs: tvm.tir.call_packed("tvm.contrib.my_tvm_addone", ins[0], outs[0]),
        name="C",
    )
    s = te.create_schedule(B.op)
    f = tvm.build(s, [A, B], "llvm")
    a = tvm.nd.array(np.random.uniform(size=(n,)).astype(A.dtype))
    b = tvm.nd.array(np.random.uniform(size=(n,)).astype(B.dtype))
    f(a, b)
    tvm.testing.assert_allclose(b.numpy(), a.numpy() + 1)


def test_inspection_of_operations() -> None:
    A = te.placeholder((8, 9), name="A")
    k = te.reduce_axis((0, 9), "k")
    with te.tag_scope(tag="rowsum"):
        B: Any = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="B")
    assert B.op.tag == "rowsum" and B.op.input_tensors[0] == A
    assert B.op.axis[0].dom.extent.value == 8 and B.op.reduce_axis[0].var.name == "k"
    s = te.create_schedule([B.op])
    s = s.normalize()
    assert [stage.op.name for stage in s.stages] == ["A", "B"]
