"""Recurrences on GPUs, as users of classic te scheduled them. Against TVM, the import lines alone differ."""

from __future__ import annotations

import tensorlang as tvm
from tensorlang import te
from tests.programs import Case


def cumulative_sum() -> Case:
    """Running sums down the columns, a column a thread."""
    m = te.var("m")
    n = te.var("n")
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n))
    s_init = te.compute((1, n), lambda _, i: X[0, i])
    s_update = te.compute((m, n), lambda t, i: s_state[t - 1, i] + X[t, i])
    s_scan = tvm.te.scan(s_init, s_update, s_state, inputs=[X])
    s = te.create_schedule(s_scan.op)
    num_thread = 16
    block_x = te.thread_axis("blockIdx.x")
    thread_x = te.thread_axis("threadIdx.x")
    xo, xi = s[s_init].split(s_init.op.axis[1], factor=num_thread)
    s[s_init].bind(xo, block_x)
    s[s_init].bind(xi, thread_x)
    xo, xi = s[s_update].split(s_update.op.axis[1], factor=num_thread)
    s[s_update].bind(xo, block_x)
    s[s_update].bind(xi, thread_x)
    return Case(s, (X, s_scan))


def cumulative_sum_by_shared_threads() -> Case:
    """Running sums whose stages share their threads."""
    m = te.var("m")
    n = te.var("n")
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n))
    s_init = te.compute((1, n), lambda _, i: X[0, i])
    s_update = te.compute((m, n), lambda t, i: s_state[t - 1, i] + X[t, i])
    scan = te.scan(s_init, s_update, s_state, inputs=[X])
    s = te.create_schedule(scan.op)
    num_thread = 16
    block_x = te.thread_axis(None, "blockIdx.x")
    thread_x = te.thread_axis((0, num_thread), "threadIdx.x")
    xo, xi = s[s_init].split(s_init.op.axis[1], factor=num_thread)
    s[s_init].bind(xo, block_x)
    s[s_init].bind(xi, thread_x)
    xo, xi = s[s_update].split(s_update.op.axis[1], factor=num_thread)
    s[s_update].bind(xo, block_x)
    s[s_update].bind(xi, thread_x)
    s[scan].env_threads([block_x, thread_x])
    return Case(s, (X, scan))


def stages_in_a_step() -> Case:
    """A step of two stages, one computed inside the tiles of the other."""
    m = te.var("m")
    n = te.var("n")
    X = te.placeholder((m, n), name="X")
    s_state = te.placeholder((m, n))
    s_init = te.compute((1, n), lambda _, i: X[0, i])
    s_update_s1 = te.compute((m, n), lambda t, i: s_state[t - 1, i] * 2, name="s1")
    s_update_s2 = te.compute((m, n), lambda t, i: s_update_s1[t, i] + X[t, i], name="s2")
    s_scan = tvm.te.scan(s_init, s_update_s2, s_state, inputs=[X])
    s = te.create_schedule(s_scan.op)
    xo, xi = s[s_init].split(s_init.op.axis[1], factor=32)
    s[s_init].bind(xo, te.thread_axis("blockIdx.x"))
    s[s_init].bind(xi, te.thread_axis("threadIdx.x"))
    xo, xi = s[s_update_s2].split(s_update_s2.op.axis[1], factor=32)
    s[s_update_s1].compute_at(s[s_update_s2], xo)
    s[s_update_s2].bind(xo, te.thread_axis("blockIdx.x"))
    s[s_update_s2].bind(xi, te.thread_axis("threadIdx.x"))
    s[s_update_s1].bind(s[s_update_s1].leaf_iter_vars[-1], te.thread_axis("threadIdx.x"))
    return Case(s, (X, s_scan))


def two_states() -> Case:
    """A recurrence of two states, one of which reads an element of the other: there must be one."""
    m = te.var("m")
    n = 8
    l = te.var("l")  # noqa: E741 - its name in the tutorial
    X = te.placeholder((m, n), name="X")
    s_state1 = te.placeholder((m, n))
    s_state2 = te.placeholder((m, l))
    s_init1 = te.compute((1, n), lambda _, i: X[0, i])
    s_init2 = te.compute((1, l), lambda _, i: 0.0)
    s_update1 = te.compute((m, n), lambda t, i: s_state1[t - 1, i] + X[t, i])
    s_update2 = te.compute((m, l), lambda t, i: s_state2[t - 1, i] + s_state1[t - 1, 0])
    s_scan1, s_scan2 = tvm.te.scan([s_init1, s_init2], [s_update1, s_update2], [s_state1, s_state2], inputs=[X])
    s = te.create_schedule(s_scan1.op)
    for stage in (s_init1, s_init2, s_update1, s_update2):
        bx, tx = s[stage].split(stage.op.axis[1], factor=16)
        s[stage].bind(bx, te.thread_axis("blockIdx.x"))
        s[stage].bind(tx, te.thread_axis("threadIdx.x"))
    return Case(s, (X, s_scan1, s_scan2))


def recurrent_layer(steps: int = 4, batch: int = 3, hidden: int = 24) -> Case:
    """h = h W at every step, a row of the batch a block: a recurrent network without its gates."""
    num_thread_x = 8
    Whh = te.placeholder((hidden, hidden), name="Whh")
    s_init = te.compute((1, batch, hidden), lambda _, i, j: 1.0, name="init")
    s_state = te.placeholder((steps, batch, hidden))
    kh = te.reduce_axis((0, hidden), name="kh")
    s_update = te.compute(
        (steps, batch, hidden),
        lambda t, i, j: te.sum(s_state[t - 1, i, kh] * Whh[kh, j], axis=kh),
        name="update",
    )
    s_scan = te.scan(s_init, s_update, s_state)
    s = te.create_schedule(s_scan.op)
    block_x = te.thread_axis("blockIdx.x")
    thread_x = te.thread_axis((0, num_thread_x), "threadIdx.x")
    s[s_scan].env_threads([block_x, thread_x])
    tx, _ = s[s_init].split(s_init.op.axis[2], nparts=num_thread_x)
    s[s_init].bind(s_init.op.axis[1], block_x)
    s[s_init].bind(tx, thread_x)
    tx, _ = s[s_update].split(s[s_update].op.axis[2], nparts=num_thread_x)
    s[s_update].bind(s[s_update].op.axis[1], block_x)
    s[s_update].bind(tx, thread_x)
    return Case(s, (Whh, s_scan))
