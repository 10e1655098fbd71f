"""Sparse dense layers with a schedule of their own, as topi's x86 has it. Against TVM 0.14, the import lines alone differ."""

# mypy: ignore-errors
# ruff: noqa

import numpy as np
import scipy.sparse as sp
import tensorlang as tvm
import tensorlang.testing
from tensorlang import te, topi
from tensorlang.topi.utils import get_const_tuple, traverse_inline, simplify
from tensorlang.topi.sparse.utils import random_bsr_matrix
from tensorlang import autotvm


def _sparse_dense_sp_rhs_csrmm(data, weight_data, weight_indices, weight_indptr):
    oshape = (get_const_tuple(data.shape)[0], get_const_tuple(weight_indptr.shape)[0] - 1)

    def f(i, row):
        row_start = weight_indptr[row]
        row_end = weight_indptr[row + 1]
        row_elems = row_end - row_start
        elem_idx = te.reduce_axis((0, row_elems), name="elem_idx")
        elem = row_start + elem_idx
        a_val = weight_data[elem]
        weight_val = data[i, weight_indices[elem]]
        return te.sum(a_val * weight_val, axis=elem_idx)

    return te.compute(oshape, f, tag="sparse_dense_sp_rhs_csrmm")


def _sparse_dense_sp_rhs_bsrmm(data, weight_data, weight_indices, weight_indptr):
    (m, _) = get_const_tuple(data.shape)
    (_, bs_r, bs_c) = get_const_tuple(weight_data.shape)
    (num_blocks_plus_1,) = get_const_tuple(weight_indptr.shape)
    num_blocks = num_blocks_plus_1 - 1

    def _compute_block(i, nb_j, j):
        row_start = weight_indptr[nb_j]
        row_end = weight_indptr[nb_j + 1]
        row_elems = row_end - row_start
        elem_idx = te.reduce_axis((0, row_elems), name="elem_idx")
        block_offset = row_start + elem_idx
        c = te.reduce_axis((0, bs_c), name="c")
        block_j = weight_indices[block_offset]
        block_ij_val = weight_data[block_offset][j][c]
        x_val = data[i, bs_c * block_j + c]
        return te.sum(block_ij_val * x_val, axis=[elem_idx, c])

    idxd = tvm.tir.indexdiv
    idxm = tvm.tir.indexmod
    bsrmm_block = te.compute((m, num_blocks, bs_r), _compute_block, tag="sparse_dense_sp_rhs_bsrmm_block")
    return te.compute(
        (m, num_blocks * bs_r),
        lambda m, n: bsrmm_block[m, idxd(n, bs_r), idxm(n, bs_r)],
        tag="sparse_dense_sp_rhs_bsrmm",
    )


def sparse_dense_sp_rhs(data, weight_data, weight_indices, weight_indptr):
    assert len(weight_data.shape) in (1, 3)
    if len(weight_data.shape) == 1:
        func = _sparse_dense_sp_rhs_csrmm
    if len(weight_data.shape) == 3:
        func = _sparse_dense_sp_rhs_bsrmm
    return func(data, weight_data, weight_indices, weight_indptr)


def schedule_sparse_dense(outs):
    """Create schedule for sparse dense"""
    s = te.create_schedule([x.op for x in outs])

    def _callback(op):
        simd_width = 16
        if op.tag == "sparse_dense_sp_lhs_csrmm" or op.tag == "sparse_dense_sp_rhs_csrmm":
            (y_o, y_i) = s[op].split(s[op].op.axis[1], 2)
            fused = s[op].fuse(s[op].op.axis[0], y_o)
            s[op].parallel(fused)
            s[op].vectorize(y_i)
        elif op.tag == "sparse_dense_sp_rhs_bsrmm" or op.tag == "sparse_dense_sp_lhs_bsrmm":
            y_bsrmm = op.input_tensors[0]
            assert (
                y_bsrmm.op.tag == "sparse_dense_sp_rhs_bsrmm_block"
                or y_bsrmm.op.tag == "sparse_dense_sp_lhs_bsrmm_block"
            )
            y_reshape = op
            (m, num_blocks, b_r) = s[y_bsrmm].op.axis
            bs_r = get_const_int(b_r.dom.extent)
            (elem_idx, c) = s[y_bsrmm].op.reduce_axis
            s[y_bsrmm].reorder(num_blocks, m, elem_idx, b_r, c)
            s[y_bsrmm].vectorize(b_r)
            (m_o, n_o) = s[y_reshape].op.axis
            (noo, noi) = s[y_reshape].split(n_o, bs_r)
            s[y_bsrmm].compute_at(s[y_reshape], noi)
            s[y_reshape].vectorize(noi)
            if op != s[outs[0]].op:
                (y_o, y_i) = s[outs[0].op].split(s[outs[0].op].op.axis[1], 2 * simd_width)
                s[y_reshape].compute_at(s[outs[0]], y_o)
                s[outs[0].op].parallel(y_o)
                s[outs[0].op].vectorize(y_i)
            else:
                m_o_noo = s[y_reshape].fuse(m_o, noo)
                s[y_reshape].parallel(m_o_noo)

    traverse_inline(s, outs[0].op, _callback)
    return s


from tensorlang.topi.utils import get_const_int


