"""Products of matrices on a GPU: tiles of both factors in shared memory, a tile of the output in registers."""

from __future__ import annotations

from math import gcd, prod

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Load, variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of, compute_op
from tensorlang.schedules.gpu.block_tile import Threads, compact, copied_together, tiled
from tensorlang.schedules.gpu.parts import schedule_in_parts
from tensorlang.schedules.gpu.product_plan import (
    LEAST_COPY,
    ProductTile,
    Side,
    cores_of,
    is_thin,
    lanes_of_copy,
    product_tile,
    rows_together,
)
from tensorlang.schedules.gpu.reductions import schedule_reduction
from tensorlang.schedules.gpu.tensor_cores import fragment_tile, schedule_fragments
from tensorlang.schedules.product import product_of
from tensorlang.schedules.room import Room
from tensorlang.te.axis import Axis, extent_of

_PAD = 4
"""Elements between rows of a transposed tile, so that lanes that store a column do not meet on a bank."""
_WRITTEN_OUT = 8
"""Terms that are written out side by side."""


def schedule_product(room: Room, anchor: Anchor) -> None:
    """Schedule a product and what follows it; with few rows or columns, as many sums, each made by several threads."""
    s = room.s
    product = product_of(compute_op(s, anchor.main))
    if is_thin(product.m, product.n) or product.a.buffer.name == product.b.buffer.name:
        schedule_reduction(room, anchor)
        return
    warp_tile = fragment_tile(s, anchor)
    if warp_tile is not None:
        schedule_fragments(s, anchor, warp_tile)
        return
    narrow = dtypes.info(product.a.buffer.dtype).bits
    terms = None if product.batch else product.depth
    tile = product_tile(product.m, product.n, product.batches, product.bits, narrow, anchor.target, terms)
    if tile.parts > 1 and product.depth:
        schedule_in_parts(s, anchor, product.depth // tile.parts, lambda part: schedule_product(room, part))
        return
    local = accumulator(s, anchor)
    sides = (tile.rows, tile.columns)
    reads = ((product.a, product.i), (product.b, product.j))
    shared = [
        shared_factor(s, local, product.k, read, name, side.extent)
        for (read, name), side in zip(reads, sides, strict=True)
    ]
    for (_, name), side in zip(reads, sides, strict=True):
        s[local].pad(name, side.extent)
    fragments = [s.cache_read(copy, "local", [local]) for copy, _ in shared]
    panels = product.packed_width is not None
    for fragment, side in zip(fragments[: 1 if panels else 2], sides, strict=False):
        compact(s[fragment], {len(s[fragment].op.axis) - 1: side})
    rank = len(product.batch)
    where = compact(s[local], {rank: tile.rows, rank + 1: tile.columns})
    out = s[anchor.output]
    *batch, i, j = axes_of(s, anchor.output)
    grid = [("blockIdx.z", batch), ("blockIdx.y", [i]), ("blockIdx.x", [j])]
    block, cores = (tile.rows.extent, tile.columns.extent), cores_of(anchor.target)
    together = rows_together(product.m, product.n, block, cores)
    threads = tiled(out, {i: tile.rows, j: tile.columns}, grid, together)
    s[local].compute_at(out, threads.loop)
    outer, step = summed(s[local], tile, where, rank, product.depth)
    for fragment in fragments:
        s[fragment].compute_at(s[local], step)
        *_, run = s[fragment].op.axis
        s[fragment].vectorize(run)
    for (copy, transposed), (read, _), side in zip(shared, reads, sides, strict=True):
        s[copy].compute_at(s[local], outer)
        filled(
            s[copy], read.buffer, transposed, side, tile, threads, extent_of(outer.extent), panels and read is product.b
        )


def shared_factor(s: Schedule, local: str, k: str, read: Load, across: str, extent: int) -> tuple[str, bool]:
    """Copy a factor to shared memory as [batch, term, row or column]; whether its terms were side by side before.

    The copy has zeros up to a multiple of the extent of a tile. Columns in panels stay two dimensions.
    """
    copy = str(s.name_of(s.cache_read(read.buffer.name, "shared", [local])))
    (term,), own = ([d for d, e in enumerate(read.index) if name in variables(e)] for name in (k, across))
    inside = prod(extent_of(read.buffer.shape[d]) or 1 for d in own[1:])
    s[copy].pad(s[copy].op.axis[own[0]], extent // gcd(extent, inside))
    rest = [d for d in range(len(read.index)) if d != term and d not in own]

    transposed = term == len(read.index) - 1
    if transposed or len(own) > 1:
        s[copy].transform_layout(lambda *index: [index[d] for d in (*rest, term, *own)])
    return copy, transposed


def summed(
    stage: Stage, tile: ProductTile, where: dict[int, tuple[int, ...]], rank: int, depth: int | None
) -> tuple[Axis, Axis]:
    """Sum a tile in registers, term by term; returns the loops over steps and over their terms."""
    axes = list(stage.op.axis)
    outer, term = stage.split(stage.op.reduce_axis[0], factor=tile.depth)
    held = [*where[rank], *where[rank + 1]]
    stage.reorder(*axes[:rank], outer, term, *(axes[d] for d in held))
    if depth is not None:
        inner = term
        if tile.depth > _WRITTEN_OUT:
            term, inner = stage.split(term, factor=_WRITTEN_OUT)
            term = inner
        stage.unroll(inner)
    for d in held:
        stage.unroll(axes[d])
    return outer, term


def filled(
    copy: Stage,
    source: Buffer,
    transposed: bool,
    side: Side,
    tile: ProductTile,
    threads: Threads,
    steps: int | None,
    panels: bool = False,
) -> None:
    """Let the threads of a block fill a tile in the order in which the factor lies in global memory.

    `steps`: how many tiles the loop fills one after the other, if it is known.
    """
    term, *places = copy.op.axis[-3 if panels else -2 :]
    bits = dtypes.info(source.dtype).bits
    if transposed:
        copy.storage_align(term, side.extent, _PAD)
    stages = min(tile.stages, steps or tile.stages)
    ahead = stages > 1 and not (transposed and bits < LEAST_COPY)
    order = [*places, term] if transposed else [term, *places]
    lanes = lanes_of_copy(side.extent * tile.depth, threads.count, bits, extent_of(source.shape[-1]))
    # Asynchronous copies of elements: neighbouring threads take neighbouring ones, so that a warp asks for few lines.
    copied_together(copy, order, threads, 1 if transposed and ahead else lanes)
    if ahead:
        copy.pipeline(stages)
