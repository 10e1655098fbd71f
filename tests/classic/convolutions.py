"""Convolutions on GPUs, as users of classic te scheduled them. Against TVM, the import lines alone differ."""

from __future__ import annotations

from typing import Any

import tensorlang as tvm
from tensorlang import autotvm, te, topi
from tests.programs import Case


def hwcn_tensors() -> tuple[te.Tensor, ...]:
    """A convolution in HWCN: input, weights, padded input, output."""
    batch, in_channel, out_channel = 8, 8, 16
    in_size, kernel, pad, stride = 3, 3, 1, 1
    A = te.placeholder((in_size, in_size, in_channel, batch), name="A")
    W = te.placeholder((kernel, kernel, in_channel, out_channel), name="W")
    out_size = (in_size - kernel + 2 * pad) // stride + 1
    Apad = te.compute(
        (in_size + 2 * pad, in_size + 2 * pad, in_channel, batch),
        lambda yy, xx, cc, nn: tvm.tir.if_then_else(
            tvm.tir.all(yy >= pad, yy - pad < in_size, xx >= pad, xx - pad < in_size),
            A[yy - pad, xx - pad, cc, nn],
            tvm.tir.const(0.0, "float32"),
        ),
        name="Apad",
    )
    rc = te.reduce_axis((0, in_channel), name="rc")
    ry = te.reduce_axis((0, kernel), name="ry")
    rx = te.reduce_axis((0, kernel), name="rx")
    B = te.compute(
        (out_size, out_size, out_channel, batch),
        lambda yy, xx, ff, nn: te.sum(
            Apad[yy * stride + ry, xx * stride + rx, rc, nn] * W[ry, rx, rc, ff], axis=[ry, rx, rc]
        ),
        name="B",
    )
    return A, W, Apad, B


def hwcn_convolution() -> Case:
    """A convolution in HWCN: virtual threads, two levels of fetches, partial sums in registers, vectors of four."""
    A, W, Apad, B = hwcn_tensors()

    # Designate the memory hierarchy
    s = te.create_schedule(B.op)
    s[Apad].compute_inline()  # compute Apad inline
    AA = s.cache_read(Apad, "shared", [B])
    WW = s.cache_read(W, "shared", [B])
    AL = s.cache_read(AA, "local", [B])
    WL = s.cache_read(WW, "local", [B])
    BL = s.cache_write(B, "local")

    # tile constants
    tile, num_thread, step, vthread = 2, 4, 4, 2
    block_factor = tile * num_thread

    # Get the GPU thread indices
    block_x, block_y, block_z = (te.thread_axis(f"blockIdx.{d}") for d in "xyz")
    thread_x = te.thread_axis((0, num_thread), "threadIdx.x")
    thread_y = te.thread_axis((0, num_thread), "threadIdx.y")
    thread_xz = te.thread_axis((0, vthread), "vthread", name="vx")
    thread_yz = te.thread_axis((0, vthread), "vthread", name="vy")

    # Split the workloads
    hi, wi, fi, ni = s[B].op.axis
    bz = s[B].fuse(hi, wi)
    by, fi = s[B].split(fi, factor=block_factor)
    bx, ni = s[B].split(ni, factor=block_factor)

    # Bind the iteration variables to GPU thread indices
    s[B].bind(bz, block_z)
    s[B].bind(by, block_y)
    s[B].bind(bx, block_x)

    tyz, fi = s[B].split(fi, nparts=vthread)  # virtual thread split
    txz, ni = s[B].split(ni, nparts=vthread)  # virtual thread split
    ty, fi = s[B].split(fi, nparts=num_thread)
    tx, ni = s[B].split(ni, nparts=num_thread)
    s[B].reorder(bz, by, bx, tyz, txz, ty, tx, fi, ni)

    for axis, thread in ((tyz, thread_yz), (txz, thread_xz), (ty, thread_y), (tx, thread_x)):
        s[B].bind(axis, thread)

    # Schedule BL local write
    s[BL].compute_at(s[B], tx)
    _, _, fi, ni = s[BL].op.axis
    ry, rx, rc = s[BL].op.reduce_axis
    rco, rci = s[BL].split(rc, factor=step)
    s[BL].reorder(rco, ry, rx, rci, fi, ni)

    # Attach computation to iteration variables
    for load, loop in ((AA, rx), (WW, rx), (AL, rci), (WL, rci)):
        s[load].compute_at(s[BL], loop)

    # Schedule for the shared memory loads of A and W
    for load in (AA, WW):
        fetch(s, load, num_thread)
    return Case(s, (A, W, B))


