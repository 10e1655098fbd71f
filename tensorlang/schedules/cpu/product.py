"""The schedule of products of matrices: the loops around a micro-kernel.

A tile of the output is summed in registers. Around it run tiles of rows and columns inside a block of columns, whose
part of B is laid out in panels first where that pays, or read in place and fetched ahead. Deep products are summed in
parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Load, variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of, calls, compute_op
from tensorlang.schedules.candidates import ROWS, column_blocks, part_sizes, up_to, vector_widths
from tensorlang.schedules.cpu.dots import STREAMS, in_vectors, rows_share
from tensorlang.schedules.cpu.narrow_product import PAIRS, dot_of_pairs
from tensorlang.schedules.cpu.producers import anchor_of, place_producers
from tensorlang.schedules.cpu.product_plan import LEAST_DEPTH, Plan, Reading, is_far, plan_of
from tensorlang.schedules.cpu.register_tile import MANY
from tensorlang.schedules.product import Product, is_product, of_one_row, product_of
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room, as_index
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import Tensor

_Name = TypeVar("_Name", str, Axis)
_AHEAD = 16
"""Rows of a matrix that are fetched ahead while they are packed."""

_STEPS_AHEAD = 64
"""Steps that panels which come from far are fetched ahead."""
_TILES_AHEAD = 2
"""Tiles of columns that a B which is read in place is fetched ahead."""
_WRITTEN_OUT = 8
"""Steps that are written out side by side; more of them are a loop."""


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops of the stage that is cut into tiles: over what a packed copy of B is made for, over tiles of rows and of
    columns, and the inner of those two.
    """

    around: Axis
    rows: Axis
    columns: Axis
    tile: Axis


def product_forms(target: Target, group: Group) -> list[Form]:
    """The form of a product of matrices, over any sum; none for other stages."""
    if not is_product(group.main.op):
        return []
    plan = plan_of(of_one_row(product_of(group.main.op)), target)
    why = f"a product of matrices, the second read {plan.reading.value}"
    return [Form("product", partial(_schedule, group=group), why=why)]


def _schedule(room: Room, group: Group) -> None:
    """Schedule a product and what follows it; parts of the output run in parallel."""
    s, anchor = room.s, anchor_of(room, group)
    product = of_one_row(product_of(compute_op(s, anchor.main)))
    plan = _decide(room, product, plan_of(product, room.target))
    (_schedule_dots if plan.reading is Reading.DOTS else _schedule_tiles)(s, anchor, product, plan)
    place_producers(room, group, inline=False)


def _decide(room: Room, product: Product, plan: Plan) -> Plan:
    """The sizes of a product: in an open room, candidates around those of the plan."""
    lanes, n, tile = room.target.lanes(product.bits), product.n or MANY, plan.tile
    rows = room.choose("rows", up_to(ROWS, product.m or MANY), tile.rows)
    if plan.reading is Reading.DOTS:
        columns = room.choose("columns", up_to(ROWS, n), tile.width)
        registers = room.target.vector_registers
        room.limit(
            f"the register tile fits {registers} vector registers",
            lambda v: np.asarray(v["rows"] * v["columns"] + v["rows"] + v["columns"] <= registers),
        )
        return replace(plan, tile=replace(tile, rows=rows, width=columns))
    width = room.choose("width", vector_widths(n, lanes) if product.packed_width is None else (), tile.width)
    block = room.choose("block", column_blocks(n, lanes), plan.block)
    depth, terms = plan.depth, product.depth or MANY
    if depth is not None:
        depth = room.choose("depth", part_sizes(terms, LEAST_DEPTH), depth)
    room.limit_tile(product.bits, ("rows",), "width", "unroll")
    room.limit("blocks are whole tiles", lambda v: np.asarray(v["block"] % v["width"] == 0))
    return replace(plan, tile=replace(tile, rows=rows, width=width), block=block, depth=depth)


def _schedule_tiles(s: Schedule, anchor: Anchor, product: Product, plan: Plan) -> None:
    """Sum register tiles, inside blocks of columns."""
    local = accumulator(s, anchor) if plan.depth is None else _in_parts(s, anchor.main, product.k, plan.depth)
    block, loops = _tile_loops(s, anchor, product, plan)
    host = s[anchor.output if plan.depth is None else anchor.main]
    k = _micro_kernel(s[local], host, product, loops.tile, plan.steps)
    if plan.reading is Reading.FETCHED:
        tiles = 1 if product.packed_width else _TILES_AHEAD
        s[local].prefetch(product.b.buffer.name, k, tiles, along=loops.columns, shared=loops.rows)
    elif product.packed_width is not None:
        _fetch_ahead(s[local], product.b.buffer.name, k, plan)
    if plan.shared == "columns":
        s[anchor.output].parallel(block)
    if plan.shared == "rows":
        host.parallel(loops.rows)
    if plan.reading is Reading.PANELS:
        _pack_columns(s, local, product, plan, host, loops)
    if plan.pack_a:
        _pack_rows(s, local, product, plan, k)


