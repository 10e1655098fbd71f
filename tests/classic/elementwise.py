"""Programs without sums on GPUs, as users of classic te scheduled them. Against TVM, the import lines alone differ."""

from __future__ import annotations

import tensorlang as tvm
from tensorlang import te
from tests.programs import Case


def vector_add() -> Case:
    """C = A + B, an element a thread."""
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.placeholder((n,), name="B")
    C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    bx, tx = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    return Case(s, (A, B, C))


def grid_stride_exp() -> Case:
    """Blocks of a fixed number that go on where the grid ends, as TVM tested its device code."""
    n = te.size_var("n")
    num_thread, grid = 8, 4
    A = te.placeholder((n,), name="A")
    B = te.compute(A.shape, lambda *i: te.exp(A(*i)), name="B")
    s = te.create_schedule(B.op)
    x, tx = s[B].split(B.op.axis[0], factor=num_thread)
    _, bx = s[B].split(x, factor=grid)
    s[B].bind(tx, te.thread_axis("threadIdx.x"))
    s[B].bind(bx, te.thread_axis("blockIdx.x"))
    return Case(s, (A, B))


def two_values_in_cache() -> Case:
    """A stage of two outputs, both cached in registers."""
    n = tvm.runtime.convert(64)
    A0 = te.placeholder((n,), name="A0", dtype="float32")
    A1 = te.placeholder((n,), name="A1", dtype="float32")
    B0, B1 = te.compute((n,), lambda *i: (A0(*i) + A1(*i), A0(*i) * A1(*i)), name="B")
    C = te.compute((n,), lambda *i: B0(*i) + B1(*i), name="C")
    s = te.create_schedule(C.op)
    num_thread = 8
    bx, tx = s[C].split(C.op.axis[0], factor=num_thread)
    B0_cache, _B1_cache = s.cache_write([B0, B1], "local")
    bx, x = s[C].split(bx, factor=4)
    s[B0].compute_at(s[C], x)
    s[B0_cache].compute_at(s[C], x)
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    return Case(s, (A0, A1, C))


def transpose() -> Case:
    """B = A transposed through shared memory, whose rows are one element longer: no two threads share a bank."""
    n, m, tile = 40, 24, 16
    A = te.placeholder((n, m), name="A")
    B = te.compute((m, n), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    AA = s.cache_read(A, "shared", [B])
    y, x = B.op.axis
    by, yi = s[B].split(y, factor=tile)
    bx, xi = s[B].split(x, factor=tile)
    s[B].reorder(by, bx, yi, xi)
    s[B].bind(by, te.thread_axis("blockIdx.y"))
    s[B].bind(bx, te.thread_axis("blockIdx.x"))
    s[B].bind(yi, te.thread_axis("threadIdx.y"))
    s[B].bind(xi, te.thread_axis("threadIdx.x"))
    s[AA].compute_at(s[B], bx)
    ay, ax = s[AA].op.axis
    s[AA].bind(ay, te.thread_axis("threadIdx.y"))
    s[AA].bind(ax, te.thread_axis("threadIdx.x"))
    s[AA].storage_align(ay, tile, 1)
    return Case(s, (A, B))
