"""Schedules with bulk copies, small enough to be run by the interpreter and emulated."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import te
from tests.programs import Case

n, m = te.var("n"), te.var("m")


def on_threads(stage: Any, axes: dict[str, str]) -> None:
    """Bind loops, by the name of each."""
    for axis, tag in axes.items():
        stage.bind(axis, tag)


def product(
    size: tuple[Any, Any, Any], stages: tuple[int, int] = (3, 3), tile: tuple[int, int, int] = (16, 32, 8)
) -> Case:
    """C = A B of float32, 4 x 4 elements a thread; the tiles of A and B are copied in bulk, without a swizzle."""
    rows, columns, depth = size
    A, B = te.placeholder((rows, depth), name="A"), te.placeholder((depth, columns), name="B")
    k = te.reduce_axis((0, depth), "k")
    C = te.compute((rows, columns), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    shared = [s.cache_read(x, "shared", [CL]) for x in (A, B)]
    i_o, j_o, i, j = s[C].tile(*s[C].op.axis, tile[0], tile[1])
    i, i_i = s[C].split(i, 4)
    j, j_i = s[C].split(j, 4)
    s[C].reorder(i_o, j_o, i, j, i_i, j_i)
    for axis, tag in ((i_o, "blockIdx.y"), (j_o, "blockIdx.x"), (i, "threadIdx.y"), (j, "threadIdx.x")):
        s[C].bind(axis, tag)
    s[CL].compute_at(s[C], j)
    step, inner = s[CL].split(s[CL].op.reduce_axis[0], tile[2])
    s[CL].reorder(step, inner, *s[CL].op.axis)
    for x, count in zip(shared, stages, strict=True):
        s[x].compute_at(s[CL], step)
        s[x].pipeline(count)
        s[x].bulk_copy()
    return Case(s, (A, B, C))


def rows(shape: tuple[int, ...], tile: tuple[int, int], stages: int = 3, dtype: str = "float32") -> Case:
    """An array with its last dimension mirrored; a block takes parts of that in turn, of some of the first."""
    A = te.placeholder(shape, dtype, name="A")
    C = te.compute(shape, lambda *i: A[(*i[:-1], shape[-1] - 1 - i[-1])], name="C")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "shared", [C])
    first, *middle, last = s[C].op.axis
    block, first = s[C].split(first, tile[0])
    step, last = s[C].split(last, tile[1])
    s[C].reorder(block, step, first, *middle, last)
    s[C].bind(block, "blockIdx.x")
    s[C].bind(last, "threadIdx.x")
    s[copy].compute_at(s[C], step)
    s[copy].pipeline(stages)
    s[copy].bulk_copy()
    return Case(s, (A, C))


def blurred(size: int = 40) -> Case:
    """Sums of three neighbours, with zeros outside of the array: what the copy of a tile has there."""
    A = te.placeholder((8, size), name="A")

    def padded(i: Any, j: Any) -> Any:
        return te.if_then_else(te.all(j >= 1, j < size + 1), A[i, j - 1], 0.0)

    P = te.compute((8, size + 2), padded, name="P")
    C = te.compute((8, size), lambda i, j: P[i, j] + P[i, j + 1] + P[i, j + 2], name="C")
    s = te.create_schedule(C.op)
    s[C].split("j", 6)
    s[C].split("i", 4)
    s[C].reorder("i_o", "j_o", "i_i", "j_i")
    on_threads(s[C], {"i_o": "blockIdx.x", "i_i": "threadIdx.y", "j_i": "threadIdx.x"})
    s[P].compute_at(s[C], "j_o")
    s[P].set_scope("shared")
    s[P].pipeline(3)
    s[P].bulk_copy()
    return Case(s, (A, C))


def twice(stages: int = 3) -> Case:
    """The loop that copies ahead runs several times in one block."""
    A = te.placeholder((8, 64), name="A")
    C = te.compute((8, 64), lambda i, j: A[i, j] * 2, name="C")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "shared", [C])
    s[C].split("i", 2)
    s[C].split("i_o", 2)
    s[C].split("j", 16)
    s[C].reorder("i_o_o", "i_o_i", "j_o", "i_i", "j_i")
    on_threads(s[C], {"i_o_o": "blockIdx.x", "i_i": "threadIdx.y", "j_i": "threadIdx.x"})
    s[copy].compute_at(s[C], "j_o")
    s[copy].pipeline(stages)
    s[copy].bulk_copy()
    return Case(s, (A, C))


def beside(stages: int = 3, others: int = 3, columns: int = 64, rows: int = 1) -> Case:
    """A is copied in bulk, and B by each thread for others: so many tiles of each, one after the other for each row."""
    A, B = te.placeholder((4, columns), name="A"), te.placeholder((4, columns), name="B")
    C = te.compute((4, columns), lambda i, j: A[i, j] - B[i, columns - 1 - j], name="C")
    s = te.create_schedule(C.op)
    shared = [s.cache_read(x, "shared", [C]) for x in (A, B)]
    s[C].split("i", rows)
    s[C].split("j", 32)
    on_threads(s[C], {"i_o": "blockIdx.x", "j_i": "threadIdx.x"})
    for x, count in zip(shared, (stages, others), strict=True):
        s[x].compute_at(s[C], "j_o")
        if count > 1:
            s[x].pipeline(count)
    s[shared[1]].bind("ax1", "threadIdx.x")
    s[shared[0]].bulk_copy()
    return Case(s, (A, B, C))


Numbers = dict[str, np.ndarray[Any, Any]]


def given(case: Case, sizes: dict[str, int] | None = None) -> Numbers:
    """Arrays of small whole numbers for the arguments of a schedule; the last one is the output."""
    rng = np.random.default_rng(3)
    found: Numbers = {}
    for tensor in case.args:
        shape = [(sizes or {})[str(e)] if str(e) in (sizes or {}) else int(e.value) for e in tensor.shape]
        found[tensor.op.name] = rng.integers(-4, 5, shape).astype(tensor.dtype)
    return found
