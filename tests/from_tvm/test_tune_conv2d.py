"""A template of a convolution with what follows it, as tune_conv2d tutorials write one. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import logging
import sys
import tempfile
import numpy as np
import tensorlang as tvm
from tensorlang import te, topi
from tensorlang import autotvm
from tensorlang.topi.testing import conv2d_nchw_python
import tensorlang.testing


def _schedule_gpu(cfg, s, output, conv):
    n, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg.define_split("tile_f", f, num_outputs=4)
    cfg.define_split("tile_y", y, num_outputs=4)
    cfg.define_split("tile_x", x, num_outputs=4)
    cfg.define_split("tile_rc", rc, num_outputs=3)
    cfg.define_split("tile_ry", ry, num_outputs=3)
    cfg.define_split("tile_rx", rx, num_outputs=3)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    target = tvm.target.Target.current()
    if target.kind.name in ["nvptx", "rocm"]:
        cfg.define_knob("unroll_explicit", [1])
    else:
        cfg.define_knob("unroll_explicit", [0, 1])
    if cfg.is_fallback:
        cfg.fallback_split("tile_f", [-1, 1, 8, 1])
        cfg.fallback_split("tile_y", [-1, 1, 1, 1])
        cfg.fallback_split("tile_x", [-1, 1, 8, 1])

    pad_data, kernel = s[conv].op.input_tensors
    s[pad_data].compute_inline()
    if isinstance(kernel.op, tvm.te.ComputeOp) and "dilate" in kernel.op.tag:
        s[kernel].compute_inline()

    if conv.op in s.outputs:
        output = conv
        OL = s.cache_write(conv, "local")
    else:
        output = s.outputs[0].output(0)
        s[conv].set_scope("local")
        OL = conv

    AA = s.cache_read(pad_data, "shared", [OL])
    WW = s.cache_read(kernel, "shared", [OL])

    n, f, y, x = s[output].op.axis
    kernel_scope, n = s[output].split(n, nparts=1)
    bf, vf, tf, fi = cfg["tile_f"].apply(s, output, f)
    by, vy, ty, yi = cfg["tile_y"].apply(s, output, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, output, x)
    bf = s[output].fuse(n, bf)
    s[output].bind(bf, te.thread_axis("blockIdx.z"))
    s[output].bind(by, te.thread_axis("blockIdx.y"))
    s[output].bind(bx, te.thread_axis("blockIdx.x"))
    s[output].bind(vf, te.thread_axis("vthread"))
    s[output].bind(vy, te.thread_axis("vthread"))
    s[output].bind(vx, te.thread_axis("vthread"))
    s[output].bind(tf, te.thread_axis("threadIdx.z"))
    s[output].bind(ty, te.thread_axis("threadIdx.y"))
    s[output].bind(tx, te.thread_axis("threadIdx.x"))
    s[output].reorder(bf, by, bx, vf, vy, vx, tf, ty, tx, fi, yi, xi)
    s[OL].compute_at(s[output], tx)

    n, f, y, x = s[OL].op.axis
    rc, ry, rx = s[OL].op.reduce_axis
    rco, rcm, rci = cfg["tile_rc"].apply(s, OL, rc)
    ryo, rym, ryi = cfg["tile_ry"].apply(s, OL, ry)
    rxo, rxm, rxi = cfg["tile_rx"].apply(s, OL, rx)
    s[OL].reorder(rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x)
    s[AA].compute_at(s[OL], rxo)
    s[WW].compute_at(s[OL], rxo)

    for load in [AA, WW]:
        n, f, y, x = s[load].op.axis
        fused = s[load].fuse(n, f, y, x)
        tz, fused = s[load].split(fused, nparts=cfg["tile_f"].size[2])
        ty, fused = s[load].split(fused, nparts=cfg["tile_y"].size[2])
        tx, fused = s[load].split(fused, nparts=cfg["tile_x"].size[2])
        s[load].bind(tz, te.thread_axis("threadIdx.z"))
        s[load].bind(ty, te.thread_axis("threadIdx.y"))
        s[load].bind(tx, te.thread_axis("threadIdx.x"))

    s[output].pragma(kernel_scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[output].pragma(kernel_scope, "unroll_explicit", cfg["unroll_explicit"].val)
    N, CO, OH, OW = topi.utils.get_const_tuple(output.shape)
    _, KH, KW, CI = (None,) * 4
    CO, CI, KH, KW = topi.utils.get_const_tuple(kernel.shape)
    cfg.add_flop(2 * N * OH * OW * CO * CI * KH * KW)


def _schedule_cpu(cfg, s, output, conv):
    n, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg.define_split("tile_oc", f, num_outputs=2, filter=lambda e: e.size[-1] <= 16)
    cfg.define_split("tile_ow", x, num_outputs=2, policy="verbose")
    cfg.define_split("tile_ic", rc, num_outputs=2)
    cfg.define_annotate("unroll_kw", [rx], policy="try_unroll")
    cfg.define_reorder("order", [rc, ry, rx], policy="candidate", candidate=[[rc, ry, rx], [ry, rx, rc]])
    pad_data, kernel = s[conv].op.input_tensors
    s[pad_data].compute_inline()
    OL = s.cache_write(conv, "global") if conv.op in s.outputs else conv
    n, f, y, x = s[output].op.axis
    fo, fi = cfg["tile_oc"].apply(s, output, f)
    xo, xi = cfg["tile_ow"].apply(s, output, x)
    s[output].reorder(n, fo, y, xo, xi, fi)
    fused = s[output].fuse(n, fo, y)
    s[output].parallel(fused)
    s[output].vectorize(fi)
    s[OL].compute_at(s[output], xo)
    n, f, y, x = s[OL].op.axis
    rc, ry, rx = s[OL].op.reduce_axis
    ro, ri = cfg["tile_ic"].apply(s, OL, rc)
    s[OL].reorder(ro, ry, rx, ri, x, f)
    s[OL].vectorize(f)
    cfg["unroll_kw"].apply(s, OL, [rx])


@autotvm.template("example/conv2d_bias_relu")
def conv2d_bias_relu(N, H, W, CO, CI, KH, KW, stride, padding, dtype="float32"):
    data = te.placeholder((N, CI, H, W), name="data", dtype=dtype)
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel", dtype=dtype)
    bias = te.placeholder((1, CO, 1, 1), name="bias", dtype=dtype)
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype=dtype)
    out = topi.nn.relu(topi.add(conv, bias))
    s = te.create_schedule([out.op])
    cfg = autotvm.get_config()
    s[out.op.input_tensors[0]].compute_inline()
    if "gpu" in tvm.target.Target.current(allow_none=False).keys:
        _schedule_gpu(cfg, s, out, conv)
    else:
        _schedule_cpu(cfg, s, out, conv)
    return s, [data, kernel, bias, out]


def verify(target, n_trial=4):
    logging.getLogger("autotvm").setLevel(logging.DEBUG)
    N, H, W, CO, CI, KH, KW, strides, padding = 1, 7, 7, 16, 8, 3, 3, (1, 1), (1, 1)
    task = autotvm.task.create(
        "example/conv2d_bias_relu", args=(N, H, W, CO, CI, KH, KW, strides, padding), target=target
    )
    print(task.config_space)
    assert len(task.config_space) > 10
    measure_option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(),
        runner=autotvm.LocalRunner(repeat=3, min_repeat_ms=100, timeout=4),
    )
    log = tempfile.mktemp(suffix=".log")
    tuner = autotvm.tuner.XGBTuner(task, feature_type="knob")
    tuner.tune(
        n_trial=n_trial,
        early_stopping=600,
        measure_option=measure_option,
        callbacks=[autotvm.callback.progress_bar(n_trial, prefix="[Task  1/ 1] "), autotvm.callback.log_to_file(log)],
    )
    dispatch_context = autotvm.apply_history_best(log)
    best_config = dispatch_context.query(task.target, task.workload)
    print("\nBest config:")
    print(best_config)

    with autotvm.apply_history_best(log):
        with tvm.target.Target(target):
            s, arg_bufs = conv2d_bias_relu(N, H, W, CO, CI, KH, KW, strides, padding)
            func = tvm.build(s, arg_bufs)

    a_np = np.random.uniform(size=(N, CI, H, W)).astype(np.float32)
    w_np = np.random.uniform(size=(CO, CI, KH, KW)).astype(np.float32)
    b_np = np.random.uniform(size=(1, CO, 1, 1)).astype(np.float32)
    c_np = np.maximum(conv2d_nchw_python(a_np, w_np, strides, padding) + b_np, 0)
    dev = tvm.device(target.split()[0], 0)
    a_tvm = tvm.nd.array(a_np, device=dev)
    w_tvm = tvm.nd.array(w_np, device=dev)
    b_tvm = tvm.nd.array(b_np, device=dev)
    c_tvm = tvm.nd.empty(c_np.shape, device=dev)
    func(a_tvm, w_tvm, b_tvm, c_tvm)
    tvm.testing.assert_allclose(c_np, c_tvm.numpy(), rtol=1e-2)
    evaluator = func.time_evaluator(func.entry_name, dev, number=2)
    print("Time cost of this operator: %f" % evaluator(a_tvm, w_tvm, b_tvm, c_tvm).mean)

    # tuning by hand over the space
    for i in (0, len(task.config_space) // 2):
        config = task.config_space.get(i)
        with tvm.target.Target(target):
            s, args = task.instantiate(config)
            print(tvm.lower(s, args, simple_mode=True))
    inputs, results = zip(*autotvm.record.load_from_file(log))
    costs = [np.mean(r.costs) for r in results if r.error_no == 0]
    assert costs and min(costs) > 0
    autotvm.record.pick_best(log, log + ".best")
    assert len(list(autotvm.record.load_from_file(log + ".best"))) == 1


def test_tuned_on_a_cpu():
    verify("llvm", 2)


def test_space_and_schedule_of_a_gpu():
    target = tvm.target.Target("cuda -arch=sm_80")
    task = autotvm.task.create("example/conv2d_bias_relu", args=(1, 7, 7, 16, 8, 3, 3, (1, 1), (1, 1)), target=target)
    with target:
        s, args = task.instantiate(task.config_space.get(len(task.config_space) // 2))
        assert "threadIdx" in str(tvm.lower(s, args, simple_mode=True)) + str(s)
