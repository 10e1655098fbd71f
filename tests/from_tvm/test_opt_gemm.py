"""The chapters of opt_gemm, one after the other. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import numpy
import tensorlang as tvm
import tensorlang.testing
from tensorlang import te


def test_opt_gemm():
    M = 64
    K = 64
    N = 64
    dtype = "float32"
    target = "llvm"
    dev = tvm.device(target, 0)
    a = tvm.nd.array(numpy.random.rand(M, K).astype(dtype), dev)
    b = tvm.nd.array(numpy.random.rand(K, N).astype(dtype), dev)
    answer = numpy.dot(a.numpy(), b.numpy())

    k = te.reduce_axis((0, K), "k")
    A = te.placeholder((M, K), name="A")
    B = te.placeholder((K, N), name="B")
    C = te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")

    s = te.create_schedule(C.op)
    func = tvm.build(s, [A, B, C], target=target, name="mmult")
    assert func
    c = tvm.nd.array(numpy.zeros((M, N), dtype=dtype), dev)
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), answer, rtol=1e-5)
    evaluator = func.time_evaluator(func.entry_name, dev, number=1)
    print("Baseline: %f" % evaluator(a, b, c).mean)
    print(tvm.lower(s, [A, B, C], simple_mode=True))

    bn = 32
    kfactor = 4
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=kfactor)
    s[C].reorder(mo, no, ko, ki, mi, ni)

    def check(s, args, label, opts=None):
        with tvm.transform.PassContext(opt_level=3, config=opts or {}):
            func = tvm.build(s, args, target=target, name="mmult")
        assert func
        c = tvm.nd.array(numpy.zeros((M, N), dtype=dtype), dev)
        func(a, b, c)
        tvm.testing.assert_allclose(c.numpy(), answer, rtol=1e-5)
        evaluator = func.time_evaluator(func.entry_name, dev, number=2)
        print("%s: %f" % (label, evaluator(a, b, c).mean))
        print(tvm.lower(s, args, simple_mode=True))
        return func

    check(s, [A, B, C], "Opt1")
    s[C].vectorize(ni)
    check(s, [A, B, C], "Opt2")

    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=kfactor)
    s[C].reorder(mo, no, ko, mi, ki, ni)
    s[C].vectorize(ni)
    check(s, [A, B, C], "Opt3")

    packedB = te.compute((N / bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB")
    C = te.compute(
        (M, N),
        lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k),
        name="C",
    )
    s = te.create_schedule(C.op)
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    (kaxis,) = s[C].op.reduce_axis
    ko, ki = s[C].split(kaxis, factor=kfactor)
    s[C].reorder(mo, no, ko, mi, ki, ni)
    s[C].vectorize(ni)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    check(s, [A, B, C], "Opt4", {"tir.disable_vectorize": False})

    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
    s[CC].compute_at(s[C], no)
    mc, nc = s[CC].op.axis
    (kaxis,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(kaxis, factor=kfactor)
    s[CC].reorder(ko, mc, ki, nc)
    s[CC].vectorize(nc)
    s[CC].unroll(ki)
    bigN, _, littleN = s[packedB].op.axis
    s[packedB].vectorize(littleN)
    s[packedB].parallel(bigN)
    check(s, [A, B, C], "Opt5")
    s[C].parallel(mo)
    func = check(s, [A, B, C], "Opt6")
    asm = func.get_source("asm")
    assert "fma" in asm or "mul" in asm
    ll = func.get_source()
    assert "define" in ll
