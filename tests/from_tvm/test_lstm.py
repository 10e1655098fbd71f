"""An LSTM by te.scan, as TVM's recipe has it, for a CPU. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import os
import numpy as np
import tensorlang as tvm
import tensorlang.testing
from tensorlang import te
from tensorlang import topi

TASK = "lstm"
USE_MANUAL_CODE = False
PERSIST_KERNEL = True
DETECT_GLOBAL_BARRIER = PERSIST_KERNEL
SKIP_CHECK = False


def lstm(target, on_gpu):
    num_thread_y = 8
    num_thread_x = 16 if on_gpu else 4
    num_sm = 2
    n_num_step = 5
    num_step = tvm.runtime.convert(n_num_step)
    num_hidden = 32
    batch_size = 1
    # Global transition matrix
    # Input hidden channel can be pre-caculated by a gemm
    Xi2h = te.placeholder((num_step, batch_size, 4, num_hidden), name="Xi2h")
    # Only handle hidden transition, saves space.
    Wh2h = te.placeholder((4, num_hidden, num_hidden), name="Wh2h")
    # h: output hidden state, c: cell state.
    s_state_h = te.placeholder((num_step, batch_size, num_hidden))
    s_state_c = te.placeholder((num_step, batch_size, num_hidden))
    s_init_c = te.compute((1, batch_size, num_hidden), lambda *i: 0.0, name="init_c")
    s_init_h = te.compute((1, batch_size, num_hidden), lambda *i: 0.0, name="init_h")
    # LSTM transition
    k = te.reduce_axis((0, num_hidden), name="ki2h")
    s_h2h = te.compute(
        (num_step, batch_size, 4, num_hidden),
        lambda t, i, x, j: te.sum(s_state_h[t - 1, i, k] * Wh2h[x, j, k], axis=k),
        name="s_h2h",
    )
    # Gate rules
    gates = te.compute(Xi2h.shape, lambda *i: Xi2h(*i) + s_h2h(*i), name="gates")
    gshape = (num_step, batch_size, num_hidden)
    in_gate = te.compute(gshape, lambda t, i, j: te.sigmoid(gates[t, i, 0, j]), name="in_gate")
    in_transform = te.compute(gshape, lambda t, i, j: te.tanh(gates[t, i, 1, j]), name="in_transform")
    forget_gate = te.compute(gshape, lambda t, i, j: te.sigmoid(gates[t, i, 2, j]), name="forget_gate")
    out_gate = te.compute(gshape, lambda t, i, j: te.sigmoid(gates[t, i, 3, j]), name="out_gate")
    next_c = te.compute(
        gshape,
        lambda t, i, j: forget_gate[t, i, j] * s_state_c[t - 1, i, j] + in_gate[t, i, j] * in_transform[t, i, j],
        name="next_c",
    )
    next_h = te.compute(gshape, lambda t, i, j: out_gate[t, i, j] * te.tanh(next_c[t, i, j]), name="next_h")
    update_c = te.compute(gshape, lambda *i: next_c(*i), name="update_c")
    update_h = te.compute(gshape, lambda *i: next_h(*i), name="update_h")
    # schedule
    scan_h, scan_c = tvm.te.scan(
        [s_init_h, s_init_c],
        [update_h, update_c],
        [s_state_h, s_state_c],
        inputs=[Xi2h],
        name="lstm_scan",
    )
    # schedule
    s = te.create_schedule(scan_h.op)
    # Inline gate computations
    s[gates].compute_inline()
    s[in_gate].compute_inline()
    s[in_transform].compute_inline()
    s[forget_gate].compute_inline()
    s[out_gate].compute_inline()

    ko, ki = s[s_h2h].split(s[s_h2h].op.reduce_axis[0], factor=num_thread_x)
    for update in [update_c, update_h]:
        xo, xi = s[update].split(s[update].op.axis[2], factor=16)
        s[update].vectorize(xi)
    j = s[s_h2h].op.axis[3]
    s[s_h2h].unroll(ki)
    s[s_h2h].parallel(s[s_h2h].op.axis[2])

    # verify we can lower correctly
    def check_device(target):
        print(tvm.lower(s, [Xi2h, Wh2h, scan_h, scan_c], simple_mode=True))
        flstm = tvm.build(s, [Xi2h, Wh2h, scan_h, scan_c], target)
        dev = tvm.cuda(0) if target == "cuda" else tvm.cpu(0)
        # launch the kernel.
        scan_h_np = np.zeros((n_num_step, batch_size, num_hidden)).astype("float32")
        scan_c_np = np.zeros((n_num_step, batch_size, num_hidden)).astype("float32")
        Xi2h_np = np.random.normal(size=(n_num_step, batch_size, 4, num_hidden)).astype("float32")
        Wh2h_np = np.random.normal(size=(4, num_hidden, num_hidden)).astype("float32")
        scan_h_a = tvm.nd.array(scan_h_np, dev)
        scan_c_a = tvm.nd.array(scan_c_np, dev)
        Xi2h_a = tvm.nd.array(Xi2h_np, dev)
        Wh2h_a = tvm.nd.array(Wh2h_np, dev)
        flstm(Xi2h_a, Wh2h_a, scan_h_a, scan_c_a)
        dev.sync()
        # measure time cost of second step.
        evaluator = flstm.time_evaluator(flstm.entry_name, dev, 1, repeat=3)
        eval_result = evaluator(Xi2h_a, Wh2h_a, scan_h_a, scan_c_a)
        print("Time cost=%g" % eval_result.mean)
        h, c = np.zeros((batch_size, num_hidden)), np.zeros((batch_size, num_hidden))
        sig = lambda v: 1 / (1 + np.exp(-v))
        for t in range(1, n_num_step):
            g = Xi2h_np[t] + np.einsum("ik,xjk->ixj", h, Wh2h_np)
            c = sig(g[:, 2]) * c + sig(g[:, 0]) * np.tanh(g[:, 1])
            h = sig(g[:, 3]) * np.tanh(c)
            tvm.testing.assert_allclose(scan_h_a.numpy()[t], h, rtol=1e-4, atol=1e-5)
            tvm.testing.assert_allclose(scan_c_a.numpy()[t], c, rtol=1e-4, atol=1e-5)

    with tvm.transform.PassContext(
        config={
            "tir.UnrollLoop": {
                "auto_max_step": 128,
            },
            "tir.detect_global_barrier": on_gpu and DETECT_GLOBAL_BARRIER,
        }
    ):
        check_device(target)


def test_lstm():
    lstm("llvm", False)
