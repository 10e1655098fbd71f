"""Attention on a GPU: a block computes some rows of queries of a head, all their scores in shared memory.

Scores of all keys, or of one block of keys after the other, are a product in registers like any other; their softmax
is reduced by the threads together; the mixed values stay in the registers of the thread that stores them. No score
goes to global memory.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Load, variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.cpu.attention import parts_of
from tensorlang.schedules.gpu.attention_tensor_cores import schedule_on_tensor_cores, tile_of
from tensorlang.schedules.gpu.block_tile import Threads, tiled
from tensorlang.schedules.gpu.product import filled, shared_factor, summed
from tensorlang.schedules.gpu.product_plan import MANY, ProductTile, Side, stages_of
from tensorlang.schedules.room import Room
from tensorlang.target.spec import GpuLimits, Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import loads
from tensorlang.te.tags import (
    GREATEST,
    INVERSE,
    KEYS,
    MERGED,
    MIXED,
    QUERIES,
    ROUNDED,
    SCALED,
    SCORE,
    TOTAL,
    VALUES,
    WEIGHT,
)

_ACROSS = 32
"""Threads along keys, and along values: a warp has the same rows of queries."""
_SHARED = 98304
"""Bytes of shared memory for scores and weights, with which two blocks are on a large multiprocessor at once."""
_SPARE = 24576
"""Bytes of shared memory for parts of queries, keys and values."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Rows of queries of a block; the tiles of scores and of mixed values that they are computed in."""

    scores: ProductTile
    mixing: ProductTile


def attention_tile(kept: int, width: int, bits: int, target: Target) -> AttentionTile:
    """As many rows as scores and weights of `kept` keys leave room for in shared memory."""
    limits = target.gpu or GpuLimits()
    room = min(limits.shared_bytes - _SPARE, _SHARED) // (2 * kept * bits // 8)
    rows = next((side for side in _ROWS if side.extent <= room), _ROWS[-1])
    columns = Side(1, 1, _ACROSS, max(w for w in (1, 2, 4) if w == 1 or _ACROSS * w <= kept))
    values = Side(1, 1, _ACROSS, max(w for w in (1, 2, 4, 8) if w == 1 or _ACROSS * w <= width))
    stages = stages_of(target)
    return AttentionTile(ProductTile(rows, columns, 8, stages), ProductTile(rows, values, 8))


_ROWS = (Side(1, 1, 8, 4), Side(1, 1, 4, 4), Side(1, 1, 4, 2), Side(1, 1, 4, 1), Side(1, 1, 2, 1), Side(1, 1, 1, 1))
"""Rows of queries, of up to eight warps."""


