"""Layouts of narrow numbers in panels of words, as `schedules.words.is_word_layout` recognises them."""

from __future__ import annotations

from functools import cache
from math import gcd

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, variables
from tensorlang.ir.stmt import Stmt
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import axes_of, compute_op
from tensorlang.schedules.cpu.points import run_in_parallel, work_of
from tensorlang.schedules.words import WORD
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import call_llvm_intrin, reinterpret, stmt_seq
from tensorlang.te.operation import loads
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

_MATRIX = 4
"""Axes of a matrix in panels: of panels, words, lanes and terms."""


def schedule_panels(s: Schedule, name: str, target: Target) -> None:
    """Lay weights out in squares of words that are turned around, or in words made of neighbouring rows.

    Those with more axes than a panel, a word, a lane and a term are gathered word by word.
    """
    op, stage = compute_op(s, name), s[name]
    if len(op.axes) > _MATRIX:
        first, second, *_, last = axes_of(s, name)
        stage.vectorize(last)
        run_in_parallel(s, name, [first, second], target, work_of(op))
        return
    (read,) = loads(op)
    panel, word, lane, term = axes_of(s, name)
    words, width, group = (extent_of(axis.extent) or 1 for axis in op.axes[1:])
    lanes, outer = gcd(width, target.lanes(WORD)), panel
    if lane in variables(read.index[-1]):
        vector, inner = stage.split(lane, factor=lanes)
        stage.reorder(word, panel, vector, inner, term)
        stage.tensorize(inner, _weave(op.dtype, group, lanes))
        outer = word
    elif words >= lanes > 1:
        far, inner = stage.split(word, factor=lanes, tail="peel")
        vector, lane_inner = stage.split(lane, factor=lanes)
        stage.reorder(panel, vector, far, inner, lane_inner, term)
        stage.tensorize(inner, _turn(op.dtype, group, lanes))
    else:
        stage.reorder(panel, lane, word, term)
        stage.vectorize(term)
    run_in_parallel(s, name, [outer], target)


@cache
def _weave(dtype: str, group: int, lanes: int) -> TensorIntrin:
    """Words of as many neighbouring rows as fit into one."""
    rows = te.placeholder((group, lanes), dtype, "rows")
    out = te.compute((lanes, group), lambda j, t: rows[t, j], name="out")
    strided = decl_buffer(rows.shape, dtype, "rows", strides=[te.var("stride"), 1])
    element, bits = f"int{dtypes.info(dtype).bits}", dtypes.info(dtype).bits

    def body(ins: list[TileBuffer], outs: list[TileBuffer]) -> Stmt:
        loaded = [reinterpret(f"{element}x{lanes}", ins[0].vload([t, 0], f"{dtype}x{lanes}")) for t in range(group)]
        return outs[0].vstore([0, 0], reinterpret(f"{dtype}x{lanes * group}", _interleaved(loaded, lanes, bits)))

    return decl_tensor_intrin(out.op, body, f"weave.{dtype}x{lanes}x{group}", binds={rows: strided})


@cache
def _turn(dtype: str, group: int, lanes: int) -> TensorIntrin:
    """A square of words turned around: column by column what lay row by row."""
    wide = lanes * group
    rows = te.placeholder((lanes, wide), dtype, "rows")
    out = te.compute((lanes, lanes, group), lambda w, j, t: rows[j, w * group + t], name="out")
    apart = decl_buffer(rows.shape, dtype, "rows", strides=[te.var("stride"), 1])
    turned = decl_buffer(out.shape, dtype, "out", strides=[te.var("step"), group, 1])
    vector = f"int{WORD}x{lanes}"

    def body(ins: list[TileBuffer], outs: list[TileBuffer]) -> Stmt:
        loaded = [reinterpret(vector, ins[0].vload([j, 0], f"{dtype}x{wide}")) for j in range(lanes)]
        square = _interleaved(loaded, lanes, WORD)
        name = f"llvm.vector.extract.v{lanes}i{WORD}.v{lanes * lanes}i{WORD}"
        columns = [call_llvm_intrin(vector, name, square, te.const(w * lanes, "int64")) for w in range(lanes)]
        return stmt_seq(
            *(outs[0].vstore([w, 0, 0], reinterpret(f"{dtype}x{wide}", part)) for w, part in enumerate(columns))
        )

    return decl_tensor_intrin(out.op, body, f"turn.{dtype}x{lanes}x{group}", binds={rows: apart, out: turned})


def _interleaved(vectors: list[Expr], lanes: int, bits: int) -> Expr:
    """One vector of all first elements, all second ones, and so on, of a power of two of vectors."""
    parts, wide = vectors, lanes
    while len(parts) > 1:
        half, wide = len(parts) // 2, wide * 2
        name = f"llvm.vector.interleave2.v{wide}i{bits}"
        parts = [call_llvm_intrin(f"int{bits}x{wide}", name, *pair) for pair in zip(parts[:half], parts[half:])]
    return parts[0]
