"""Programs over vectors for CUDA, and data for them: the same for the fake CuPy and for a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.driver import build
from tensorlang.schedule import Schedule
from tensorlang.target.cuda.executable import CudaExecutable

SIZES = (1, 63, 64, 1000)


def spread(s: Schedule, tensor: te.Tensor) -> None:
    """Bind the axis of a vector: 64 threads a block."""
    outer, inner = s[tensor].split(tensor.op.axis[0], factor=64)
    s[tensor].bind(outer, te.thread_axis("blockIdx.x"))
    s[tensor].bind(inner, te.thread_axis("threadIdx.x"))


def chained(dtype: str = "float32") -> CudaExecutable:
    """`d = (a + b) + b`, the sum through scratch memory and a kernel of its own."""
    n = te.var("n")
    a, b = (te.placeholder((n,), dtype, name=name) for name in "ab")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    d = te.compute((n,), lambda i: c[i] + b[i], name="d")
    s = te.create_schedule(d.op)
    for tensor in (c, d):
        spread(s, tensor)
    return _built(s, [a, b, d], "chained")


def pick() -> CudaExecutable:
    """`c[i] = table[where[i]]`, 10 elements of which 4 are wanted: a place outside is a fault."""
    table, where = te.placeholder((10,), name="table"), te.placeholder((4,), "int32", name="where")
    c = te.compute((4,), lambda i: table[where[i]], name="c")
    s = te.create_schedule(c.op)
    s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
    return _built(s, [table, where, c], "pick")


def given(n: int, dtype: str = "float32") -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Values whose sums are exact in every dtype, and room for the result."""
    rng = np.random.default_rng(n)
    element = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    a, b = (rng.integers(-8, 8, n).astype(element) for _ in range(2))
    return a, b, np.zeros(n, element)


def _built(s: Schedule, args: list[te.Tensor], name: str) -> CudaExecutable:
    f = build(s, args, target="cuda", name=name)
    assert isinstance(f, CudaExecutable)
    return f