def verify_csr(M=8, K=64, N=48, density=0.2, use_relu=True, dtype="float32"):
    X_np = np.random.randn(M, K).astype(dtype)
    W_sp_np = sp.random(N, K, density=density, format="csr", dtype=dtype)
    W_np = W_sp_np.todense()
    Y_np = np.array(X_np.dot(W_np.T))
    if use_relu:
        Y_np = np.maximum(Y_np, 0.0)
    W_data = te.placeholder(shape=W_sp_np.data.shape, dtype=str(W_sp_np.data.dtype))
    W_indices = te.placeholder(shape=W_sp_np.indices.shape, dtype=str(W_sp_np.indices.dtype))
    W_indptr = te.placeholder(shape=W_sp_np.indptr.shape, dtype=str(W_sp_np.indptr.dtype))
    X = te.placeholder(shape=X_np.shape, dtype=str(X_np.dtype))
    Y = sparse_dense_sp_rhs(X, W_data, W_indices, W_indptr)
    if use_relu:
        Y = topi.nn.relu(Y)
    s = schedule_sparse_dense([Y])
    func = tvm.build(s, [X, W_data, W_indices, W_indptr, Y], "llvm")
    dev = tvm.cpu(0)
    Y_tvm = tvm.nd.array(np.zeros(Y_np.shape, dtype=Y_np.dtype), device=dev)
    func(
        tvm.nd.array(X_np, device=dev),
        tvm.nd.array(W_sp_np.data, device=dev),
        tvm.nd.array(W_sp_np.indices, device=dev),
        tvm.nd.array(W_sp_np.indptr, device=dev),
        Y_tvm,
    )
    tvm.testing.assert_allclose(Y_tvm.numpy(), Y_np, atol=1e-4, rtol=1e-4)


def verify_bsr(M, N, K, BS_R, BS_C, density, use_relu, target="llvm"):
    X_np = np.random.randn(M, K).astype("float32")
    W_sp_np = random_bsr_matrix(N, K, BS_R, BS_C, density=density, dtype="float32")
    W_np = W_sp_np.todense()
    Y_np = np.array(X_np.dot(W_np.T))
    if use_relu:
        Y_np = np.maximum(Y_np, 0.0)
    W_data = te.placeholder(shape=W_sp_np.data.shape, dtype=str(W_sp_np.data.dtype))
    W_indices = te.placeholder(shape=W_sp_np.indices.shape, dtype=str(W_sp_np.indices.dtype))
    W_indptr = te.placeholder(shape=W_sp_np.indptr.shape, dtype=str(W_sp_np.indptr.dtype))
    X = te.placeholder(shape=X_np.shape, dtype=str(X_np.dtype))

    dev = tvm.device(target, 0)
    print("Running on target: %s" % target)
    Y = sparse_dense_sp_rhs(X, W_data, W_indices, W_indptr)
    if use_relu:
        Y = topi.nn.relu(Y)
    s = schedule_sparse_dense([Y])
    print(tvm.lower(s, [X, W_data, W_indices, W_indptr, Y], simple_mode=True))
    func = tvm.build(s, [X, W_data, W_indices, W_indptr, Y], target)
    Y_tvm = tvm.nd.array(np.zeros(Y_np.shape, dtype=Y_np.dtype), device=dev)
    func(
        tvm.nd.array(X_np, device=dev),
        tvm.nd.array(W_sp_np.data, device=dev),
        tvm.nd.array(W_sp_np.indices, device=dev),
        tvm.nd.array(W_sp_np.indptr, device=dev),
        Y_tvm,
    )
    tvm.testing.assert_allclose(Y_tvm.numpy(), Y_np, atol=1e-4, rtol=1e-4)


def verify_dynamic_csrmv(batch, in_dim, out_dim):
    nr, nc, n = te.var("nr"), te.var("nc"), te.var("n")
    dtype = "float32"
    from tensorlang.contrib import sparse as tvmsp

    A = tvmsp.placeholder(shape=(nr, nc), nonzeros=n, dtype=dtype, name="A")
    B = te.placeholder((in_dim, 1), dtype=dtype, name="B")
    C = topi.sparse.csrmv(A, B)
    s = te.create_schedule(C.op)
    a = tvmsp.array(np.maximum(np.random.uniform(size=(batch, in_dim)).astype("float32") - 0.6, 0), tvm.cpu(0))
    b = tvm.nd.array(np.random.uniform(size=(in_dim, 1)).astype("float32"))
    c = tvm.nd.array(np.zeros((batch, 1), dtype="float32"))
    f = tvm.build(s, [nr, A.data, A.indices, A.indptr, B, C], "llvm", name="csrmv")
    f(batch, a.data, a.indices, a.indptr, b, c)
    tvm.testing.assert_allclose(c.numpy(), a.asnumpy().dot(b.numpy()), rtol=1e-4)


def test_rows_of_elements():
    verify_csr()
    verify_csr(M=3, use_relu=False)


def test_rows_of_blocks():
    M, N, K, density = 1, 64, 128, 0.3
    verify_bsr(M, N, K, BS_R=16, BS_C=1, density=density, use_relu=True)
    verify_bsr(M, N, K, BS_R=16, BS_C=16, density=density, use_relu=False)


def test_sizes_that_are_passed():
    verify_dynamic_csrmv(5, 20, 1)
