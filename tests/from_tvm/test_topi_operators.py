"""Ten operators as tests/python/topi has them. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import numpy as np
import pytest
import tensorlang as tvm
import tensorlang.testing
import tensorlang.topi.testing
from tensorlang import te, topi
from tensorlang.topi.utils import get_const_tuple
from tensorlang.contrib.pickle_memoize import memoize

_conv2d_nchw_implement = {
    "generic": (topi.nn.conv2d_nchw, topi.generic.schedule_conv2d_nchw),
    "cpu": (topi.x86.conv2d_nchw, topi.x86.schedule_conv2d_nchw),
    "gpu": (topi.cuda.conv2d_nchw, topi.cuda.schedule_conv2d_nchw),
}


def test_conv2d_nchw(
    batch=1,
    in_channel=4,
    in_size=8,
    num_filter=8,
    kernel=3,
    stride=1,
    padding=1,
    dilation=1,
    add_bias=True,
    add_relu=True,
):
    pad_top, pad_left, pad_bottom, pad_right = topi.nn.get_pad_tuple(padding, (kernel, kernel))
    padding_sum = pad_top + pad_left + pad_bottom + pad_right
    in_height = in_width = in_size
    A = te.placeholder((batch, in_channel, in_height, in_width), name="A")
    W = te.placeholder((num_filter, in_channel, kernel, kernel), name="W")
    bias = te.placeholder((num_filter, 1, 1), name="bias")
    a_shape = get_const_tuple(A.shape)
    w_shape = get_const_tuple(W.shape)
    bias_shape = get_const_tuple(bias.shape)
    dtype = A.dtype

    @memoize("topi.tests.test_topi_conv2d_nchw.verify_conv2d_nchw")
    def get_ref_data():
        a_np = np.random.uniform(size=a_shape).astype(dtype)
        w_np = np.random.uniform(size=w_shape).astype(dtype)
        b_np = np.random.uniform(size=bias_shape).astype(dtype)
        dw_np = tvm.topi.testing.dilate_python(w_np, (1, 1, dilation, dilation))
        c_np = tvm.topi.testing.conv2d_nchw_python(a_np, dw_np, stride, padding)
        if add_bias:
            c_np += b_np
        if add_relu:
            c_np = np.maximum(c_np, 0)
        return a_np, w_np, b_np, c_np

    a_np, w_np, b_np, c_np = get_ref_data()

    def check_target(target):
        dev = tvm.device(target, 0)
        if not tvm.testing.device_enabled(target):
            print("Skip because %s is not enabled" % target)
            return
        print("Running on target: %s" % target)
        fcompute, fschedule = tvm.topi.testing.dispatch(target, _conv2d_nchw_implement)
        with tvm.target.Target(target):
            C = fcompute(A, W, (stride, stride), padding, (dilation, dilation), dtype)
            if add_bias:
                C = topi.add(C, bias)
            if add_relu:
                C = topi.nn.relu(C)
            s = fschedule([C])
        a = tvm.nd.array(a_np, dev)
        w = tvm.nd.array(w_np, dev)
        b = tvm.nd.array(b_np, dev)
        c = tvm.nd.array(np.zeros(get_const_tuple(C.shape), dtype=C.dtype), dev)
        func = tvm.build(s, [A, W, bias, C], target, name="conv")
        func(a, w, b, c)
        tvm.testing.assert_allclose(c.numpy(), c_np, rtol=1e-4)

    check_target("llvm")


def test_softmax():
    A = te.placeholder((32, 10), name="A")
    B = topi.nn.softmax(A)
    for ref, fn in [
        (tvm.topi.testing.softmax_python, topi.nn.softmax),
        (tvm.topi.testing.log_softmax_python, topi.nn.log_softmax),
    ]:
        B = fn(A, axis=-1)
        s = topi.x86.schedule_softmax(B)
        a_np = np.random.uniform(size=get_const_tuple(A.shape)).astype(A.dtype)
        b_np = ref(a_np)
        dev = tvm.cpu(0)
        a = tvm.nd.array(a_np, dev)
        b = tvm.nd.array(np.zeros(get_const_tuple(B.shape), dtype=B.dtype), dev)
        f = tvm.build(s, [A, B], "llvm")
        f(a, b)
        tvm.testing.assert_allclose(b.numpy(), b_np, rtol=1e-5)


@tvm.testing.uses_gpu
def test_dense():
    with tvm.target.Target("llvm"):
        A = te.placeholder((4, 32), name="A")
        B = te.placeholder((16, 32), name="B")
        C = te.placeholder((16,), name="C")
        D = topi.x86.dense_nopack(A, B, C, out_dtype="float32")
        D = topi.nn.relu(D)
        s = topi.x86.schedule_dense_nopack([D])
    a_np = np.random.uniform(size=(4, 32)).astype("float32")
    b_np = np.random.uniform(size=(16, 32)).astype("float32")
    c_np = np.random.uniform(size=(16,)).astype("float32")
    d_np = tvm.topi.testing.dense(a_np, b_np, c_np, use_bias=True, use_relu=True, out_dtype="float32")
    f = tvm.build(s, [A, B, C, D], "llvm", name="dense")
    d = tvm.nd.array(np.zeros((4, 16), "float32"))
    f(tvm.nd.array(a_np), tvm.nd.array(b_np), tvm.nd.array(c_np), d)
    tvm.testing.assert_allclose(d.numpy(), d_np, rtol=1e-5)


def _my_npy_argmax(arr, axis, keepdims):
    if not keepdims:
        return arr.argmax(axis=axis)
    if axis is None:
        out_shape = [1 for _ in range(len(arr.shape))]
    else:
        out_shape = list(arr.shape)
        out_shape[axis] = 1
    return arr.argmax(axis=axis).reshape(out_shape)


@pytest.mark.parametrize(
    "shape,axis,keepdims,type",
    [
        ((8, 6, 4), (1, 2), False, "sum"),
        ((8, 6), None, True, "max"),
        ((8, 6, 4), (0,), False, "min"),
        ((8, 6), (1,), True, "argmax"),
        ((8, 6), None, False, "all"),
        ((8, 6), 1, False, "prod"),
    ],
)
def test_reduce_map(shape, axis, keepdims, type, dtype="float32"):
    target, dev = "llvm", tvm.cpu(0)
    dtype = "bool" if type in ("all", "any") else dtype
    A = te.placeholder(shape=shape, name="A", dtype=dtype)
    A1 = topi.sqrt(topi.exp(A)) if type not in ("all", "any") else A
    out_dtype = dtype
    fn = {"sum": topi.sum, "max": topi.max, "min": topi.min, "argmax": topi.argmax, "all": topi.all, "prod": topi.prod}[
        type
    ]
    B = fn(A1, axis=axis, keepdims=keepdims)
    if type == "argmax":
        out_dtype = "int32"
    with tvm.target.Target(target):
        s = tvm.topi.testing.get_reduce_schedule(target)(B)
    foo = tvm.build(s, [A, B], target, name=type)
    if dtype == "bool":
        in_npy_map = in_npy = np.random.choice([True, False], size=shape)
    else:
        in_npy = np.random.uniform(-1, 1, size=shape).astype(dtype)
        in_npy_map = np.sqrt(np.exp(in_npy)).astype(dtype)
    if type == "argmax":
        out_npy = _my_npy_argmax(in_npy_map, axis=axis[0], keepdims=keepdims)
    else:
        out_npy = getattr(in_npy_map, type)(axis=axis, keepdims=keepdims)
    data_tvm = tvm.nd.array(in_npy, device=dev)
    out_tvm = tvm.nd.empty(shape=out_npy.shape, device=dev, dtype=out_dtype)
    for _ in range(1):
        foo(data_tvm, out_tvm)
    tvm.testing.assert_allclose(out_tvm.numpy(), out_npy, 1e-3, 1e-3)


def test_broadcast_binary():
    def verify_broadcast_binary_ele(lhs_shape, rhs_shape, ftopi, fnumpy, lhs_min=-100, lhs_max=100, dtype="float32"):
        A = te.var("A", dtype=dtype) if lhs_shape is None else te.placeholder(shape=lhs_shape, name="A", dtype=dtype)
        B = te.var("B", dtype=dtype) if rhs_shape is None else te.placeholder(shape=rhs_shape, name="B", dtype=dtype)
        C = ftopi(A, B)
        if isinstance(A, tvm.tir.PrimExpr) and isinstance(B, tvm.tir.PrimExpr):
            assert isinstance(C, tvm.tir.PrimExpr)
            return

        def gen_operand(shape, low, high, dev):
            if shape is None:
                npy = float(np.random.uniform(low=low, high=high))
                if dtype.startswith("int"):
                    npy = int(npy)
                nd = npy
            else:
                if dtype == "bool":
                    npy = np.random.choice(a=[False, True], size=shape)
                else:
                    npy = np.random.uniform(low=low, high=high, size=shape).astype(dtype)
                nd = tvm.nd.array(npy, device=dev)
            return npy, nd

        for target, dev in tvm.testing.enabled_targets():
            if target != "llvm":
                continue
            with tvm.target.Target(target):
                s = tvm.topi.testing.get_broadcast_schedule(target)(C)
            foo = tvm.build(s, [A, B, C], target, name="broadcast_binary" + "_" + ftopi.__name__)
            lhs_npy, lhs_nd = gen_operand(lhs_shape, lhs_min, lhs_max, dev)
            rhs_npy, rhs_nd = gen_operand(rhs_shape, 1, 10, dev)
            out_npy = fnumpy(lhs_npy, rhs_npy)
            out_nd = tvm.nd.array(np.empty(out_npy.shape).astype(C.dtype), dev)
            foo(lhs_nd, rhs_nd, out_nd)
            tvm.testing.assert_allclose(out_nd.numpy(), out_npy, rtol=1e-4, atol=1e-4)

    verify_broadcast_binary_ele((5, 2, 3), (2, 1), topi.add, np.add)
    verify_broadcast_binary_ele((), (), topi.add, np.add)
    verify_broadcast_binary_ele((5, 2, 3), None, topi.subtract, np.subtract)
    verify_broadcast_binary_ele(None, None, topi.add, np.add)
    verify_broadcast_binary_ele((5, 64, 128), (2, 5, 64, 1), topi.multiply, np.multiply)
    verify_broadcast_binary_ele((2, 3), (2, 1), topi.floor_mod, np.fmod, lhs_min=0, dtype="int32")
    verify_broadcast_binary_ele((2, 3), (3,), topi.less, np.less)


def test_pool():
    for pool_type, ceil_mode, cip in [("avg", False, True), ("avg", False, False), ("max", True, False)]:
        n, ic, ih, iw = 1, 4, 13, 13
        kw = kh = 3
        sw = sh = 2
        pt = pl = pb = pr = 1
        A = te.placeholder((n, ic, ih, iw), name="A")
        B = topi.nn.pool2d(
            A,
            kernel=[kh, kw],
            stride=[sh, sw],
            dilation=[1, 1],
            padding=[pt, pl, pb, pr],
            pool_type=pool_type,
            ceil_mode=ceil_mode,
            layout="NCHW",
            count_include_pad=cip,
        )
        B = topi.nn.relu(B)
        dtype = A.dtype
        output_shape = get_const_tuple(B.shape)
        input_np = np.random.uniform(low=0.001, size=(n, ic, ih, iw)).astype(dtype)
        ref_np = tvm.topi.testing.poolnd_python(
            input_np,
            [kh, kw],
            strides=[sh, sw],
            dilation=[1, 1],
            padding_before=[pt, pl],
            padding_after=[pb, pr],
            pool_type=pool_type,
            count_include_pad=cip,
            ceil_mode=ceil_mode,
        )
        np.testing.assert_equal(tuple(output_shape), tuple(ref_np.shape))
        with tvm.target.Target("llvm"):
            s = topi.x86.schedule_pool([B], "NCHW")
        f = tvm.build(s, [A, B], "llvm")
        b = tvm.nd.array(np.zeros(output_shape, dtype=B.dtype))
        f(tvm.nd.array(input_np), b)
        tvm.testing.assert_allclose(b.numpy(), ref_np, rtol=1e-5)


def test_resize2d():
    for layout, coord, method in [
        ("NCHW", "align_corners", "linear"),
        ("NHWC", "asymmetric", "nearest_neighbor"),
        ("NCHW", "half_pixel", "cubic"),
    ]:
        shape = (1, 3, 8, 8) if layout == "NCHW" else (1, 8, 8, 3)
        A = te.placeholder(shape, name="A", dtype="float32")
        B = topi.image.resize2d(
            A, [0.0] * 4, (13, 5), layout=layout, coordinate_transformation_mode=coord, method=method
        )
        a_np = np.random.uniform(size=shape).astype("float32")
        scale = (13 / 8, 5 / 8)
        b_np = tvm.topi.testing.resize2d_python(a_np, scale, layout, method, coord)
        with tvm.target.Target("llvm"):
            s = tvm.topi.testing.get_injective_schedule("llvm")(B)
        b = tvm.nd.array(np.zeros(b_np.shape, dtype="float32"))
        f = tvm.build(s, [A, B], "llvm")
        f(tvm.nd.array(a_np), b)
        tvm.testing.assert_allclose(b.numpy(), b_np, rtol=1e-3, atol=1e-3)


def test_take_transpose_concat_strided():
    def run(out, args, arrays, ref):
        with tvm.target.Target("llvm"):
            s = tvm.topi.testing.get_injective_schedule("llvm")(out)
        foo = tvm.build(s, args + [out], "llvm", name="op")
        o = tvm.nd.empty(ref.shape, out.dtype, tvm.cpu())
        foo(*[tvm.nd.array(a) for a in arrays], o)
        tvm.testing.assert_allclose(o.numpy(), ref, rtol=1e-5)

    a = np.random.rand(3, 4, 5).astype("float32")
    ind = np.array([[0, 2], [1, 0]], "int32")
    A = te.placeholder(a.shape, name="A")
    I = te.placeholder(ind.shape, name="I", dtype="int32")
    run(topi.take(A, I, axis=0, mode="clip"), [A, I], [a, ind], np.take(a, ind, axis=0))
    run(topi.transpose(A, (2, 0, 1)), [A], [a], a.transpose(2, 0, 1))
    B = te.placeholder(a.shape, name="B")
    run(topi.concatenate(a_tuple=[A, B], axis=1), [A, B], [a, a], np.concatenate([a, a], 1))
    run(
        topi.strided_slice(A, [0, 1, 0], [3, 4, 5], [1, 2, 1]),
        [A],
        [a],
        tvm.topi.testing.strided_slice_python(a, [0, 1, 0], [3, 4, 5], [1, 2, 1]),
    )
    run(topi.expand_dims(A, 1, 2), [A], [a], a[:, None, None])
    run(topi.reshape(A, (12, 5)), [A], [a], a.reshape(12, 5))
    ind = np.random.randint(0, 4, (3, 2, 5)).astype("int64")
    I = te.placeholder(ind.shape, "int64", name="I")
    run(topi.gather(A, 1, I), [A, I], [a, ind], tvm.topi.testing.gather_python(a, 1, ind))
    run(topi.nn.batch_matmul(A, A), [A], [a], tvm.topi.testing.batch_matmul(a, a))
    run(
        topi.nn.lrn(te_a := te.placeholder((1, 4, 3, 3), name="X"), 3, 1, 0.0001, 0.75, 2.0),
        [te_a],
        [x := np.random.rand(1, 4, 3, 3).astype("float32")],
        tvm.topi.testing.lrn_python(x, 3, 1, 2.0, 0.0001, 0.75),
    )


def test_argsort_topk():
    dshape = (2, 9)
    data = te.placeholder(dshape, name="data", dtype="float32")
    perm = np.argsort(-np.random.rand(*dshape)).astype("float32")
    with tvm.target.Target("llvm"):
        out = topi.argsort(data, axis=-1, is_ascend=False, dtype="int32")
        s = topi.generic.schedule_argsort(out)
        f = tvm.build(s, [data, out], "llvm")
    o = tvm.nd.array(np.zeros(dshape, "int32"))
    f(tvm.nd.array(perm), o)
    tvm.testing.assert_allclose(o.numpy(), np.argsort(-perm, axis=-1, kind="stable"))
    with tvm.target.Target("llvm"):
        outs = topi.topk(data, 3, -1, "both", False, "int64")
        outs = outs if isinstance(outs, list) else [outs]
        s = topi.generic.schedule_topk(outs)
    f = tvm.build(s, [data] + outs, "llvm")
    tvm_res = [tvm.nd.empty((2, 3), dtype=t.dtype) for t in outs]
    f(tvm.nd.array(perm), *tvm_res)
    tvm.testing.assert_allclose(tvm_res[0].numpy(), -np.sort(-perm)[:, :3])


def test_scatter_nd_cumsum():
    def check_scatter_nd(data_np, indices_np, updates_np, ref_res, mode="add"):
        with tvm.target.Target("llvm"):
            data = te.placeholder(data_np.shape, name="data", dtype=str(data_np.dtype))
            indices = te.placeholder(indices_np.shape, name="indices", dtype=str(indices_np.dtype))
            updates = te.placeholder(updates_np.shape, name="updates", dtype=str(updates_np.dtype))
            out = topi.scatter_nd(data, indices, updates, mode)
            func = lambda d, i, u: topi.scatter_nd(d, i, u, mode)
            tvm.topi.testing.compare_numpy_tvm(
                [data_np, indices_np, updates_np], ref_res, "llvm", tvm.cpu(), func, topi.generic.schedule_extern
            )

    data = np.zeros((2, 2)).astype("int64")
    indices = np.array([[1, 1, 0], [0, 1, 0]])
    updates = np.array([2, 3, 0])
    out = np.array([[0, 0], [2, 3]])
    check_scatter_nd(data, indices, updates, out)
    x = np.random.randint(0, 9, (3, 7)).astype("int32")
    tvm.topi.testing.compare_numpy_tvm(
        [x],
        np.cumsum(x, axis=1, dtype="int32"),
        "llvm",
        tvm.cpu(),
        lambda d: topi.cumsum(d, axis=1),
        topi.generic.schedule_extern,
    )
