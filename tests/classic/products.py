"""Matrix products on GPUs, as users of classic te scheduled them. Against TVM, the import lines alone differ."""

from __future__ import annotations

import tensorlang as tvm
from tensorlang import te
from tests.programs import Case


def tiled_gemm(nn: int = 32, scale: int = 4, num_thread: int = 4, double_buffer: bool = False) -> Case:
    """The product that classic te was tested with: shared tiles fetched by all threads, a tile of sums a thread."""
    n = tvm.runtime.convert(nn)
    m = l = n  # noqa: E741 - its name in the tutorial
    A = te.placeholder((l, n), name="A")
    B = te.placeholder((l, m), name="B")
    k = te.reduce_axis((0, l), name="k")
    C = te.compute((m, n), lambda ii, jj: te.sum(A[k, jj] * B[k, ii], axis=k), name="C")

    s = te.create_schedule(C.op)
    block_factor = scale * num_thread
    block_x = te.thread_axis("blockIdx.x")
    thread_x = te.thread_axis("threadIdx.x")
    block_y = te.thread_axis("blockIdx.y")
    thread_y = te.thread_axis("threadIdx.y")

    CC = s.cache_write(C, "local")
    AA = s.cache_read(A, "shared", [CC])
    BB = s.cache_read(B, "shared", [CC])
    by, yi = s[C].split(C.op.axis[0], factor=block_factor)
    bx, xi = s[C].split(C.op.axis[1], factor=block_factor)
    s[C].reorder(by, bx, yi, xi)
    s[C].bind(by, block_y)
    s[C].bind(bx, block_x)
    ty, yi = s[C].split(yi, nparts=num_thread)
    tx, xi = s[C].split(xi, nparts=num_thread)
    s[C].reorder(ty, tx, yi, xi)
    s[C].bind(ty, thread_y)
    s[C].bind(tx, thread_x)
    yo, xo = CC.op.axis
    s[CC].reorder(k, yo, xo)

    s[CC].compute_at(s[C], tx)
    s[AA].compute_at(s[CC], k)
    s[BB].compute_at(s[CC], k)
    if double_buffer:
        s[AA].double_buffer()
        s[BB].double_buffer()
    ty, xi = s[AA].split(s[AA].op.axis[0], nparts=num_thread)
    tx, xi = s[AA].split(xi, nparts=num_thread)
    s[AA].bind(ty, thread_y)
    s[AA].bind(tx, thread_x)
    ty, xi = s[BB].split(s[BB].op.axis[0], nparts=num_thread)
    tx, xi = s[BB].split(xi, nparts=num_thread)
    s[BB].bind(ty, thread_y)
    s[BB].bind(tx, thread_x)
    return Case(s.normalize(), (A, B, C))


def virtual_threads_gemm(n: int = 32) -> Case:
    """Two virtual threads along each dimension, tiles through shared and local memory, fetched as vectors of four."""
    num_thread, vthread, tile, step = 4, 2, 2, 8
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda y, x: te.sum(A[k, y] * B[k, x], axis=k), name="C")
    s = te.create_schedule(C.op)
    AA = s.cache_read(A, "shared", [C])
    BB = s.cache_read(B, "shared", [C])
    AL = s.cache_read(AA, "local", [C])
    BL = s.cache_read(BB, "local", [C])
    CL = s.cache_write(C, "local")

    block_x = te.thread_axis("blockIdx.x")
    block_y = te.thread_axis("blockIdx.y")
    thread_x = te.thread_axis((0, num_thread), "threadIdx.x")
    thread_y = te.thread_axis((0, num_thread), "threadIdx.y")
    thread_xz = te.thread_axis((0, vthread), "vthread", name="vx")
    thread_yz = te.thread_axis((0, vthread), "vthread", name="vy")

    y, x = s[C].op.axis
    by, yi = s[C].split(y, factor=vthread * num_thread * tile)
    bx, xi = s[C].split(x, factor=vthread * num_thread * tile)
    tyz, yi = s[C].split(yi, nparts=vthread)
    txz, xi = s[C].split(xi, nparts=vthread)
    ty, yi = s[C].split(yi, nparts=num_thread)
    tx, xi = s[C].split(xi, nparts=num_thread)
    s[C].reorder(by, bx, tyz, txz, ty, tx, yi, xi)
    s[C].bind(by, block_y)
    s[C].bind(bx, block_x)
    s[C].bind(tyz, thread_yz)
    s[C].bind(txz, thread_xz)
    s[C].bind(ty, thread_y)
    s[C].bind(tx, thread_x)

    s[CL].compute_at(s[C], tx)
    yi, xi = s[CL].op.axis
    (k,) = s[CL].op.reduce_axis
    ko, ki = s[CL].split(k, factor=step)
    s[CL].reorder(ko, ki, yi, xi)
    s[CL].unroll(ki)
    s[AA].compute_at(s[CL], ko)
    s[BB].compute_at(s[CL], ko)
    s[AL].compute_at(s[CL], ki)
    s[BL].compute_at(s[CL], ki)
    for load in (AA, BB):
        rows, columns = s[load].op.axis
        ty, rows = s[load].split(rows, nparts=num_thread)
        tx, columns = s[load].split(columns, nparts=num_thread)
        _, columns = s[load].split(columns, factor=4)
        s[load].reorder(ty, tx, rows, columns)
        s[load].bind(ty, thread_y)
        s[load].bind(tx, thread_x)
        s[load].vectorize(columns)
    return Case(s, (A, B, C))
