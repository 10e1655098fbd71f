"""The workloads in CuPy: cuBLAS for products, and kernels of its own for what is element by element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.gpu.given import Builder, Given
from tensorlang.target.cuda import runtime

_GELU = """
float z = float(x) + float(bias[i % n]);
y = z * 0.5f * (1.0f + erff(z * 0.70710678f))
"""


def _product(A: Any, B: Any, turned: bool = False) -> tuple[Any, Callable[[], object]]:
    """The result of A @ B, or A @ B.T if `turned`, and a call that computes it.

    Sums are in float32, with TF32 off unless CUPY_TF32 asks for it.
    """
    cupy = runtime.cupy()
    out = cupy.empty((A.shape[0], B.shape[0 if turned else 1]), A.dtype)
    if A.dtype != np.uint16:
        return out, lambda: cupy.dot(A, B.T if turned else B, out=out)
    return out, _bfloat16_product(A, B, out, turned)


def _bfloat16_product(A: Any, B: Any, out: Any, turned: bool) -> Callable[[], object]:
    """cuBLAS on the bits of bfloat16, which CuPy has no dtype for; by columns, as cuBLAS counts, it is B.T @ A.T."""
    cupy = runtime.cupy()
    cublas, kind = cupy.cuda.cublas, cupy.cuda.runtime.CUDA_R_16BF
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    (m, k), n = A.shape, out.shape[1]
    as_is, width = cublas.CUBLAS_OP_N, B.shape[1]
    how = cublas.CUBLAS_OP_T if turned else as_is

    def call() -> None:
        cublas.gemmEx(
            cupy.cuda.device.get_cublas_handle(),
            *(how, as_is, n, m, k, one.ctypes.data),
            *(B.data.ptr, kind, width, A.data.ptr, kind, k, zero.ctypes.data, out.data.ptr, kind, n),
            *(cublas.CUBLAS_COMPUTE_32F, cublas.CUBLAS_GEMM_DEFAULT),
        )

    return call


def _matmul(given: Given) -> Mapping[str, Callable[[], Any]]:
    out, product = _product(*given.data("A", "B"))

    def call() -> Any:
        product()
        return out

    return {"": call}


def _dense(given: Given) -> Mapping[str, Callable[[], Any]]:
    A, B = given.data("A", "B")
    out, product = _product(A, B, turned=True)

    def call() -> Any:
        product()
        return out

    return {"": call}


def _matmul_gelu(given: Given) -> Mapping[str, Callable[[], Any]]:
    """cuBLAS, then one kernel for bias and GELU, in place."""
    bias = given.arrays["bias"].data
    out, product = _product(*given.data("A", "B"))
    gelu = runtime.cupy().ElementwiseKernel("T x, raw T bias, int64 n", "T y", _GELU, "bias_gelu")

    def call() -> Any:
        product()
        gelu(out, bias, bias.size, out)
        return out

    return {"": call}


def _transpose(given: Given) -> Mapping[str, Callable[[], Any]]:
    cupy = runtime.cupy()
    (x,) = given.data("x")
    return {"": lambda: cupy.ascontiguousarray(x.T)}


def _chain(given: Given) -> Mapping[str, Callable[[], Any]]:
    """One kernel."""
    cupy = runtime.cupy()
    a, b, c = given.data("a", "b", "c")
    kernel = cupy.ElementwiseKernel("T a, T b, T c", "T y", "T z = a * b + c; y = z > 0 ? z : T(0)", "chain")
    out = cupy.empty_like(a)
    return {"": lambda: kernel(a, b, c, out)}


BUILDERS: Mapping[str, Builder] = {
    "matmul": _matmul,
    "dense": _dense,
    "matmul_gelu": _matmul_gelu,
    "transpose": _transpose,
    "chain": _chain,
}