def fetch(s: Any, load: te.Tensor, num_thread: int) -> None:
    """Let all threads of a block load a tile of channels, in vectors of four."""
    yi, xi, ci, ni = s[load].op.axis
    ty, ci = s[load].split(ci, nparts=num_thread)
    tx, ni = s[load].split(ni, nparts=num_thread)
    _, ni = s[load].split(ni, factor=4)
    s[load].reorder(ty, tx, yi, xi, ci, ni)
    s[load].bind(ty, te.thread_axis((0, num_thread), "threadIdx.y"))
    s[load].bind(tx, te.thread_axis((0, num_thread), "threadIdx.x"))
    s[load].vectorize(ni)  # vectorize memory load


def depthwise(channels: int = 4, size: int = 10, relu: bool = False) -> Case:
    """A depthwise convolution in NCHW: a channel and an image a block, its window in shared memory."""
    num_thread_x = num_thread_y = 4
    num_vthread_x = num_vthread_y = 1 if relu else 2
    Input = te.placeholder((1, channels, size, size), name="Input")
    Filter = te.placeholder((channels, 1, 3, 3), name="Filter")
    PaddedInput = topi.nn.pad(Input, (0, 0, 1, 1), (0, 0, 1, 1), name="PaddedInput")
    di = te.reduce_axis((0, 3), name="di")
    dj = te.reduce_axis((0, 3), name="dj")
    DepthwiseConv2d = te.compute(
        (1, channels, size, size),
        lambda b, c, i, j: te.sum(PaddedInput[b, c, i + di, j + dj] * Filter[c, 0, di, dj], axis=[di, dj]),
        name="DepthwiseConv2d",
    )
    outs = topi.nn.relu(DepthwiseConv2d) if relu else DepthwiseConv2d
    s = te.create_schedule(outs.op)

    s[PaddedInput].compute_inline()
    IS = s.cache_read(PaddedInput, "shared", [DepthwiseConv2d])
    FS = s.cache_read(Filter, "shared", [DepthwiseConv2d])
    IL = s.cache_read(IS, "local", [DepthwiseConv2d])
    FL = s.cache_read(FS, "local", [DepthwiseConv2d])
    if DepthwiseConv2d.op in s.outputs:
        Output = DepthwiseConv2d
        CL = s.cache_write(DepthwiseConv2d, "local")
    else:
        Output = outs
        CL = DepthwiseConv2d
        s[DepthwiseConv2d].set_scope("local")

    block_x, block_y = te.thread_axis("blockIdx.x"), te.thread_axis("blockIdx.y")
    thread_x = te.thread_axis((0, num_thread_x), "threadIdx.x")
    thread_y = te.thread_axis((0, num_thread_y), "threadIdx.y")
    thread_vx = te.thread_axis((0, num_vthread_x), "vthread", name="vx")
    thread_vy = te.thread_axis((0, num_vthread_y), "vthread", name="vy")
    # split and bind
    s[Output].bind(s[Output].fuse(Output.op.axis[0], Output.op.axis[1]), block_y)
    bx1, x1i = s[Output].split(Output.op.axis[2], factor=8)
    tvy, vyi = s[Output].split(x1i, nparts=num_vthread_y)
    ty, yi = s[Output].split(vyi, nparts=num_thread_y)
    bx2, x2i = s[Output].split(Output.op.axis[3], factor=8)
    tvx, vxi = s[Output].split(x2i, nparts=num_vthread_x)
    tx, xi = s[Output].split(vxi, nparts=num_thread_x)
    s[Output].reorder(bx1, bx2, tvy, tvx, ty, tx, yi, xi)
    bx = s[Output].fuse(bx1, bx2)
    for axis, thread in ((bx, block_x), (tvy, thread_vy), (tvx, thread_vx), (ty, thread_y), (tx, thread_x)):
        s[Output].bind(axis, thread)
    # local memory load
    for stage in (IL, FL, CL):
        s[stage].compute_at(s[Output], tx)
    # shared memory loads of the input and the filter
    s[IS].compute_at(s[Output], bx)
    s[FS].compute_at(s[Output], bx)
    s[FS].reorder(FS.op.axis[2], FS.op.axis[3], FS.op.axis[1])
    for load in (IS, FS):
        ty, yi = s[load].split(load.op.axis[2], nparts=num_thread_y)
        tx, xi = s[load].split(load.op.axis[3], nparts=num_thread_x)
        s[load].bind(ty, thread_y)
        s[load].bind(tx, thread_x)
    return Case(s, (Input, Filter, outs))


