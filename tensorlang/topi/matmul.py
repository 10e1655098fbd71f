"""Matrix multiplication `C[m, n] = A[m, k] @ B[k, n]`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import same
from tensorlang.schedule import Schedule
from tensorlang.te.operation import Tensor
from tensorlang.topi.operator import Anchor, Operator, Rule, accumulator, axes_of

Array = npt.NDArray[Any]


def matmul(a: Tensor, b: Tensor, name: str = "C") -> Tensor:
    """Return `a[m, k] @ b[k, n]` of shape (m, n) in the dtype of `a`, in which sums are accumulated.

    DefinitionError when the shapes do not fit.
    """
    if a.ndim != 2 or b.ndim != 2 or not same(a.shape[1], b.shape[0]):
        raise DefinitionError(f"matmul wants a[m, k] and b[k, n], got {a} and {b}")
    k = te.reduce_axis((0, a.shape[1]), name="k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name, tag="matmul")


def schedule_matmul(s: Schedule, anchor: Anchor) -> None:
    """Accumulate a tile of the output in registers; rows of tiles run in parallel."""
    lanes = anchor.target.lanes(dtypes.info(s.program.buffers[anchor.main].dtype).bits)
    tile, out = s[accumulator(s, anchor)], s[anchor.output]
    rows, columns = axes_of(s, anchor.output)
    row, i = out.split(rows, factor=6, tail="peel")
    column, j = out.split(columns, factor=2 * lanes, tail="peel")
    out.reorder(row, column, i, j)
    out.unroll(i)
    out.vectorize(j)
    out.parallel(row)
    tile.compute_at(out, column)
    (k,) = tile.op.reduce_axis
    i, j = tile.op.axis
    tile.reorder(k, i, j)
    tile.unroll(i)
    tile.vectorize(j)


def _workload(m: int, n: int, k: int, dtype: str = "float32") -> list[Tensor]:
    A, B = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((k, n), name="B", dtype=dtype)
    return [A, B, matmul(A, B)]


def matmul_reference(a: Array, b: Array) -> list[Array]:
    """The exact product, rounded once: float64 sums for floats, wrap-around for integers."""
    if dtypes.info(dtypes.canonical(a.dtype)).is_float:
        return [(a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)]
    return [np.matmul(a, b)]


def matmul_numpy(a: Array, b: Array, c: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.matmul(a, b, out=c)


OPERATORS = (Operator("matmul", ("M", "N", "K"), _workload, matmul_reference, matmul_numpy),)
RULES: dict[str, Rule] = {"matmul": schedule_matmul}
