"""Reductions on GPUs, as users of classic te scheduled them. Against TVM, the import lines alone differ."""

from __future__ import annotations

from typing import Any

import tensorlang as tvm
from tensorlang import te
from tests.programs import Case


def row_sum() -> Case:
    """A row a thread."""
    n = te.var("n")
    m = te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, _ki = s[B].split(B.op.reduce_axis[0], factor=16)
    xo, xi = s[B].split(B.op.axis[0], factor=32)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.x"))
    return Case(s, (A, B))


def row_sum_by_threads() -> Case:
    """Sixteen threads a row: partial sums by rfactor, combined across threads."""
    n = te.var("n")
    m = te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    xo, xi = s[B].split(s[B].op.axis[0], factor=32)
    s[B].bind(xo, te.thread_axis("blockIdx.x"))
    s[B].bind(xi, te.thread_axis("threadIdx.y"))
    tx = te.thread_axis("threadIdx.x")
    s[B].bind(s[B].op.reduce_axis[0], tx)
    s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
    s[B].set_store_predicate(tx.var.equal(0))
    return Case(s, (A, B))


def window_sums() -> Case:
    """A convolution of one channel, as the tutorial of reductions has it."""
    n = te.var("n")
    Input = te.placeholder((n, n), name="Input")
    Filter = te.placeholder((3, 3), name="Filter")
    di = te.reduce_axis((0, 3), name="di")
    dj = te.reduce_axis((0, 3), name="dj")
    Output = te.compute(
        (n - 2, n - 2),
        lambda i, j: te.sum(Input[i + di, j + dj] * Filter[di, dj], axis=[di, dj]),
        name="Output",
    )
    s = te.create_schedule(Output.op)
    bx, tx = s[Output].split(Output.op.axis[1], factor=8)
    s[Output].reorder(bx, Output.op.axis[0], tx)
    s[Output].bind(bx, te.thread_axis("blockIdx.x"))
    s[Output].bind(tx, te.thread_axis("threadIdx.x"))
    return Case(s, (Input, Filter, Output))


