"""The schedule of products of narrow numbers: a register tile of 32-bit sums, made by dot instructions.

The sums are whole panels wide, so that every tile is whole; the stage behind them takes the columns that there are,
together with what follows, as soon as a tile is done. Machines without such instructions run the same loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import ceil, prod

import numpy as np

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.ir.expr import Call, Select, walk
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.narrow_product import SUMS, WORD, Factors, narrow_factors, terms_of_word
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import axes_of, compute_op
from tensorlang.schedules.candidates import ROWS, powers, up_to
from tensorlang.schedules.cpu.matrix_tiles import (
    Pixels,
    Sums,
    has_tiles,
    multiply_tiles,
    panel_width,
    tiles_for,
    tiles_of,
)
from tensorlang.schedules.cpu.producers import anchor_of, place_producers
from tensorlang.schedules.cpu.product_plan import is_few_dots
from tensorlang.schedules.cpu.register_tile import MANY, fixed_width, whole_width
from tensorlang.schedules.product import product_of
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.recognise import Stage as Described
from tensorlang.schedules.room import Columns, Mask, Room
from tensorlang.schedules.words import data_and_panels
from tensorlang.target.llvm.instructions import Tiles
from tensorlang.target.llvm.requirements import check_requirements
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.operation import ComputeOp, Operation, loads

_INSTRUCTIONS = (
    "x86.avx512.vdpbf16ps",
    "x86.avx512.vpdpbusd",
    "x86.avx512.vpdpbusd.signed",
    "x86.avx2.vdpbf16ps",
    "x86.avx2.vpdpbusd",
    "x86.avx2.vpdpbusd.signed",
    "x86.avx2.vpmaddubsw.signed",
    "aarch64.neon.sdot",
    "aarch64.neon.udot",
    "aarch64.neon.usdot",
)
"""Wider ones first."""
_OF_PAIRS = (
    "x86.avx512.vdpbf16ps",
    "x86.avx512.vpdpwssd",
    "x86.avx512.vpmaddwd",
    "x86.avx2.vpdpwssd",
    "x86.avx2.vpmaddwd",
)
PAIRS, PAIRS_OF_ROWS = (tuple(f"{name}.{what}" for name in _OF_PAIRS) for what in ("pairs", "rows"))
"""Instructions that add up products of pairs of 16 bits: along the terms of a sum, and of neighbouring rows."""
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
        if (intrin.buffers["data"].dtype, intrin.buffers["kernel"].dtype) == (data, weight) and runs(intrin, target):
            return intrin
    return None


def runs(intrin: TensorIntrin, target: Target) -> bool:
    """Whether a target has what an intrinsic needs."""
    try:
        check_requirements(intrin.code("update"), target)
    except TargetError:
        return False
    return True


def dot_of_pairs(op: Operation, names: Sequence[str], target: Target) -> TensorIntrin | None:
    """The instruction that multiplies pairs of 16 bits, where a stage sums just such products, and a target has it."""
    assert isinstance(op, ComputeOp)
    if not target.can.native or any(isinstance(node, Select) for body in op.body for node in walk(body)):
        return None
    narrow, (terms,), across = sorted(load.buffer.dtype for load in loads(op)), op.reduce_axes, op.axes[-1]
    for intrin in map(te.intrin, names):
        sums = int(intrin.buffers["out"].shape[0])
        parts = ((terms, 2), (across, sums)) if names is PAIRS_OF_ROWS else ((terms, 2 * sums),)
        fits = sums == target.lanes(WORD) and narrow == sorted(intrin.buffers[factor].dtype for factor in "ab")
        whole = all((extent_of(axis.extent) or 1) % size == 0 for axis, size in parts)
        if fits and whole and runs(intrin, target):
            return intrin
    return None


def operand_dtype(data: str, weight: str, target: Target, sums: Sums | None = None) -> str | None:
    """The dtype in which a target multiplies data: their own, or for signed bytes unsigned; None: no dot does it.

    Tiles of a matrix unit take signed bytes as they are, where they make sums of these sizes.
    """
    if sums is not None and tiles_for(sums, data, weight, target) is not None:
        return data
    possible = (data, "uint8") if data == "int8" else (data,)
    return next((p for p in possible if dot_instruction(p, weight, target) is not None), None)


def panel_of(units: int | None, target: Target) -> int:
    """The columns of a panel that suit the registers of a target."""
    if has_tiles("int8", "int8", target):
        return panel_width(units or MANY)
    return whole_width(units or MANY, target, WORD)


def sums_of(factors: Factors, target: Target) -> Sums | None:
    """The sums over panels that make a product, for known sizes."""
    m, n, k = map(extent_of, factors.extents)
    if m is None or n is None or k is None:
        return None
    return Sums(m, 1, (1, 1), ceil(k / terms_of_word(factors.b.dtype)), panel_of(n, target))


def prepare_product(s: Schedule, name: str, target: Target) -> None:
    """Lay out the factors of a product for the dot instructions of a target, where it has them."""
    factors = narrow_factors(s.operation(name)) if compute_op(s, name).dtype in SUMS.values() else None
    if factors is None:
        return
    op, (m, n, k) = compute_op(s, name), map(extent_of, factors.extents)
    if dot_of_pairs(op, PAIRS, target) and is_few_dots(product_of(op), target):
        return
    operand = operand_dtype(factors.a.dtype, factors.b.dtype, target, sums_of(factors, target))
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


def plan_of(op: ComputeOp, target: Target, tiles: Tiles | None = None) -> Plan:
    """Choose the sizes for the sums of a product, with the rows of tiles of the matrix unit if it makes them."""
    m, panels, width = (extent_of(axis.extent) or MANY for axis in op.axes)
    depth = extent_of(op.reduce_axes[0].extent) or MANY
    data, weight = data_and_panels(op)
    row_bytes = depth * dtypes.info(data.buffer.dtype).bytes
    most = 8 if row_bytes % _PAGE == 0 else 12
    rows = fixed_width(m, width, target, WORD, most).rows if tiles is None else tiles.rows[0]
    cache_bytes = target.second_cache // 2
    block = max(1, cache_bytes // (depth * width * dtypes.info(weight.buffer.dtype).bytes))
    if target.cores == 1 or 2 * prod((m, panels, width, depth)) < _GRAIN:
        return Plan(rows, min(block, panels), "")
    count = ceil(m / rows)
    if count / (target.cores * ceil(count / target.cores)) >= _EVEN:
        return Plan(rows, min(block, panels), "rows")
    shares = target.cores * ceil(ceil(panels / block) / target.cores)
    return Plan(rows, ceil(panels / shares), "panels")


def fit_registers(room: Room, sums: Described, pixels: Sequence[str]) -> None:
    """Keep a tile of pixels (rows of a product) by a panel in registers."""
    registers, vectors = room.target.vector_registers, ceil(sums.extents[sums.spatial[-1]] / room.target.lanes(WORD))

    def fits(values: Columns) -> Mask:
        return np.asarray(prod(values[name] for name in pixels) * vectors + vectors + 1 <= registers)

    room.limit(f"the register tile fits {registers} vector registers", fits)


def schedule_product(room: Room, group: Group) -> None:
    """Schedule the sums, and what follows them, which is run behind each tile."""
    s, anchor, name = room.s, anchor_of(room, group), group.main.name
    place_producers(room, group, inline=False)
    target, tiles = room.target, tiles_of(group.main.op, Pixels(group.main.spatial[0]), room.target)
    plan = _decide(room, group.main, plan_of(group.main.op, target, tiles), tiles)
    local, stage = s[s.cache_write(name, "local") if tiles is None else name], s[name]
    i, panel, lane = (axis.name for axis in stage.op.axes)
    rows, row = stage.split(i, factor=plan.rows, tail="peel")
    block, inside = stage.split(panel, factor=plan.block)
    stage.reorder(block, rows, inside, row, lane)
    if tiles is not None:
        multiply_tiles(stage, tiles, [row], lane)
    else:
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


def _decide(room: Room, sums: Described, plan: Plan, tiles: Tiles | None) -> Plan:
    """The sizes of a tile: in an open room, candidates around those of the plan; tiles of the matrix unit are given."""
    m, panels, _ = (sums.extents[axis] for axis in sums.spatial)
    block = room.choose("block", powers(panels), plan.block)
    if tiles is not None:
        return replace(plan, block=block)
    rows = room.choose("rows", up_to(ROWS, m), plan.rows)
    fit_registers(room, sums, ("rows",))
    return replace(plan, rows=rows, block=block)


def sum_words(stage: Stage, target: Target, tile: Sequence[Axis] = ()) -> None:
    """Add up words: a word of data for each point of a `tile` of axes, times a row of words of a panel."""
    data, weight = (read.buffer for read in data_and_panels(stage.schedule.state.compute_op(stage.name)))
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
