"""Three programs as classic te tutorials write them. Against TVM, the import lines alone differ."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te


def test_vector_add(capsys: pytest.CaptureFixture[str]) -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")

    s = te.create_schedule(C.op)
    factor = 16
    outer, inner = s[C].split(C.op.axis[0], factor=factor)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    print(tvm.lower(s, [A, B, C], simple_mode=True))
    assert "parallel i_o in range" in capsys.readouterr().out

    tgt = tvm.target.Target(target="llvm", host="llvm")
    fadd = tvm.build(s, [A, B, C], tgt, name="myadd")
    dev = tvm.device(tgt.kind.name, 0)  # type: ignore[union-attr]
    size = 1000
    a = tvm.nd.array(np.random.uniform(size=size).astype(A.dtype), dev)
    b = tvm.nd.array(np.random.uniform(size=size).astype(B.dtype), dev)
    c = tvm.nd.array(np.zeros(size, dtype=C.dtype), dev)
    fadd(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())

    evaluator = fadd.time_evaluator(fadd.entry_name, dev, number=10)
    assert evaluator(a, b, c).mean > 0


def test_blocked_gemm() -> None:
    M = N = K = 64
    dtype = "float32"
    target = "llvm"
    dev = tvm.device(target, 0)
    a = tvm.nd.array(np.random.rand(M, K).astype(dtype), dev)
    b = tvm.nd.array(np.random.rand(K, N).astype(dtype), dev)
    answer = np.dot(a.numpy(), b.numpy())

    bn = 32
    kfactor = 4
    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    packedB = te.compute((N / bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)

    CC = s.cache_write(C, "global")
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    s[CC].compute_at(s[C], no)
    s[C].reorder(mo, no, mi, ni)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=kfactor)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    s[C].parallel(mo)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)

    func = tvm.build(s, [A, B, C], target=target, name="mmult")
    assert func
    c = tvm.nd.array(np.zeros((M, N), dtype=dtype), dev)
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), answer, rtol=1e-5)


def test_row_sum_with_rfactor(capsys: pytest.CaptureFixture[str]) -> None:
    n = te.var("n")
    m = te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")

    s = te.create_schedule(B.op)
    _, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    print(tvm.lower(s, [A, B], simple_mode=True))
    assert "allocate B.rf" in capsys.readouterr().out
    assert s[B].op.body[0].axes[0].name == s[B].op.reduce_axis[0].var.name

    xo, _ = s[B].split(s[B].op.axis[0], factor=32)
    s[B].parallel(xo)
    s[BF].compute_at(s[B], s[B].op.reduce_axis[0])

    fcpu = tvm.build(s, [A, B], "llvm")
    dev = tvm.cpu(0)
    nn = 128
    a = tvm.nd.array(np.random.uniform(size=(nn, nn)).astype(A.dtype), dev)
    b = tvm.nd.array(np.zeros(nn, dtype=B.dtype), dev)
    fcpu(a, b)
    tvm.testing.assert_allclose(b.numpy(), np.sum(a.numpy(), axis=1), rtol=1e-4)
