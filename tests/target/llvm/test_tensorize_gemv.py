"""The tensorize tutorial of classic te. Against TVM, the import lines and the compiler of the C code differ.

TVM's tutorial compiles C with clang; here the same two functions are written as the LLVM IR that clang makes of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensorlang as tvm
from tensorlang import te
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.testing import check_intrinsic

GEMV = """
define i32 @gemv_update(ptr %cc, ptr %aa, ptr %bb, i32 %m, i32 %l, i32 %stride) {
entry:
  br label %rows
rows:
  %i = phi i32 [0, %entry], [%next_i, %after]
  %c = getelementptr float, ptr %cc, i32 %i
  %row = mul i32 %i, %stride
  br label %columns
columns:
  %j = phi i32 [0, %rows], [%next_j, %columns]
  %at = add i32 %row, %j
  %pa = getelementptr float, ptr %aa, i32 %j
  %pb = getelementptr float, ptr %bb, i32 %at
  %a = load float, ptr %pa
  %b = load float, ptr %pb
  %product = fmul float %a, %b
  %old = load float, ptr %c
  %sum = fadd float %old, %product
  store float %sum, ptr %c
  %next_j = add i32 %j, 1
  %more_j = icmp slt i32 %next_j, %l
  br i1 %more_j, label %columns, label %after
after:
  %next_i = add i32 %i, 1
  %more_i = icmp slt i32 %next_i, %m
  br i1 %more_i, label %rows, label %done
done:
  ret i32 0
}

define i32 @gemv_reset(ptr %cc, i32 %m) {
entry:
  br label %rows
rows:
  %i = phi i32 [0, %entry], [%next, %rows]
  %c = getelementptr float, ptr %cc, i32 %i
  store float 0.0, ptr %c
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %m
  br i1 %more, label %rows, label %done
done:
  ret i32 0
}
"""
N, M, L = 128, 64, 64


def product() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((N, L), name="A")
    B = te.placeholder((M, L), name="B")
    k = te.reduce_axis((0, L), name="k")
    C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
    return A, B, C


def check(s: Any, A: te.Tensor, B: te.Tensor, C: te.Tensor) -> None:
    func = tvm.build(s, [A, B, C], target="llvm", name="gemv")
    dev = tvm.device("llvm", 0)
    a = np.random.uniform(size=(N, L)).astype(A.dtype)
    b = np.random.uniform(size=(M, L)).astype(B.dtype)
    c = tvm.nd.array(np.zeros((N, M), dtype=C.dtype), dev)
    func(tvm.nd.array(a, dev), tvm.nd.array(b, dev), c)
    tvm.testing.assert_allclose(c.numpy(), np.dot(a, b.T), rtol=1e-3)


def intrin_gemv(m: int, l: int, source: str = "") -> TensorIntrin:  # noqa: E741
    a = te.placeholder((l,), name="a")
    b = te.placeholder((m, l), name="b")
    k = te.reduce_axis((0, l), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    Ab = tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    Bb = tvm.tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=[te.var("s1"), 1])
    Cb = tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def intrin_func(ins: Any, outs: Any) -> Any:
        aa, bb = ins
        cc = outs[0]

        def _body() -> Any:
            ib = tvm.tir.ir_builder.create()
            ib.emit(
                tvm.tir.call_extern(
                    "int32",
                    "gemv_update",
                    cc.access_ptr("w"),
                    aa.access_ptr("r"),
                    bb.access_ptr("r"),
                    m,
                    l,
                    bb.strides[0],
                )
            )
            return ib.get()

        def _reduce_reset() -> Any:
            ib = tvm.tir.ir_builder.create()
            ib.emit(tvm.tir.call_extern("int32", "gemv_reset", cc.access_ptr("w"), m))
            return ib.get()

        def _reduce_update() -> Any:
            return _body()

        return _body(), _reduce_reset(), _reduce_update()

    made: TensorIntrin = te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb}, source=source)
    return made


def test_the_whole_reduction_inside() -> None:
    A, B, C = product()
    s = te.create_schedule(C.op)
    factor = 16
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=factor)
    s[C].reorder(x, yo, yi, z)
    gemv = intrin_gemv(factor, L)
    s[C].tensorize(yi, gemv)
    s[C].pragma(x, "import_llvm", GEMV)
    assert "machine tensor_intrin.update(A[i, 0], B[16 * j_o, 0], C[i, 16 * j_o])" in str(tvm.lower(s, [A, B, C]))
    check(s, A, B, C)


def test_reduce_update() -> None:
    A, B, C = product()
    s = te.create_schedule(C.op)
    factor = 16
    x, y = C.op.axis
    (z,) = C.op.reduce_axis
    yo, yi = s[C].split(y, factor=factor)
    zo, zi = s[C].split(z, factor=factor)
    s[C].reorder(x, yo, zo, yi, zi)
    gemv = intrin_gemv(factor, factor)
    s[C].tensorize(yi, gemv)
    s[C].pragma(yo, "import_llvm", GEMV)
    check(s, A, B, C)


def test_the_intrinsic_may_bring_its_code() -> None:
    A, B, C = product()
    s = te.create_schedule(C.op)
    yo, yi = s[C].split(C.op.axis[1], factor=16)
    s[C].reorder(C.op.axis[0], yo, yi, C.op.reduce_axis[0])
    s[C].tensorize(yi, intrin_gemv(16, L, GEMV))
    check(s, A, B, C)


def test_the_tutorials_body_only_adds_and_that_is_found() -> None:
    with pytest.raises(AssertionError, match="the body does not do what is declared"):
        check_intrinsic(intrin_gemv(16, 16, GEMV))
