"""Matrix multiplication, one product or a batch of them, each matrix as it is or transposed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, cast, same
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import PRECISION, Tensor
from tensorlang.te.terms import term_axis
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import rounded_once
from tensorlang.topi.operator import Operator, Option

Array = npt.NDArray[Any]
FULL = "full"
"""The precision of an operator by name that rounds no factor."""


@checked
def matmul(
    a: Tensor,
    b: Tensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out_dtype: str | None = None,
    name: str = "C",
    precision: str | None = None,
) -> Tensor:
    """Return `a[m, k] @ b[k, n]` of shape (m, n).

    `transpose_a`, `transpose_b`: the matrix is given as [k, m], as [n, k]. The result is of `out_dtype`, the
    dtype of `a` unless given, and so are sums; those of narrow floats are added up in float32 and rounded once. Of
    bfloat16 in float32, and of bytes in int32, `topi.schedule` makes them by the dot instructions or the tensor cores
    of its target.
    `precision="tf32"` allows a GPU to round factors of float32 to 10 bits behind the leading one, which its tensor
    cores multiply; sums stay in float32. Elsewhere, and without it, nothing is rounded.
    DefinitionError when the shapes do not fit, or `precision` is another word, or for other dtypes.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.matmul, [[1.0, 2.0]], [[3.0], [4.0]])
        array([[11.]], dtype=float32)
    """
    wanted = f"a[{'k, m' if transpose_a else 'm, k'}] and b[{'n, k' if transpose_b else 'k, n'}]"
    if a.ndim != 2 or b.ndim != 2 or not same(a.shape[not transpose_a], b.shape[transpose_b]):
        turned = "transpose_a=True and transpose_b=True read a factor the other way around"
        raise DefinitionError(f"matmul wants {wanted}, got {a} and {b}; {turned}")
    dtype, depth = out_dtype or a.dtype, a.shape[not transpose_a]
    shape = (a.shape[transpose_a], b.shape[not transpose_b])
    attrs = _precision(precision, {a.dtype, b.dtype, dtype})
    k = term_axis(depth, a, b)

    def sums(name: str, dtype: str) -> Tensor:
        def element(i: Expr, j: Expr) -> Expr:
            left = a[k, i] if transpose_a else a[i, k]
            right = b[j, k] if transpose_b else b[k, j]
            return te.sum(cast(left, dtype) * cast(right, dtype), axis=k)

        made: Tensor = te.compute(shape, element, name=name, attrs=attrs)
        return made

    return rounded_once(name, dtype, sums)


@checked
def batch_matmul(
    a: Tensor,
    b: Tensor,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    name: str = "C",
    precision: str | None = None,
) -> Tensor:
    """Return the products `a[q, m, k] @ b[q, n, k].T` of shape (q, m, n): the second matrix is transposed by default.

    One of the two may have a single matrix, which is multiplied with all of the other's. `out_dtype`, how sums are
    added up, and `precision` are those of `matmul`. DefinitionError when the shapes do not
    fit, and for precisions as there.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.batch_matmul, [[[1.0, 2.0]]], [[[3.0, 4.0]]]).tolist()
        [[[11.0]]]
    """
    wanted = f"a[q, {'k, m' if transpose_a else 'm, k'}] and b[q, {'n, k' if transpose_b else 'k, n'}]"
    fits = a.ndim == b.ndim == 3 and same(a.shape[1 + (not transpose_a)], b.shape[1 + transpose_b])
    if not fits or not (same(a.shape[0], b.shape[0]) or 1 in (extent_of(a.shape[0]), extent_of(b.shape[0]))):
        raise DefinitionError(f"batch_matmul wants {wanted}, got {a} and {b}")
    k = term_axis(a.shape[1 + (not transpose_a)], a, b)
    dtype = out_dtype or a.dtype
    shared_a, shared_b = (extent_of(x.shape[0]) == 1 for x in (a, b))

    attrs, batch = _precision(precision, {a.dtype, b.dtype, dtype}), b.shape[0] if shared_a else a.shape[0]
    shape = (batch, a.shape[1 + transpose_a], b.shape[1 + (not transpose_b)])

    def sums(name: str, dtype: str) -> Tensor:
        def element(q: Expr, i: Expr, j: Expr) -> Expr:
            qa, qb = 0 if shared_a else q, 0 if shared_b else q
            left = a[qa, k, i] if transpose_a else a[qa, i, k]
            right = b[qb, j, k] if transpose_b else b[qb, k, j]
            return te.sum(cast(left, dtype) * cast(right, dtype), axis=k)

        made: Tensor = te.compute(shape, element, name=name, attrs=attrs)
        return made

    return rounded_once(name, dtype, sums)


def _precision(precision: str | None, of: set[str]) -> dict[str, str]:
    """The attributes of a product of some dtypes that may be computed in a precision."""
    if precision is None:
        return {}
    if precision != "tf32" or of != {"float32"}:
        raise DefinitionError(
            f"precision={precision!r} for {', '.join(sorted(of))}: there is 'tf32', for products of float32 in float32"
        )
    return {PRECISION: precision}


def matmul_reference(a: Array, b: Array, precision: str = FULL) -> list[Array]:
    """The exact product in whatever precision, rounded once: float64 sums for floats, wrap-around for integers."""
    if dtypes.info(dtypes.canonical(a.dtype)).is_float:
        return [(a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)]
    return [np.matmul(a, b)]


def matmul_numpy(a: Array, b: Array, c: Array, precision: str = FULL) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.matmul(a, b, out=c)


def _matmul(m: int, n: int, k: int, dtype: str = "float32", precision: str = FULL) -> list[Tensor]:
    a, b = te.placeholder((m, k), name="A", dtype=dtype), te.placeholder((k, n), name="B", dtype=dtype)
    return [a, b, matmul(a, b, precision=None if precision == FULL else precision)]


def _batch_matmul(q: int, m: int, n: int, k: int, dtype: str = "float32", precision: str = FULL) -> list[Tensor]:
    a, b = te.placeholder((q, m, k), name="A", dtype=dtype), te.placeholder((q, k, n), name="B", dtype=dtype)
    return [a, b, batch_matmul(a, b, transpose_b=False, precision=None if precision == FULL else precision)]


_OPTIONS: dict[str, Option] = {"precision": FULL}
OPERATORS = (
    Operator("matmul", ("M", "N", "K"), _matmul, matmul_reference, matmul_numpy, _OPTIONS),
    Operator("batch_matmul", ("Q", "M", "N", "K"), _batch_matmul, matmul_reference, matmul_numpy, _OPTIONS),
)