def _schedule_dots(s: Schedule, anchor: Anchor, product: Product, plan: Plan) -> None:
    """Sum vectors along the terms, for a tile of dot products at a time, and each vector at the end."""
    if plan.tile.rows == plan.tile.width == 1:
        _schedule_rows(s, anchor, product, plan)
        return
    total, out = accumulator(s, anchor), s[anchor.output]
    dot, lanes = dot_of_pairs(s.program[total], PAIRS, anchor.target), anchor.target.lanes(product.bits)
    _, lane = s[total].split(product.k, factor=2 * lanes if dot else lanes)
    if dot:
        lane, _ = s[total].split(lane, factor=2)
    partial = s[s.rfactor(total, lane, factor_axis=len(s[total].op.axis))]
    partial.set_scope("local")
    *batch, rows, columns = axes_of(s, anchor.output)
    rows_outer, row = out.split(rows, factor=plan.tile.rows, tail="peel")
    columns_outer, column = out.split(columns, factor=plan.tile.width, tail="peel")
    by_rows = (product.m or MANY) > (product.n or MANY)
    outer, inner = (rows_outer, columns_outer) if by_rows else (columns_outer, rows_outer)
    out.reorder(*batch, outer, inner, row, column)
    if batch and extent_of(outer.extent) is not None:
        outer = out.fuse(*batch, outer)
    for stage in (s[total], partial):
        stage.compute_at(out, inner)
    *_, i, j = s[total].op.axis
    for tile, x, y in ((out, row, column), (s[total], i, j)):
        tile.unroll(x)
        tile.vectorize(y)
    *around, i, j, lane = partial.op.axis
    step, *pair = partial.op.reduce_axis
    partial.reorder(*around, step, i, j, lane, *pair)
    for axis in (i, j):
        partial.unroll(axis)
    if dot:
        partial.tensorize(lane, dot)
    else:
        partial.vectorize(lane)
    if is_far(product, anchor.target):
        once = product.a if by_rows else product.b
        partial.prefetch(once.buffer.name, step, 1, along=outer, shared=inner, level=2)
    if plan.shared:
        out.parallel(outer)


def _schedule_rows(s: Schedule, anchor: Anchor, product: Product, plan: Plan) -> None:
    """Sum one dot product after the other, several vectors of its terms at a time: rows are read in their order.

    Where a row and what it is multiplied with fill the first cache, four of them at a time share the latter. They lie a
    vector of rows apart, so that each goes on where it ended. What follows the sums is made for a vector of them.
    """
    total, out = s[accumulator(s, anchor)], s[anchor.output]
    *batch, i, j = axes_of(s, anchor.output)
    few, many = (i, j) if (product.m or MANY) <= (product.n or MANY) else (j, i)
    lanes = anchor.target.lanes(product.bits)
    loops = in_vectors(out, [*batch, few, many], many, lanes)
    side_by_side = _fill_the_first_cache(product, anchor.target)
    if side_by_side:
        loops[-1], vector = map(str, out.split(loops[-1], factor=STREAMS, tail="peel"))
        out.unroll(vector)
    is_known = extent_of(s.state.axis(anchor.output, loops[-1]).extent) is not None
    loop = out.fuse(*loops) if is_known else loops[-1]
    total.compute_at(out, loop)
    term = total.op.reduce_axis[0]
    if side_by_side:
        stream, row = total.split(total.op.axis[-1 if many == j else -2], factor=lanes)
        total.reorder(row, term, stream)
        total.unroll(stream)
    total.pragma(term, "reduce_tree")
    if plan.shared:
        out.parallel(loop)


def _fill_the_first_cache(product: Product, target: Target) -> bool:
    """Whether a row of the longer side and the other's only one leave no room for each other in the first cache."""
    few, many = min(product.m or MANY, product.n or MANY), max(product.m or 0, product.n or 0)
    row = (product.depth or MANY) * sum(dtypes.info(read.buffer.dtype).bytes for read in (product.a, product.b))
    return few == 1 and rows_share(many, row, product.bits, target)


def _in_parts(s: Schedule, main: str, k: str, depth: int) -> str:
    """Sum parts of the terms in a stage of their own; returns its name."""
    part, _ = s[main].split(k, factor=depth)
    local = str(s.name_of(s.rfactor(main, part)))
    s[local].set_scope("local")
    return local


