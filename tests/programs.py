"""Small programs that many tests schedule."""

from __future__ import annotations

from typing import Any, NamedTuple

from tensorlang import te
from tensorlang.ir.expr import ExprLike
from tensorlang.schedule import Schedule

Extent = ExprLike


class Case(NamedTuple):
    """A fresh schedule, and the arguments to build it with."""

    s: Schedule
    args: tuple[Any, ...]


def matmul(m: Extent = 6, n: Extent = 7, k: Extent = 8, dtype: str = "float32") -> Case:
    """C = A B."""
    A, B = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    r = te.reduce_axis((0, k), "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return Case(te.create_schedule(C.op), (A, B, C))


def chain(n: Extent = 20, dtype: str = "float32") -> Case:
    """B = A + 1; C = 2 B."""
    A = te.placeholder((n,), dtype, name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))


def stencil(n: int = 18) -> Case:
    """B = A + 1; C = three neighbours of B."""
    A = te.placeholder((n + 2,), name="A")
    B = te.compute((n + 2,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] + B[i + 1] + B[i + 2], name="C")
    return Case(te.create_schedule(C.op), (A, C))


def two_consumers(n: int = 20) -> Case:
    """B = A + 1, read by C and by D."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    C = te.compute((n,), lambda i: B[i] * 2, name="C")
    D = te.compute((n,), lambda i: B[i] * 3, name="D")
    return Case(te.create_schedule([C.op, D.op]), (A, C, D))


def diamond() -> Case:
    """B feeds C and D, which both feed E."""
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] + 1, name="B")
    C = te.compute((10,), lambda i: B[i] * 2, name="C")
    D = te.compute((10,), lambda i: B[i] + C[i], name="D")
    E = te.compute((10,), lambda i: C[i] + D[i], name="E")
    return Case(te.create_schedule(E.op), (A, E))


def row_sum(m: Extent = 6, n: Extent = 20, dtype: str = "float32") -> Case:
    """B[i] = sum over k of A[i, k]."""
    A = te.placeholder((m, n), dtype, name="A")
    k = te.reduce_axis((0, n), "k")
    B = te.compute((m,), lambda i: te.sum(A[i, k], axis=k), name="B")
    return Case(te.create_schedule(B.op), (A, B))


def plane_sum() -> Case:
    """B[i] = sum over two axes of A[i, k, l]."""
    A = te.placeholder((4, 5, 6), name="A")
    k, m = te.reduce_axis((0, 5), "k"), te.reduce_axis((0, 6), "l")
    B = te.compute((4,), lambda i: te.sum(A[i, k, m], axis=[k, m]), name="B")
    return Case(te.create_schedule(B.op), (A, B))


def argmax(m: Extent = 5, n: Extent = 9) -> Case:
    """(position, value) of the largest element of each row; the first of equal ones."""

    def first(x: Any, y: Any) -> Any:
        return te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] <= y[0]))

    largest = te.comm_reducer(
        lambda x, y: (te.select(first(x, y), x[0], y[0]), te.maximum(x[1], y[1])),
        lambda t0, t1: (te.const(-1, t0), te.min_value(t1)),
        name="argmax",
    )
    A = te.placeholder((m, n), "int32", name="A")
    k = te.reduce_axis((0, n), "k")
    T = te.compute((m,), lambda i: largest((k.astype("int32"), A[i, k]), axis=k), name="T")
    return Case(te.create_schedule(T[0].op), (A, *T))


def with_extern() -> Case:
    """B = A + 1, sorted by a Python function to S, and C = 2 S."""

    def ordered(values: Any, out: Any) -> None:
        out[:] = sorted(values)

    A = te.placeholder((12,), name="A")
    B = te.compute((12,), lambda i: A[i] + 1, name="B")
    S = te.extern((12,), [B], ordered, name="S")
    C = te.compute((12,), lambda i: S[i] * 2, name="C")
    return Case(te.create_schedule(C.op), (A, C))