@autotvm.template("classic/conv2d_no_batching")
def conv2d_no_batching(N: int, H: int, W: int, CO: int, CI: int, KH: int, KW: int, padding: int) -> Any:
    """The template that AutoTVM's documentation tunes for CUDA; the padding is a stage of its own."""
    assert N == 1, "Only consider batch_size = 1 in this template"

    data: Any = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel")
    padded = topi.nn.pad(data, (0, 0, padding, padding), name="pad_data")
    conv = topi.nn.conv2d_nchw(padded, kernel, 1, 0, dilation=1, out_dtype="float32")
    s = te.create_schedule([conv.op])

    cfg = autotvm.get_config()
    define_space(cfg, s, conv)
    return schedule_conv2d(cfg, s, data, kernel, conv)


def define_space(cfg: Any, s: Any, conv: te.Tensor) -> None:
    """The knobs of the template."""
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


def schedule_conv2d(cfg: Any, s: Any, data: te.Tensor, kernel: te.Tensor, conv: te.Tensor) -> Any:
    """The schedule of a configuration."""
    # inline padding
    pad_data = s[conv].op.input_tensors[0]
    s[pad_data].compute_inline()
    data, raw_data = pad_data, data

    output = conv
    OL = s.cache_write(conv, "local")

    # create cache stage
    AA = s.cache_read(data, "shared", [OL])
    WW = s.cache_read(kernel, "shared", [OL])
    AL = s.cache_read(AA, "local", [OL])
    WL = s.cache_read(WW, "local", [OL])

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
    s[OL].compute_at(s[output], tx)

    # tile reduction axes
    n, f, y, x = s[OL].op.axis
    rc, ry, rx = s[OL].op.reduce_axis
    rco, rcm, rci = cfg["tile_rc"].apply(s, OL, rc)
    ryo, rym, ryi = cfg["tile_rx"].apply(s, OL, ry)
    rxo, rxm, rxi = cfg["tile_ry"].apply(s, OL, rx)
    s[OL].reorder(rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x)

    s[AA].compute_at(s[OL], rxo)
    s[WW].compute_at(s[OL], rxo)
    s[AL].compute_at(s[OL], rxm)
    s[WL].compute_at(s[OL], rxm)

    # cooperative fetching
    fetch_together(cfg, s, [AA, WW])

    # tune unroll
    s[output].pragma(kernel_scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[output].pragma(kernel_scope, "unroll_explicit", cfg["unroll_explicit"].val)

    return s, [raw_data, kernel, conv]


def fetch_together(cfg: Any, s: Any, loads: list[te.Tensor]) -> None:
    """Let all threads of a block load tiles, element by element."""
    for load in loads:
        n, f, y, x = s[load].op.axis
        fused = s[load].fuse(n, f, y, x)
        tz, fused = s[load].split(fused, nparts=cfg["tile_f"].size[2])
        ty, fused = s[load].split(fused, nparts=cfg["tile_y"].size[2])
        tx, fused = s[load].split(fused, nparts=cfg["tile_x"].size[2])
        s[load].bind(tz, te.thread_axis("threadIdx.z"))
        s[load].bind(ty, te.thread_axis("threadIdx.y"))
        s[load].bind(tx, te.thread_axis("threadIdx.x"))
