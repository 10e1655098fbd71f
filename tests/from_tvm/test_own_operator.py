"""A project's own convolution as a template of topi: registered, tuned, applied. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import os
import tempfile
import numpy as np
import tensorlang as tvm
import tensorlang.testing
from tensorlang import te, topi, autotvm
from tensorlang.autotvm.task.space import SplitEntity, OtherOptionEntity
from tensorlang.topi.utils import get_const_tuple, traverse_inline
from tensorlang.topi.nn.utils import get_pad_tuple


def _fallback_schedule(cfg, wkl):
    cfg["tile_oc"] = SplitEntity([-1, 8])
    cfg["tile_ow"] = SplitEntity([-1, 4])
    cfg["unroll_kw"] = OtherOptionEntity(False)


@autotvm.register_topi_compute("conv2d_own.x86")
def conv2d_own(cfg, data, kernel, strides, padding, dilation, out_dtype):
    n, ci, h, w = get_const_tuple(data.shape)
    co, _, kh, kw = get_const_tuple(kernel.shape)
    sh, sw = (strides, strides) if isinstance(strides, int) else strides
    pt, pl, pb, pr = get_pad_tuple(padding, (kh, kw))
    oh, ow = (h - kh + pt + pb) // sh + 1, (w - kw + pl + pr) // sw + 1
    cfg.define_split("tile_oc", co, num_outputs=2)
    cfg.define_split("tile_ow", ow, num_outputs=2, filter=lambda y: y.size[-1] <= 16)
    cfg.define_knob("unroll_kw", [True, False])
    if cfg.is_fallback:
        _fallback_schedule(cfg, None)
    padded = topi.nn.pad(data, (0, 0, pt, pl), (0, 0, pb, pr), name="data_pad")
    rc = te.reduce_axis((0, ci), name="rc")
    ry = te.reduce_axis((0, kh), name="ry")
    rx = te.reduce_axis((0, kw), name="rx")
    out = te.compute(
        (n, co, oh, ow),
        lambda b, c, y, x: te.sum(
            padded[b, rc, y * sh + ry, x * sw + rx].astype(out_dtype) * kernel[c, rc, ry, rx].astype(out_dtype),
            axis=[rc, ry, rx],
        ),
        name="conv2d_own",
        tag="conv2d_own",
    )
    cfg.add_flop(2 * n * co * oh * ow * ci * kh * kw)
    return out


@autotvm.register_topi_schedule("conv2d_own.x86")
def schedule_conv2d_own(cfg, outs):
    outs = [outs] if isinstance(outs, te.tensor.Tensor) else outs
    s = te.create_schedule([x.op for x in outs])

    def _callback(op):
        if "conv2d_own" in op.tag:
            conv = op.output(0)
            data_pad = op.input_tensors[0]
            if isinstance(data_pad.op, te.tensor.ComputeOp) and "pad" in data_pad.op.name:
                s[data_pad].compute_inline()
            output = outs[0]
            n, c, y, x = s[output].op.axis
            co, ci = cfg["tile_oc"].apply(s, output, c)
            xo, xi = cfg["tile_ow"].apply(s, output, x)
            s[output].reorder(n, co, y, xo, ci, xi)
            fused = s[output].fuse(n, co)
            s[output].parallel(fused)
            s[output].vectorize(xi)
            if output.op != conv.op:
                s[conv].compute_at(s[output], xo)
            rc, ry, rx = s[conv].op.reduce_axis
            if cfg["unroll_kw"].val:
                s[conv].unroll(rx)

    traverse_inline(s, outs[0].op, _callback)
    return s


data = te.placeholder((1, 4, 8, 8), name="data")
kernel = te.placeholder((8, 4, 3, 3), name="kernel")
args = (data, kernel, (1, 1), (1, 1), (1, 1), "float32")


class CountingRunner(autotvm.LocalRunner):
    """A simulator in place of a machine: later configurations are faster."""

    def run(self, measure_inputs, build_results):
        return [
            autotvm.MeasureResult((1e-3 / (1 + inp.config.index),), build.error_no, 0.1, 1.0)
            for inp, build in zip(measure_inputs, build_results)
        ]


def run(context):
    with context:
        with tvm.target.Target("llvm"):
            out = conv2d_own(*args)
            relu = topi.nn.relu(out)
            s = schedule_conv2d_own([relu])
            f = tvm.build(s, [data, kernel, relu], name="conv_relu")
    x = np.random.uniform(-1, 1, get_const_tuple(data.shape)).astype("float32")
    w = np.random.uniform(-1, 1, get_const_tuple(kernel.shape)).astype("float32")
    y = tvm.nd.array(np.zeros(get_const_tuple(relu.shape), "float32"))
    f(tvm.nd.array(x), tvm.nd.array(w), y)
    ref = np.maximum(topi.testing.conv2d_nchw_python(x, w, 1, 1), 0)
    tvm.testing.assert_allclose(y.numpy(), ref, rtol=1e-4, atol=1e-4)


def test_tuned_and_applied():
    task = autotvm.task.create("conv2d_own.x86", args=args, target="llvm")
    log_file = os.path.join(tempfile.mkdtemp(), "conv.log")
    tuner = autotvm.tuner.DropletTuner(task)
    tuner.tune(
        n_trial=4,
        measure_option=autotvm.measure_option(
            builder=autotvm.LocalBuilder(), runner=CountingRunner(number=3, repeat=1)
        ),
        callbacks=[autotvm.callback.progress_bar(4), autotvm.callback.log_to_file(log_file)],
    )
    run(autotvm.FallbackContext())
    run(autotvm.apply_history_best(log_file))
    assert autotvm.apply_history_best(log_file).query(task.target, task.workload) is not None