def schedule_attention(room: Room, anchor: Anchor) -> None:
    """Schedule an attention and what follows it."""
    s = room.s
    part = {compute_op(s, name).tag.removeprefix("attention"): name for name in parts_of(s, anchor.main)}
    on_tensor_cores = tile_of(s, anchor, part)
    if on_tensor_cores is not None:
        schedule_on_tensor_cores(s, anchor, part, on_tensor_cores)
        return
    bits = dtypes.info(compute_op(s, part[SCORE]).dtype).bits
    kept, width = (extent_of(compute_op(s, name).axes[-1].extent) or MANY for name in (part[SCALED], anchor.main))
    tile = attention_tile(kept, width, bits, anchor.target)
    if MERGED in part:  # copies ahead are proven inside the loop over blocks too, which takes long
        tile = replace(tile, scores=replace(tile.scores, stages=1))
    scores, mixed = _score_factors(s, part, tile.scores), _mixed_factors(s, part, tile.mixing)
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    out = s[anchor.output]
    *heads, i, d = axes_of(s, anchor.output)
    threads = tiled(
        out, {i: tile.mixing.rows, d: tile.mixing.columns}, [("blockIdx.y", heads), ("blockIdx.x", [i]), ("", [d])]
    )
    host, loop, place = out, threads.blocks["blockIdx.x"], threads.loop
    if MERGED in part:
        host = s[part[MERGED]]
        loop = place = _merged(host, out, threads)
    s[part[MIXED]].compute_at(host, place)
    _product(s, part[MIXED], mixed, tile.mixing, threads)
    if INVERSE in part:
        s[part[INVERSE]].compute_inline()
    for word in (TOTAL, WEIGHT, GREATEST, SCALED):
        s[part[word]].compute_at(host, loop)
        s[part[word]].set_scope("shared")
    for word in (TOTAL, GREATEST):
        _reduced(s[part[word]], threads)
    _weighted(s[part[WEIGHT]], threads)
    scaled = s[part[SCALED]]
    *outer, row, column = (axis.name for axis in scaled.op.axis)
    inside = tiled(scaled, {row: tile.scores.rows, column: tile.scores.columns}, [("", [*outer, row, column])])
    s[part[SCORE]].compute_at(scaled, inside.loop)
    _product(s, part[SCORE], scores, tile.scores, threads)


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor of a product, copied to shared memory, and from there to registers."""

    source: Buffer
    copy: str
    fragment: str
    transposed: bool
    side: Side


def _score_factors(s: Schedule, part: dict[str, str], tile: ProductTile) -> list[_Factor]:
    """Copy queries and keys for the product of scores, which is computed in whole tiles."""
    name = part[SCORE]
    op = compute_op(s, name)
    (c,), (*_, i, j) = op.reduce_axes, op.axes
    query, key = (next(read for read in loads(op) if axis.name in _used(read)) for axis in (i, j))
    factors = []
    if query.buffer.name != key.buffer.name:
        factors = [
            _factor(s, name, c.name, r, a.name, side) for r, a, side in ((query, i, tile.rows), (key, j, tile.columns))
        ]
        s[name].pad(i, tile.rows.extent)
        s[name].pad(j, tile.columns.extent)
    for word in (w for w in (QUERIES, KEYS) if w in part):
        s[part[word]].compute_inline()
    s[name].set_scope("local")
    return factors


def _mixed_factors(s: Schedule, part: dict[str, str], tile: ProductTile) -> list[_Factor]:
    """Copy values for the product with weights, which are in shared memory anyway."""
    name, weight = part[MIXED], part[WEIGHT]
    op = compute_op(s, name)
    (k,), (*_, i, d) = op.reduce_axes, op.axes
    value = next(read for read in loads(op) if d.name in _used(read))
    factor = _factor(s, name, k.name, value, d.name, tile.columns)
    for word in (w for w in (VALUES, ROUNDED) if w in part):
        s[part[word]].compute_inline()
    s[weight].pad(compute_op(s, weight).axes[-2], tile.rows.extent)
    s[name].pad(i, tile.rows.extent)
    s[name].pad(d, tile.columns.extent)
    s[name].set_scope("local")
    return [factor]


def _used(read: Load) -> set[str]:
    return {name for index in read.index for name in variables(index)}


def _factor(s: Schedule, reader: str, term: str, read: Load, across: str, side: Side) -> _Factor:
    copy, transposed = shared_factor(s, reader, term, read, across, side.extent)
    fragment = str(s.name_of(s.cache_read(copy, "local", [reader])))
    return _Factor(read.buffer, copy, fragment, transposed, side)


def _product(s: Schedule, name: str, factors: list[_Factor], tile: ProductTile, threads: Threads) -> None:
    """Sum a tile of a product in registers."""
    stage = s[name]
    rank, depth = len(stage.op.axis) - 2, extent_of(compute_op(s, name).reduce_axes[0].extent)
    step, term = summed(stage, tile, {rank: (rank,), rank + 1: (rank + 1,)}, rank, depth)
    for factor in factors:
        s[factor.fragment].compute_at(stage, term)
        s[factor.fragment].vectorize(s[factor.fragment].op.axis[-1])
        s[factor.copy].compute_at(stage, step)
        filled(s[factor.copy], factor.source, factor.transposed, factor.side, tile, threads, extent_of(step.extent))


def _merged(stage: Stage, out: Stage, threads: Threads) -> Axis:
    """Merge what blocks of keys give in the registers of the thread that stores it; returns the loop over blocks."""
    stage.compute_at(out, threads.loop)
    stage.set_scope("local")
    *outer, i, d = stage.op.axis
    b: Axis
    (b,) = stage.op.reduce_axis
    stage.reorder(*outer, b, i, d)
    stage.unroll(i)
    stage.unroll(d)
    return b


def _weighted(stage: Stage, threads: Threads) -> None:
    """Make rows of weights in shared memory, each by the threads along x."""
    across, down, _ = threads.extents
    *outer, i, k = stage.op.axis
    i_outer, i_inner = stage.split(i, factor=down)
    k_outer, k_inner = stage.split(k, factor=across)
    stage.reorder(*outer, i_outer, k_outer, i_inner, k_inner)
    stage.bind(i_inner, "threadIdx.y")
    stage.bind(k_inner, "threadIdx.x")


def _reduced(stage: Stage, threads: Threads) -> None:
    """Reduce rows in shared memory, each by the threads along x."""
    across, down, _ = threads.extents
    *outer, i = stage.op.axis
    (k,) = stage.op.reduce_axis
    i_outer, i_inner = stage.split(i, factor=down)
    k_outer, k_inner = stage.split(k, factor=across)
    stage.reorder(*outer, i_outer, i_inner, k_inner, k_outer)
    stage.bind(i_inner, "threadIdx.y")
    stage.bind(k_inner, "threadIdx.x")