def _tile_loops(s: Schedule, anchor: Anchor, product: Product, plan: Plan) -> tuple[Axis, Loops]:
    """Cut the output into blocks of columns, and those into register tiles; returns the block and the loops in it."""
    out = host = s[anchor.output]
    *batch, i, j = _in_roles(product, axes_of(s, anchor.output))
    inner: Axis | str
    block, inner = out.split(j, factor=plan.block, tail="peel" if _ends_apart(s, anchor, plan, j) else "guard")
    out.reorder(*batch, block, i, inner)
    if batch and plan.shared == "columns" and extent_of(block.extent) is not None:
        block, batch = out.fuse(*batch, block), []
    if plan.depth is not None and anchor.main != anchor.output:
        out.vectorize(inner)
        host = s[anchor.main]
        host.compute_at(out, block)
        *batch, i, inner = _in_roles(product, axes_of(s, anchor.main))
    rows, i_inner = host.split(i, factor=plan.tile.rows, tail="peel")
    tile, j_inner = host.split(inner, factor=plan.tile.width, tail="peel")
    parts = [] if plan.depth is None else list(host.op.reduce_axis)
    blocks = [block] if host is out else []
    tiles = [tile, rows] if plan.reading is Reading.FETCHED else [rows, tile]
    host.reorder(*batch, *blocks, *parts, *tiles, i_inner, j_inner)
    if not calls(host):  # a function in every row of a tile is a lot of code
        host.unroll(i_inner)
    host.vectorize(j_inner)
    return block, Loops(parts[0] if parts else block, rows, tile, tiles[-1])


def _ends_apart(s: Schedule, anchor: Anchor, plan: Plan, j: str) -> bool:
    """Whether the last block of columns gets a nest of its own: registers of its own, but one thread for all of it."""
    if plan.block != plan.tile.width:
        return False
    columns = extent_of(s.state.axis(anchor.output, j).extent) or 0
    return plan.shared != "columns" or columns % plan.block < plan.tile.width // plan.tile.vectors


def _in_roles(product: Product, axes: Sequence[_Name]) -> list[_Name]:
    """The axes of a stage, those of rows and of columns last."""
    *batch, i, j = axes
    return [*batch, j, i] if product.turned else [*batch, i, j]


def _micro_kernel(local: Stage, host: Stage, product: Product, tile: Axis, count: int) -> Axis:
    """Sum a tile in registers: one step of k multiplies a column of A with a row of B. Returns the loop over steps."""
    local.compute_at(host, tile)
    *outer, i, j = _in_roles(product, local.op.axis)
    steps: list[Axis] = [*local.op.reduce_axis]
    if count > 1:
        steps = list(local.split(steps[0], factor=count, tail="peel"))
    if 1 < count <= _WRITTEN_OUT:
        local.unroll(steps[-1])
    local.reorder(*outer, *steps, i, j)
    local.unroll(i)
    local.vectorize(j)
    return steps[0]


def _fetch_ahead(local: Stage, panels: Tensor | str, k: Axis, plan: Plan) -> None:
    """Prefetch panels that come from far: the prefetcher of the machine stops at every page."""
    local.prefetch(panels, k, max(1, _STEPS_AHEAD // plan.steps))


def _pack_columns(s: Schedule, local: str, product: Product, plan: Plan, host: Stage, loops: Loops) -> None:
    """Lay the part of B that a block needs out in panels of the tile's width, each contiguous as it is read."""
    packed = s[s.cache_read(product.b.buffer.name, "global", [local])]
    panel, k, lane = _panels(packed, product.b, product.j, product.k, plan.tile.width)
    packed.compute_at(host, loops.around)
    if product.b_transposed:
        packed.reorder(panel, lane, k)  # k inside the lanes: rows are read along k and transposed in registers
    else:
        packed.reorder(k, panel, lane)
        packed.prefetch(product.b.buffer.name, k, _AHEAD)
    packed.vectorize(lane)
    if plan.shared == "rows":
        packed.parallel(panel if product.b_transposed else k)


def _pack_rows(s: Schedule, local: str, product: Product, plan: Plan, k: Axis) -> None:
    """Lay A out in panels of the tile's rows, and fetch them ahead where they are read."""
    copy = s.cache_read(product.a.buffer.name, "global", [local])
    packed = s[copy]
    panel, term, lane = _panels(packed, product.a, product.i, product.k, plan.tile.rows)
    if product.a_transposed:
        packed.prefetch(product.a.buffer.name, term, _AHEAD)
    else:
        packed.reorder(panel, lane, term)
    packed.vectorize(lane)
    if plan.shared:
        packed.parallel(panel)
    if plan.reading is not Reading.FETCHED:
        _fetch_ahead(s[local], copy, k, plan)


def _panels(packed: Stage, read: Load, along: str, term: str, width: int) -> tuple[Axis, Axis, Axis]:
    """Store a copied matrix as panels of an axis that a read moves along; returns the axes of panels, terms, lanes."""
    size = as_index(width)
    x, k = (next(d for d, i in enumerate(read.index) if axis in variables(i)) for axis in (along, term))

    def panels(*index: Expr) -> list[Expr]:
        others = [i for d, i in enumerate(index) if d not in (x, k)]
        return [*others, index[x] // size, index[k], index[x] % size]

    panel, terms, lane = packed.transform_layout(panels)[-3:]
    return panel, terms, lane
