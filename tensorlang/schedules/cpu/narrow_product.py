"""The schedule of products of narrow numbers: a register tile of 32-bit sums, made by dot instructions.

The sums are whole panels wide, so that every tile is whole; the stage behind them takes the columns that there are,
together with what follows, as soon as a tile is done. Machines without such instructions run the same loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, gcd, prod

from tensorlang import dtypes, te
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Call, Expr, variables, walk
from tensorlang.ir.stmt import Stmt
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.narrow_product import SUMS, WORD, narrow_factors
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.cpu.points import run_in_parallel, schedule_elementwise
from tensorlang.schedules.cpu.register_tile import MANY, fixed_width, whole_width
from tensorlang.target.llvm.requirements import check_requirements
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.machine import call_llvm_intrin, reinterpret, stmt_seq
from tensorlang.te.operation import ComputeOp, loads
from tensorlang.te.tensor_intrin import decl_tensor_intrin
from tensorlang.te.tile_buffer import TileBuffer, decl_buffer

_INSTRUCTIONS = (
    "x86.avx512.vdpbf16ps",
    "x86.avx512.vpdpbusd",
    "x86.avx2.vdpbf16ps",
    "x86.avx2.vpdpbusd",
    "aarch64.neon.sdot",
    "aarch64.neon.udot",
)
"""Wider ones first."""
_GRAIN = 1 << 20
"""Operations below which a second thread costs more than it brings."""
_PAGE = 4096
"""Rows that are so far apart share a few sets of the first cache."""
_EVEN = 0.9
"""Shares of the rows that are this even are not made more even by sharing out columns."""
_FEWEST_ROWS = 8
"""With fewer rows of data, laying out the weights takes longer than the product."""


def dot_instruction(data: str, weight: str, target: Target) -> TensorIntrin | None:
    """The widest instruction of a target that multiplies data and weights of these dtypes."""
    return _found(data, weight, target) if target.can.native else None


@cache
def _found(data: str, weight: str, target: Target) -> TensorIntrin | None:
    for name in _INSTRUCTIONS:
        intrin: TensorIntrin = te.intrin(name)
        if (intrin.buffers["data"].dtype, intrin.buffers["kernel"].dtype) == (data, weight) and _runs(intrin, target):
            return intrin
    return None


def _runs(intrin: TensorIntrin, target: Target) -> bool:
    try:
        check_requirements(intrin.code("update"), target)
    except TargetError:
        return False
    return True


def operand_dtype(data: str, weight: str, target: Target) -> str | None:
    """The dtype in which a target multiplies data: their own, or for signed bytes unsigned; None: no dot does it."""
    possible = (data, "uint8") if data == "int8" else (data,)
    return next((p for p in possible if dot_instruction(p, weight, target) is not None), None)


def panel_of(units: int | None, target: Target) -> int:
    """The columns of a panel that suit the registers of a target."""
    return whole_width(units or MANY, target, WORD)


def prepare_product(s: Schedule, name: str, target: Target) -> None:
    """Lay out the factors of a product for the dot instructions of a target, where it has them."""
    factors = narrow_factors(s.operation(name)) if compute_op(s, name).dtype in SUMS.values() else None
    if factors is None:
        return
    m, n, k = map(extent_of, factors.extents)
    operand = operand_dtype(factors.a.dtype, factors.b.dtype, target)
    if operand is not None and n is not None and k is not None and (m or MANY) >= _FEWEST_ROWS:
        s[name].narrow_product(panel_of(n, target), operand)


@dataclass(frozen=True, slots=True)
class Plan:
    """`rows` of a register tile; `block`: panels that stay in the second cache; `shared`: the loop that threads share,
    over `rows` or `panels`, if any.
    """

    rows: int
    block: int
    shared: str


def plan_of(op: ComputeOp, target: Target) -> Plan:
    """Choose the sizes for the sums of a product."""
    m, panels, width = (extent_of(axis.extent) or MANY for axis in op.axes)
    depth = extent_of(op.reduce_axes[0].extent) or MANY
    data, weight = loads(op)
    row_bytes = depth * dtypes.info(data.buffer.dtype).bytes
    rows = fixed_width(m, width, target, WORD, 8 if row_bytes % _PAGE == 0 else 12).rows
    cache_bytes = target.caches[min(1, len(target.caches) - 1)] // 2
    block = max(1, cache_bytes // (depth * width * dtypes.info(weight.buffer.dtype).bytes))
    if target.cores == 1 or 2 * prod((m, panels, width, depth)) < _GRAIN:
        return Plan(rows, min(block, panels), "")
    tiles = ceil(m / rows)
    if tiles / (target.cores * ceil(tiles / target.cores)) >= _EVEN:
        return Plan(rows, min(block, panels), "rows")
    shares = target.cores * ceil(ceil(panels / block) / target.cores)
    return Plan(rows, ceil(panels / shares), "panels")


def schedule_narrow(s: Schedule, anchor: Anchor) -> None:
    """Schedule the sums, and what follows them, which is run behind each tile."""
    op = compute_op(s, anchor.main)
    name = loads(op)[0].buffer.name
    sums = compute_op(s, name)
    plan, target = plan_of(sums, anchor.target), anchor.target
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    local, stage = s[s.cache_write(name, "local")], s[name]
    i, panel, lane = (axis.name for axis in stage.op.axes)
    rows, row = stage.split(i, factor=plan.rows, tail="peel")
    block, inside = stage.split(panel, factor=plan.block)
    stage.reorder(block, rows, inside, row, lane)
    stage.unroll(row)
    stage.vectorize(lane)
    local.compute_at(stage, inside)
    sum_words(local, target, local.op.axis[:1])
    out = s[anchor.output]
    out.reverse_compute_at(stage, inside)
    *_, out_row, column = axes_of(s, anchor.output)
    out.vectorize(column)
    if not any(isinstance(node, Call) for body in out.op.body for node in walk(body)):
        out.unroll(out_row)
    if plan.shared != "rows":
        stage.fold_storage(name, 0, plan.rows)
    if plan.shared != "panels":
        stage.fold_storage(name, 1, 1)
    if plan.shared:
        stage.parallel(rows if plan.shared == "rows" else block)


def sum_words(stage: Stage, target: Target, tile: Sequence[Axis] = ()) -> None:
    """Add up words: a word of data for each point of a `tile` of axes, times a row of words of a panel."""
    data, weight = (read.buffer for read in loads(stage.schedule.state.compute_op(stage.name)))
    dot = dot_instruction(data.dtype, weight.dtype, target)
    lanes = target.lanes(WORD) if dot is None else int(dot.buffers["out"].shape[0])
    *axes, lane = stage.op.axis
    around, (*windows, terms) = [axis for axis in axes if axis not in tile], stage.op.reduce_axis
    word, term = stage.split(terms, factor=extent_of(weight.shape[-1]))
    vector, inner = stage.split(lane, factor=lanes)
    if dot is not None and (extent_of(lane.extent) or 1) % lanes == 0:
        stage.reorder(*around, *windows, word, *tile, vector, inner, term)
        stage.tensorize(inner, dot)
    else:
        stage.reorder(*around, *windows, word, term, *tile, vector, inner)
        stage.vectorize(inner)
    for axis in (*tile, vector):
        stage.unroll(axis)


def schedule_sums(s: Schedule, anchor: Anchor) -> None:
    """Leave the sums to the stage that reads them."""


def schedule_moved(s: Schedule, anchor: Anchor) -> None:
    """Copy a factor before it is used: grown to whole words and panels, or moved to be unsigned."""
    schedule_elementwise(s, anchor.output, anchor.target)


def schedule_offsets(s: Schedule, anchor: Anchor) -> None:
    """Sum the columns as one more row of the product."""
    sum_words(s[anchor.main], anchor.target)


def schedule_panels(s: Schedule, anchor: Anchor) -> None:
    """Lay weights out in squares of words that are turned around, or in words made of neighbouring rows."""
    op = compute_op(s, anchor.output)
    (read,) = loads(op)
    stage, (panel, word, lane, term) = s[anchor.output], axes_of(s, anchor.output)
    words, width, group = (extent_of(axis.extent) or 1 for axis in op.axes[1:])
    lanes, outer = gcd(width, anchor.target.lanes(WORD)), panel
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
    run_in_parallel(s, anchor.output, [outer], anchor.target)


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
