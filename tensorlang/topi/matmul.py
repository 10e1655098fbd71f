"""Matrix multiplication `C[m, n] = A[m, k] @ B[k, n]`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.te.operation import Tensor

Array = npt.NDArray[Any]


def matmul(m: int, n: int, k: int, dtype: str = "float32") -> list[Tensor]:
    """Return `[A[m, k], B[k, n], C[m, n]]`, all of `dtype`; sums are accumulated in `dtype`."""
    A = te.placeholder((m, k), name="A", dtype=dtype)
    B = te.placeholder((k, n), name="B", dtype=dtype)
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return [A, B, C]


def matmul_reference(a: Array, b: Array) -> list[Array]:
    """The exact product, rounded once: float64 sums for floats, wrap-around for integers."""
    if dtypes.info(dtypes.canonical(a.dtype)).is_float:
        return [(a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)]
    return [np.matmul(a, b)]


def matmul_numpy(a: Array, b: Array, c: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.matmul(a, b, out=c)
