"""Small programs on blocks and threads that several rooms run."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tests.programs import Case, chain, matmul

BLOCK_X, BLOCK_Y, THREAD_X, THREAD_Y = (
    te.thread_axis(tag) for tag in ("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y")
)


def on_threads(s: Any, stage: Any, axis: Any, threads: int = 32) -> None:
    """Bind an axis to blocks of so many threads."""
    outer, inner = s[stage].split(axis, factor=threads)
    s[stage].bind(outer, BLOCK_X)
    s[stage].bind(inner, THREAD_X)


def shared_matmul(m: Any, columns: Any, k: Any, dtype: str = "float32") -> Case:
    """C = A B, an element a thread; blocks of 8 x 8 fetch tiles of A and B together."""
    s, args = matmul(m, columns, k, dtype)
    A, B, C = args
    tiles = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    i, j = C.op.axis
    i_o, j_o, i_i, j_i = s[C].tile(i, j, 8, 8)
    k_o, k_i = s[C].split(C.op.reduce_axis[0], factor=8)
    s[C].reorder(i_o, j_o, i_i, j_i, k_o, k_i)
    for axis, tag in ((i_o, BLOCK_Y), (j_o, BLOCK_X), (i_i, THREAD_Y), (j_i, THREAD_X)):
        s[C].bind(axis, tag)
    for tile in tiles:
        s[tile].compute_at(s[C], k_o)
        for axis, tag in zip(tile.op.axis, (THREAD_Y, THREAD_X), strict=True):
            s[tile].bind(axis, tag)
    return Case(s, args)


def reduced_by_threads(case: Case, name: str, threads: int) -> Case:
    """A reduction of rows: a block a row, whose threads reduce a part each and then combine."""
    s, args = case
    outer, inner = s[name].split("k", factor=threads)
    s[name].reorder("i", inner, outer)
    s[name].bind("i", BLOCK_X)
    s[name].bind(inner, THREAD_X)
    return Case(s, args)


def two_kernels(extent: Any = 100) -> Case:
    """A stage in global memory between two kernels."""
    s, args = chain(extent)
    on_threads(s, "B", "i")
    on_threads(s, "C", "i")
    return Case(s, args)