def product_of_rows() -> Case:
    """A reduction of one's own."""
    n = te.var("n")
    m = te.var("m")
    product = te.comm_reducer(lambda x, y: x * y, lambda t: tvm.tir.const(1, dtype=t), name="product")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: product(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    _ko, ki = s[B].split(s[B].op.reduce_axis[0], factor=8)
    s[B].bind(s[B].op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].bind(ki, te.thread_axis("threadIdx.x"))
    return Case(s, (A, B))


def sum_then_elementwise(n: int = 75, m: int = 10) -> Case:
    """A sum across threads inside the loops of what reads it."""
    A = te.placeholder((m, n), name="A")
    k = te.reduce_axis((0, n))
    nthread = 16
    B = te.compute((m,), lambda i: te.sum(A[i, k], axis=k), name="B")
    BB = te.compute((m,), lambda i: B[i] + 1, name="BB")
    C = te.compute((m,), lambda i: BB[i] + 1, name="C")
    s = te.create_schedule(C.op)
    s[BB].set_scope("local")
    _ko, kf = s[B].split(k, factor=nthread)
    BF = s.rfactor(B, kf)
    bx, ty = s[C].split(s[C].op.axis[0], factor=nthread)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(ty, te.thread_axis("threadIdx.y"))
    tx = s[B].op.reduce_axis[0]
    thread_x = te.thread_axis("threadIdx.x")
    s[B].bind(tx, thread_x)
    s[B].compute_at(s[C], ty)
    s[BF].compute_at(s[B], tx)
    s[BB].compute_at(s[C], ty)
    # only one of the threads along x needs to write back
    s[B].set_store_predicate(thread_x.var.equal(0))
    s[C].set_store_predicate(thread_x.var.equal(0))
    return Case(s, (A, C))


def argmax() -> tuple[Any, ...]:
    """The tensors of an argmax of rows: a reduction of pairs."""

    def fcombine(lhs: Any, rhs: Any) -> Any:
        return (
            tvm.tir.Select((lhs[1] >= rhs[1]), lhs[0], rhs[0]),
            tvm.tir.Select((lhs[1] >= rhs[1]), lhs[1], rhs[1]),
        )

    def fidentity(t0: str, t1: str) -> Any:
        return tvm.tir.const(-1, t0), tvm.te.min_value(t1)

    reducer = te.comm_reducer(fcombine, fidentity, name="argmax")
    m, n = 6, 45
    idx = te.placeholder((m, n), name="idx", dtype="int32")
    val = te.placeholder((m, n), name="val", dtype="float32")
    k = te.reduce_axis((0, n), "k")
    T0, T1 = te.compute((m,), lambda i: reducer((idx[i, k], val[i, k]), axis=k), name="T")
    return idx, val, T0, T1


def argmax_of_rows() -> Case:
    """A row a thread."""
    idx, val, T0, T1 = argmax()
    s = te.create_schedule(T0.op)
    bx, tx = s[T0].split(s[T0].op.axis[0], factor=4)
    s[T0].bind(bx, te.thread_axis("blockIdx.x"))
    s[T0].bind(tx, te.thread_axis("threadIdx.x"))
    return Case(s, (idx, val, T0, T1))


def argmax_by_threads() -> Case:
    """Pairs in parts by rfactor, combined across threads."""
    idx, val, B0, B1 = argmax()
    nthread = 16
    s = te.create_schedule(B0.op)
    _ko, kf = s[B0].split(s[B0].op.reduce_axis[0], factor=nthread)
    BF0, _BF1 = s.rfactor(B0, kf)
    bx, ty = s[B0].split(s[B0].op.axis[0], factor=4)
    s[B0].bind(bx, te.thread_axis("blockIdx.x"))
    s[B0].bind(ty, te.thread_axis("threadIdx.y"))
    tx = s[B0].op.reduce_axis[0]
    thread_x = te.thread_axis("threadIdx.x")
    s[B0].bind(tx, thread_x)
    s[BF0.op].compute_at(s[B0], tx)
    s[B0].set_store_predicate(thread_x.var.equal(0))
    return Case(s, (idx, val, B0, B1))


def softmax() -> tuple[Any, ...]:
    """The tensors of a softmax of rows, in four stages."""
    m, n = 6, 50
    x = te.placeholder((m, n), name="x")
    k1 = te.reduce_axis((0, n), name="k")
    k2 = te.reduce_axis((0, n), name="k")
    max_elem = te.compute((m,), lambda i: te.max(x[i, k1], axis=k1), name="T_softmax_maxelem")
    exp = te.compute((m, n), lambda i, j: te.exp(x[i, j] - max_elem[i]), name="T_softmax_exp")
    expsum = te.compute((m,), lambda i: te.sum(exp[i, k2], axis=k2), name="T_softmax_expsum")
    out = te.compute((m, n), lambda i, j: exp[i, j] / expsum[i], name="T_softmax_norm")
    return x, max_elem, exp, expsum, out


def softmax_of_blocks() -> Case:
    """A kernel a stage, the sum across threads: TVM's schedule for devices without warps."""
    x, max_elem, exp, expsum, out = softmax()
    s = te.create_schedule(out.op)
    num_thread = 16
    block_x = te.thread_axis("blockIdx.x")
    thread_x = te.thread_axis((0, num_thread), "threadIdx.x")

    s[exp].bind(exp.op.axis[0], block_x)
    s[max_elem].bind(max_elem.op.axis[0], block_x)
    k = expsum.op.reduce_axis[0]
    _ko, ki = s[expsum].split(k, factor=num_thread)
    EF = s.rfactor(expsum, ki)
    s[expsum].bind(s[expsum].op.axis[0], block_x)
    s[expsum].bind(s[expsum].op.reduce_axis[0], thread_x)
    s[EF].compute_at(s[expsum], s[expsum].op.reduce_axis[0])
    s[expsum].set_store_predicate(thread_x.var.equal(0))
    tx, xi = s[out].split(out.op.axis[1], nparts=num_thread)
    _, xi = s[out].split(xi, factor=4)
    s[out].reorder(tx, xi)
    s[out].bind(out.op.axis[0], block_x)
    s[out].bind(tx, thread_x)
    return Case(s, (x, out))


def softmax_of_warps() -> Case:
    """All stages in one kernel, a warp a row: TVM's schedule for CUDA."""
    x, max_elem, exp, expsum, out = softmax()
    s = te.create_schedule(out.op)
    num_thread = 32
    block_x = te.thread_axis("blockIdx.x")
    thread_x = te.thread_axis((0, num_thread), "threadIdx.x")

    # (4) softmax
    xo, _xi = s[out].split(out.op.axis[1], nparts=num_thread)
    s[out].bind(out.op.axis[0], block_x)
    s[out].bind(xo, thread_x)
    # (3) expsum
    k = expsum.op.reduce_axis[0]
    ko, _ = s[expsum].split(k, nparts=num_thread)
    s[expsum].bind(ko, thread_x)
    s[expsum].compute_at(s[out], xo)
    # (2) exp
    xo, _ = s[exp].split(exp.op.axis[1], nparts=num_thread)
    s[exp].bind(xo, thread_x)
    s[exp].compute_at(s[out], out.op.axis[0])
    s[exp].set_scope("shared")
    # (1) max_elem
    k = max_elem.op.reduce_axis[0]
    ko, _ = s[max_elem].split(k, nparts=num_thread)
    s[max_elem].bind(ko, thread_x)
    s[max_elem].compute_at(s[exp], xo)
    return Case(s, (x, out))
