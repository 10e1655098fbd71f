"""First steps with tensor expressions and calls of libraries, as tutorials have them. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import numpy as np
import tensorlang as tvm
import tensorlang.testing
from tensorlang import te
from tensorlang.contrib import cc, utils, cblas


def test_vectors_are_added_saved_and_loaded():
    tgt = tvm.target.Target(target="llvm", host="llvm")
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    outer, inner = s[C].split(C.op.axis[0], factor=8)
    s[C].parallel(outer)
    s[C].vectorize(inner)
    fadd = tvm.build(s, [A, B, C], tgt, name="myadd")
    dev = tvm.device(tgt.kind.name, 0)
    a = tvm.nd.array(np.random.uniform(size=100).astype(A.dtype), dev)
    b = tvm.nd.array(np.random.uniform(size=100).astype(B.dtype), dev)
    c = tvm.nd.array(np.zeros(100, dtype=C.dtype), dev)
    evaluator = fadd.time_evaluator(fadd.entry_name, dev, number=10)
    assert evaluator(a, b, c).mean > 0
    temp = utils.tempdir()
    fadd.save(temp.relpath("myadd.o"))
    cc.create_shared(temp.relpath("myadd.so"), [temp.relpath("myadd.o")])
    fadd1 = tvm.runtime.load_module(temp.relpath("myadd.so"))
    fadd1(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
    assert "vectorized" in tvm.lower(s, [A, B, C], simple_mode=True).script()


def test_libraries_are_called():
    n, l, m = 64, 32, 48
    bias = te.var("bias", dtype="float32")
    A = te.placeholder((n, l), name="A")
    B = te.placeholder((l, m), name="B")
    C = te.extern(
        (n, m),
        [A, B],
        lambda ins, outs: tvm.tir.call_packed("tvm.contrib.cblas.matmul", ins[0], ins[1], outs[0], False, False),
        name="C",
    )
    D = te.compute(C.shape, lambda i, j: C[i, j] + bias, name="D")
    s = te.create_schedule(D.op)
    dev = tvm.cpu(0)
    f = tvm.build(s, [A, B, D, bias], "llvm")
    a = tvm.nd.array(np.random.uniform(size=(n, l)).astype(A.dtype), dev)
    b = tvm.nd.array(np.random.uniform(size=(l, m)).astype(B.dtype), dev)
    d = tvm.nd.array(np.zeros((n, m), dtype=D.dtype), dev)
    bb = 10.0
    f(a, b, d, bb)
    tvm.testing.assert_allclose(d.numpy(), np.dot(a.numpy(), b.numpy()) + 10, rtol=1e-5)
    C = cblas.matmul(A, B)
    D = te.compute(C.shape, lambda i, j: C[i, j] + bias, name="D")
    s = te.create_schedule(D.op)
    f = tvm.build(s, [A, B, D, bias], "llvm")
    f(a, b, d, bb)

    @tvm.register_func("tvm.contrib.another_addone")
    def my_tvm_addone(x, y):
        tvm.nd.array(x.numpy() + 1).copyto(y)

    A = te.placeholder((n,), name="A")
    B = te.extern(
        A.shape, [A], lambda ins, outs: tvm.tir.call_packed("tvm.contrib.another_addone", ins[0], outs[0]), name="C"
    )
    s = te.create_schedule(B.op)
    f = tvm.build(s, [A, B], "llvm")
    a = tvm.nd.array(np.random.uniform(size=(n,)).astype(A.dtype), dev)
    b = tvm.nd.array(np.random.uniform(size=(n,)).astype(B.dtype), dev)
    f(a, b)
    tvm.testing.assert_allclose(b.numpy(), a.numpy() + 1, rtol=1e-5)
