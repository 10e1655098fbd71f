"""Programs of AutoTVM's and auto_scheduler's documentation, word for word but for sizes, trials and where logs are."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tensorlang as tvm
from tensorlang import auto_scheduler, autotvm, te
from tensorlang.te.operation import Tensor
from tensorlang.testing import check_schedule


# Template from "Writing tunable templates and Using the Auto-tuner".
@autotvm.template("tutorial/matmul")
def matmul(N, L, M, dtype):  # type: ignore[no-untyped-def]
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)

    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)

    # schedule
    y, x = s[C].op.axis
    k = s[C].op.reduce_axis[0]

    ##### define space begin #####
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    ##### define space end #####

    # schedule according to config
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)

    s[C].reorder(yo, xo, k, yi, xi)

    return s, [A, B, C]


def test_autotvm(tmp_path: Path) -> None:
    log_file = str(tmp_path / "matmul.log")
    N, L, M = 16, 16, 16
    task = autotvm.task.create("tutorial/matmul", args=(N, L, M, "float32"), target="llvm")
    print(task.config_space)

    # logging config (for printing tuning log to the screen)
    logging.getLogger("autotvm").setLevel(logging.DEBUG)
    logging.getLogger("autotvm").addHandler(logging.StreamHandler(sys.stdout))

    # There are two steps for measuring a config: build and run.
    # By default, we use all CPU cores to compile program. Then measure them sequentially.
    # We measure 5 times and take average to reduce variance.
    measure_option = autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=5))

    # Begin tuning with RandomTuner, log records to file `matmul.log`
    # You can use alternatives like XGBTuner.
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(
        n_trial=3,
        measure_option=measure_option,
        callbacks=[autotvm.callback.log_to_file(log_file)],
    )

    # apply history best from log file
    with autotvm.apply_history_best(log_file):  # noqa: SIM117 - as it is documented
        with tvm.target.Target("llvm"):
            s, arg_bufs = matmul(N, L, M, "float32")
            func = tvm.build(s, arg_bufs)

    # check correctness
    a_np = np.random.uniform(size=(N, L)).astype(np.float32)
    b_np = np.random.uniform(size=(L, M)).astype(np.float32)
    c_np = a_np.dot(b_np)

    c_tvm = tvm.nd.empty(c_np.shape)
    func(tvm.nd.array(a_np), tvm.nd.array(b_np), c_tvm)

    tvm.testing.assert_allclose(c_np, c_tvm.numpy(), rtol=1e-4)

    best = min((r for r in autotvm.read_log(log_file).records if r.ok), key=lambda r: r.median)
    assert s.trace.key == best.trace_key


# From "Optimizing Operators with Auto-scheduling".
@auto_scheduler.register_workload  # Note the auto_scheduler decorator
def documented_matmul_add(N, L, M, dtype):  # type: ignore[no-untyped-def]
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)

    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},  # enable automatic layout transform for tensor B
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")

    return [A, B, C, out]


def test_auto_scheduler(tmp_path: Path) -> None:
    target = tvm.target.Target("llvm")
    N = L = M = 16
    task = tvm.auto_scheduler.SearchTask(func=documented_matmul_add, args=(N, L, M, "float32"), target=target)

    # Inspect the computational graph
    print("Computational DAG:")
    print(task.compute_dag)

    log_file = str(tmp_path / "matmul.json")
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=3,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=2,
    )

    # Run auto-tuning (search)
    task.tune(tune_option)
    # Apply the best schedule
    sch, args = task.apply_best(log_file)

    func = tvm.build(sch, args, target)
    a_np = np.random.uniform(size=(N, L)).astype(np.float32)
    b_np = np.random.uniform(size=(L, M)).astype(np.float32)
    c_np = np.random.uniform(size=(N, M)).astype(np.float32)
    out_np = a_np.dot(b_np) + c_np

    dev = tvm.cpu()
    a_tvm = tvm.nd.array(a_np, device=dev)
    b_tvm = tvm.nd.array(b_np, device=dev)
    c_tvm = tvm.nd.array(c_np, device=dev)
    out_tvm = tvm.nd.empty(out_np.shape, device=dev)
    func(a_tvm, b_tvm, c_tvm, out_tvm)

    # Check results
    np.testing.assert_allclose(out_np, out_tvm.numpy(), rtol=1e-3)

    # We can reload the best schedule from the log file
    print("Equivalent python schedule:")
    print(task.print_best(log_file))


# Template from "Tuning High Performance Convolution on NVIDIA GPUs", in parts, but that stages are placed readers
# first, and the padding is inlined when its copy is there.
@autotvm.template("tutorial/conv2d_no_batching")
def conv2d_no_batching(N, H, W, CO, CI, KH, KW, stride, padding):  # type: ignore[no-untyped-def]
    assert N == 1, "Only consider batch_size = 1 in this template"

    data = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel")
    conv = conv2d_nchw(data, kernel, stride, padding)
    s = te.create_schedule([conv.op])
    cfg = autotvm.get_config()
    define_conv2d_space(cfg, s, conv)

    pad_data = conv.op.input_tensors[0]
    data, raw_data = pad_data, data

    output = conv
    OL = s.cache_write(conv, "local")

    # create cache stage
    AA = s.cache_read(data, "shared", [OL])
    WW = s.cache_read(kernel, "shared", [OL])
    s[pad_data].compute_inline()
    AL = s.cache_read(AA, "local", [OL])
    WL = s.cache_read(WW, "local", [OL])

    kernel_scope, tx = bind_output(cfg, s, output)
    s[OL].compute_at(s[output], tx)

    # tile reduction axes
    n, f, y, x = s[OL].op.axis
    rc, ry, rx = s[OL].op.reduce_axis
    rco, rcm, rci = cfg["tile_rc"].apply(s, OL, rc)
    ryo, rym, ryi = cfg["tile_rx"].apply(s, OL, ry)
    rxo, rxm, rxi = cfg["tile_ry"].apply(s, OL, rx)
    s[OL].reorder(rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x)

    s[AL].compute_at(s[OL], rxm)
    s[WL].compute_at(s[OL], rxm)
    s[AA].compute_at(s[OL], rxo)
    s[WW].compute_at(s[OL], rxo)
    fetch_together(cfg, s, [AA, WW])

    # tune unroll
    s[output].pragma(kernel_scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[output].pragma(kernel_scope, "unroll_explicit", cfg["unroll_explicit"].val)

    return s, [raw_data, kernel, conv]


def define_conv2d_space(cfg: Any, s: Any, conv: Any) -> None:
    _, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg.define_split("tile_f", f, num_outputs=4)
    cfg.define_split("tile_y", y, num_outputs=4)
    cfg.define_split("tile_x", x, num_outputs=4)
    cfg.define_split("tile_rc", rc, num_outputs=3)
    cfg.define_split("tile_ry", ry, num_outputs=3)
    cfg.define_split("tile_rx", rx, num_outputs=3)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])


def bind_output(cfg: Any, s: Any, output: Any) -> Any:
    # tile and bind spatial axes
    n, f, y, x = s[output].op.axis
    bf, vf, tf, fi = cfg["tile_f"].apply(s, output, f)
    by, vy, ty, yi = cfg["tile_y"].apply(s, output, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, output, x)
    kernel_scope = n  # this is the scope to attach global config inside this kernel

    s[output].bind(bf, te.thread_axis("blockIdx.z"))
    s[output].bind(by, te.thread_axis("blockIdx.y"))
    s[output].bind(bx, te.thread_axis("blockIdx.x"))
    s[output].bind(vf, te.thread_axis("vthread"))
    s[output].bind(vy, te.thread_axis("vthread"))
    s[output].bind(vx, te.thread_axis("vthread"))
    s[output].bind(tf, te.thread_axis("threadIdx.z"))
    s[output].bind(ty, te.thread_axis("threadIdx.y"))
    s[output].bind(tx, te.thread_axis("threadIdx.x"))
    s[output].reorder(n, bf, by, bx, vf, vy, vx, tf, ty, tx, fi, yi, xi)
    return kernel_scope, tx


def fetch_together(cfg: Any, s: Any, loads: Any) -> None:
    # cooperative fetching
    for load in loads:
        n, f, y, x = s[load].op.axis
        fused = s[load].fuse(n, f, y, x)
        tz, fused = s[load].split(fused, nparts=cfg["tile_f"].size[2])
        ty, fused = s[load].split(fused, nparts=cfg["tile_y"].size[2])
        tx, fused = s[load].split(fused, nparts=cfg["tile_x"].size[2])
        s[load].bind(tz, te.thread_axis("threadIdx.z"))
        s[load].bind(ty, te.thread_axis("threadIdx.y"))
        s[load].bind(tx, te.thread_axis("threadIdx.x"))


def conv2d_nchw(data: Tensor, kernel: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    (n, channels, h, w), (filters, _, kh, kw) = (map(int, map(str, t.shape)) for t in (data, kernel))
    padded = te.compute(
        (n, channels, h + 2 * padding[0], w + 2 * padding[1]),
        lambda b, c, y, x: te.if_then_else(
            te.all(y >= padding[0], y < h + padding[0], x >= padding[1], x < w + padding[1]),
            data[b, c, y - padding[0], x - padding[1]],
            0.0,
        ),
        name="pad",
    )
    rc, ry, rx = (te.reduce_axis((0, e), name=name) for e, name in ((channels, "rc"), (kh, "ry"), (kw, "rx")))
    shape = (n, filters, (h + 2 * padding[0] - kh) // stride[0] + 1, (w + 2 * padding[1] - kw) // stride[1] + 1)
    made: Tensor = te.compute(
        shape,
        lambda b, f, y, x: te.sum(
            padded[b, rc, y * stride[0] + ry, x * stride[1] + rx] * kernel[f, rc, ry, rx], axis=[rc, ry, rx]
        ),
        name="conv",
    )
    return made


def test_a_template_for_gpus_runs_on_the_interpreter() -> None:
    args = (1, 4, 4, 4, 2, 3, 3, (1, 1), (1, 1))
    task = autotvm.task.create("tutorial/conv2d_no_batching", args=args, target="interpreter")
    assert len(task.config_space) == 10**3 * 3**3 * 3 * 2
    for index in (17, 81234):
        s, tensors = task.instantiate(task.config_space.get(index))
        check_schedule(s, tensors, targets=["interpreter"])
