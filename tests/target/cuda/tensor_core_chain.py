"""Two products in a row by one warp of 16 rows: what the first one sums is the left operand of the second."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tensorlang
from tensorlang import te
from tensorlang.ir.stmt import Kernel
from tensorlang.schedule import Stage
from tests.target.cuda.tensor_core_gemm import Array, copy, fragments

ROWS, INNER, KEYS, COLUMNS = 32, 32, 32, 16


def chained() -> Kernel:
    """`O = bf16(A B / 2) V`: the scores stay in registers, no lane needs those of another."""
    A, B, V = (
        te.placeholder(shape, "bfloat16", name=name)
        for name, shape in (("A", (ROWS, INNER)), ("B", (INNER, KEYS)), ("V", (KEYS, COLUMNS)))
    )
    k, n = te.reduce_axis((0, INNER), "k"), te.reduce_axis((0, KEYS), "n")

    def element(x: Any, y: Any, axis: Any) -> Any:
        return lambda i, j: te.sum(x[i, axis].astype("float32") * y[axis, j].astype("float32"), axis=axis)

    S = te.compute((ROWS, KEYS), element(A, B, k), name="S")
    P = te.compute((ROWS, KEYS), lambda i, j: (S[i, j] * 0.5).astype("bfloat16"), name="P")
    O = te.compute((ROWS, COLUMNS), element(P, V, n), name="O")  # noqa: E741
    s = te.create_schedule(O.op)
    with s.proven_together("two products"):
        OW = s.cache_write(O, "warp")
        shared = AS, BS, VS = [s.cache_read(x, "shared", [user]) for x, user in ((A, S), (B, S), (V, OW))]
        AW, BW, VW = (s.cache_read(x, "warp", [user]) for x, user in ((AS, S), (BS, S), (VS, OW)))
        for tensor in (S, P):
            s[tensor].set_scope("warp")

        i, j = s[O].op.axis
        block, i = s[O].split(i, ROWS)
        warp, i = s[O].split(i, 16)
        inside = lanes(s[O], (block, warp), i, j)
        s[O].bind(block, te.thread_axis("blockIdx.x"))
        s[O].bind(warp, te.thread_axis("threadIdx.y"))
        s[O].vectorize(inside)
        for tensor in (OW, P, S):
            s[tensor].compute_at(s[O], warp)
        lanes(s[P], (), *s[P].op.axis)
        for tensor, loads in ((OW, ((VW, "b"),)), (S, ((AW, "a"), (BW, "b")))):
            step = product(s[tensor])
            for held, word in loads:
                s[held].compute_at(s[tensor], step)
                fragments(s[held], f"cuda.ldmatrix.{word}.bf16")
        for tensor in shared:
            s[tensor].compute_at(s[O], block)
            copy(s[tensor], (32, 2, 1), 8)
            s[tensor].swizzle()
    found: Kernel = tensorlang.lower(s, [A, B, V, O], target="cuda -arch=sm_80", name="chain").kernel
    return found


def lanes(stage: Stage, outer: tuple[Any, ...], i: Any, j: Any) -> Any:
    """Bind the lanes as a fragment of accumulators lies in them; returns the loop over neighbours."""
    tile, i = stage.split(i, 16)
    half, row = stage.split(i, 8)
    columns, j = stage.split(j, 8)
    column, pair = stage.split(j, 2)
    stage.reorder(*outer, row, column, tile, columns, half, pair)
    stage.bind(stage.fuse(row, column), te.thread_axis("threadIdx.x"))
    return pair


def product(stage: Stage) -> Any:
    """Products of fragments; returns the loop of their steps."""
    (i, j), (k,) = stage.op.axis, stage.op.reduce_axis
    step, k = stage.split(k, 16)
    rows, i = stage.split(i, 16)
    columns, j = stage.split(j, 8)
    stage.reorder(step, rows, columns, i, j, k)
    stage.tensorize(i, te.intrin("cuda.mma.m16n8k16.bf16"))
    return step


def arrays() -> tuple[dict[str, Array], Array]:
    """Operands, and an output to be written, by name; what it is to be."""
    rng = np.random.default_rng(3)
    shapes = {"A": (ROWS, INNER), "B": (INNER, KEYS), "V": (KEYS, COLUMNS)}
    given = {name: rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16) for name, shape in shapes.items()}
    a, b, v = (x.astype(np.float32) for x in given.values())
    scores = ((a @ b) / 2).astype(ml_dtypes.bfloat16).astype(np.float32)
    return {**given, "O": np.zeros((ROWS, COLUMNS), np.float32)}, scores @ v
