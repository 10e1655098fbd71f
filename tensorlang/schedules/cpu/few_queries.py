"""Attention of few queries: keys and values are read once, as they lie and in order, as fast as memory gives them.

Where many queries share the keys of a head, panels are laid out for them, whose lanes are keys. For a few that costs
more than all of their products, so a key is multiplied where it lies, lanes along its depth, and the lanes of some keys
and all queries are added up as a tree. Values are added up for all columns at once: machines read ahead what is read in
order, and without pauses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import gcd, prod

from tensorlang import dtypes
from tensorlang.ir.expr import Buffer, Load, variables, walk
from tensorlang.ir.loops import REDUCE_TREE
from tensorlang.schedule import Schedule
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.narrow_product import PAIRS, PAIRS_OF_ROWS, dot_of_pairs
from tensorlang.schedules.cpu.points import run_in_parallel
from tensorlang.schedules.cpu.register_tile import MANY
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.cpu.weighing import CHAINS, EACH, weigh_inside
from tensorlang.schedules.room import Room
from tensorlang.te.axis import extent_of
from tensorlang.te.intrinsic import TensorIntrin
from tensorlang.te.operation import ComputeOp, Operation, loads
from tensorlang.te.tags import KEYS, MERGED, MIXED, SCALED, SCORE

_TILE = 16
"""Vectors of mixed values that stay in registers, where those of whole rows are more than there are registers."""
_JAM = 4
"""Keys whose values are added up in one step there."""
_AHEAD, _FAR, _BUSY = 4096, 16384, 8
"""Bytes of pages that are fetched ahead into the first cache, and into the second, and from how many products of
vectors for a line on rows in order are, too: memory waits for those then, and is not asked in time.
"""
_LINE, _BURST = 64, 4
"""Bytes of a line, and rows that are fetched at once, at most: more of them hold up what is read meanwhile."""
_STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Steps over keys from one to those that are fetched meanwhile."""
_PAGE = 16
"""Keys of a page of a cache, about."""
_KEYS = (16, 32, 64, 128, 256)
"""Keys whose values are added up for some columns after the others."""


def are_few(queries: int | None, depth: int | None, lanes: int) -> bool:
    """Whether sums across the lanes of so many queries cost less than keys that are turned around."""
    return queries is not None and depth is not None and depth % lanes == 0 and queries <= max(1, depth // lanes)


def schedule_few(room: Room, anchor: Anchor, part: Mapping[str, str], keys: Buffer, bits: int) -> None:
    """Heads outside, in parallel; inside them one part after the other, for all queries, a block of keys at a time."""
    s, lanes = room.s, room.target.lanes(bits)
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    host, loop = anchor.output, _heads(room, anchor, keys)
    if MERGED in part:
        host, loop = _merge(room, part[MERGED], host, loop, keys)
    _mix(room, part[MIXED], host, loop, lanes)
    weigh_inside(s, part, host, loop, lanes)
    _score(room, part, keys, lanes)


def _heads(room: Room, anchor: Anchor, keys: Buffer) -> str:
    """The loops of the output; the one over heads, all of them fused."""
    out = room.s[anchor.output]
    *outer, i, d = out.op.axis
    out.vectorize(d)
    if not outer:
        around, _ = out.split(i, nparts=1)
        return str(around)
    return run_in_parallel(room.s, anchor.output, [axis.name for axis in outer], room.target, _work(keys))


def _work(keys: Buffer) -> int:
    """The products of a query and the keys of a head, which may lie in several pages."""
    *pages, _, rows, depth = (1, 1, *(extent_of(n) or MANY for n in keys.shape))
    return prod(pages) * rows * depth


def _merge(room: Room, merged: str, output: str, heads: str, keys: Buffer) -> tuple[str, str]:
    """Merge blocks of keys; the stage that does, and its loop over them. Threads share the blocks of few heads."""
    s = room.s
    pieces = _pieces(room, s.program[merged])
    s[merged].compute_at(s[output], heads)
    s[merged].set_scope("local")
    if pieces > 1:
        outer, _ = s[merged].split(s[merged].op.reduce_axis[0], nparts=pieces)
        part = partial_results(s, merged, outer.name, 0)
        _blocks_outside(s, merged)
        merged = part
    loop = _blocks_outside(s, merged)
    if pieces > 1:
        *around, _, _ = (axis.name for axis in s[merged].op.axis)
        run_in_parallel(s, merged, around, room.target, _work(keys))
    return merged, loop


def _blocks_outside(s: Schedule, merged: str) -> str:
    """The loop over blocks of a stage that merges them, for whole rows of vectors at a time."""
    stage = s[merged]
    *outer, i, d = stage.op.axis
    (b,) = stage.op.reduce_axis
    stage.reorder(*outer, b, i, d)
    stage.vectorize(d)
    return str(b.name)


def _pieces(room: Room, merged: Operation) -> int:
    """Into how many pieces the keys of each head are cut: enough for the threads, if heads are too few."""
    assert isinstance(merged, ComputeOp)
    heads, blocks = (prod(extent_of(a.extent) or MANY for a in axes) for axes in (merged.axes[:-2], merged.reduce_axes))
    cores, is_known = room.target.cores, extent_of(merged.reduce_axes[0].extent) is not None
    if cores == 1 or heads % cores == 0 or heads >= EACH * cores or not is_known:
        return 1
    return min(blocks, cores)


def _mix(room: Room, mixed: str, host: str, loop: str, lanes: int) -> None:
    """Add up values: those of some keys for a tile of columns in registers, then for the next columns."""
    s, stage = room.s, room.s[mixed]
    values = _values_read(s, mixed)
    stage.compute_at(s[host], loop)
    stage.set_scope("local")
    *_, i, d = stage.op.axis
    (k,) = stage.op.reduce_axis
    dot = dot_of_pairs(s.program[mixed], PAIRS_OF_ROWS, room.target)
    queries, width = extent_of(i.extent) or MANY, extent_of(d.extent) or MANY
    is_busy = _products_of_line(values, queries, lanes, dot) >= _BUSY
    group = _group(queries, room.target.vector_registers // -(-width // lanes), is_busy)
    tile = width if group else max(1, _TILE // queries) * lanes
    jam = 2 if dot else 1 if group else _JAM
    usual = _KEYS[1] if 0 < group < queries else _KEYS[2]
    far, near = stage.split(k, factor=room.choose("mixed", _KEYS, usual), tail="peel")
    across, d = stage.split(d, factor=tile, tail="peel")
    near, row = stage.split(near, factor=jam, tail="peel")
    _fetch(room, (mixed, near.name), values, jam, "values", is_busy)
    vector, d = stage.split(d, factor=lanes, tail="peel")
    several, i = stage.split(i, factor=group or queries, tail="peel")
    if dot:
        stage.reorder(far, across, several, near, vector, i, d, row)
        stage.tensorize(d, dot)
    else:
        stage.reorder(far, across, several, near, row, vector, i, d)
        stage.unroll(row)
        stage.vectorize(d)
    for axis in (several, vector, i):
        stage.unroll(axis)


def _group(queries: int, most: int, is_busy: bool) -> int:
    """Queries whose values are added up in registers for whole rows, `most` of them; 0: for a tile of columns.

    Some keys are then read in order, and by the other queries from the first cache. What is fetched ahead need not be.
    """
    if queries <= most:
        return queries
    return 0 if most < 2 or is_busy else -(-queries // -(-queries // most))


def _score(room: Room, part: Mapping[str, str], keys: Buffer, lanes: int) -> None:
    """Multiply some keys where they lie with all queries: as many vectors as there are lanes, which a tree adds up.

    Scores lie by keys, so that a vector of them is whole, and are turned around before they are scaled.
    """
    s, score = room.s, room.s[part[SCORE]]
    panel = _score_loops(s, part[SCALED], lanes)
    if KEYS in part:
        s[part[KEYS]].compute_inline()
    _turn(s, part[SCORE], part[SCALED], panel)
    score.transform_layout(lambda *at: [*at[:-2], at[-1], at[-2]])
    dot = dot_of_pairs(s.program[part[SCORE]], PAIRS, room.target)
    _, lane = score.split(score.op.reduce_axis[0], factor=2 * lanes if dot else lanes)
    if dot:
        lane, _ = score.split(lane, factor=2)
    products = s[partial_results(s, part[SCORE], lane.name, len(score.op.axis))]
    *_, j, i = score.op.axis
    (lane,) = score.op.reduce_axis
    queries = extent_of(i.extent) or MANY
    tile_rows = lanes // gcd(lanes, queries)  # so that a tree has as many rows as lanes
    far, near = score.split(j, factor=tile_rows)
    near = score.fuse(near, i)
    score.reorder(far, near, lane)
    score.vectorize(near)
    score.pragma(lane, REDUCE_TREE)
    score.compute_at(s[part[SCALED]], panel)
    products.compute_at(score, far)
    for stage in (score, products):
        stage.set_scope("local")
    *_, j, i, lane = products.op.axis
    step, *pair = products.op.reduce_axis
    together = room.choose("keys", (1, 2, 4), max(1, min(4, CHAINS // queries // 2)))
    tile, j = products.split(j, nparts=1)
    far, near = products.split(j, factor=together)
    products.reorder(tile, far, step, near, i, lane, *pair)
    are_in_order = not _is_paged(s, products.name, keys)
    for axis in (*([far] if are_in_order else []), step, near, i):
        products.unroll(axis)
    if dot:
        products.tensorize(lane, dot)
    else:
        products.vectorize(lane)
    place, rows = (tile, tile_rows) if are_in_order else (far, together)
    is_busy = _products_of_line(keys, queries, lanes, dot) >= _BUSY and tile_rows <= _BURST
    _fetch(room, (products.name, place.name), keys, rows, "keys", is_busy, panel)


def _turn(s: Schedule, score: str, scaled: str, panel: str) -> None:
    """Copy scores that lie by keys, so that each query has a vector of them: all vectors are read, then taken apart."""
    turned = s[s.cache_read(score, "local", [scaled])]
    *around, i, j = turned.op.axis
    turned.compute_at(s[scaled], panel)
    turned.reorder(*around, j, i)
    turned.unroll(i)
    turned.vectorize(j)


def _products_of_line(array: Buffer, queries: int, lanes: int, dot: TensorIntrin | None) -> float:
    """How many products of vectors a line of an array takes part in."""
    return queries * _LINE / dtypes.info(array.dtype).bytes / lanes / (2 if dot else 1)


def _score_loops(s: Schedule, scaled: str, lanes: int) -> str:
    """The loops over the scores of a block: as many keys as lanes, for all queries; the loop over these."""
    stage = s[scaled]
    *_, i, j = stage.op.axis
    panel, j = stage.split(j, factor=lanes, tail="peel")
    stage.reorder(panel, i, j)
    stage.unroll(i)
    stage.vectorize(j)
    return panel.name


def _fetch(
    room: Room, place: tuple[str, str], array: Buffer, rows: int, size: str, is_busy: bool, pages: str = ""
) -> None:
    """Fetch rows of an array ahead in a loop of a stage: where data say where they lie, in a loop over `pages`.

    From far into the second cache before; so, too, rows in order that take longer to multiply than to read. Others are
    not unless asked: machines read ahead what is in order.
    """
    s, (stage, loop) = room.s, place
    is_paged = _is_paged(s, stage, array)
    along, rows = (pages, _PAGE) if is_paged and pages else (None, rows)
    step = rows * (extent_of(array.shape[-1]) or 1) * dtypes.info(array.dtype).bytes
    near, far = (max(1, distance // step) for distance in (_AHEAD, _FAR))
    wanted = {
        1: room.choose(f"{size}_ahead", (0, *_STEPS), near if is_paged else 0),
        2: room.choose(f"{size}_far", (0, *_STEPS), far if is_paged or is_busy else 0),
    }
    for level, ahead in wanted.items():
        if ahead:
            s.attempt(partial(s[stage].prefetch, array.name, loop, ahead, along, level=level))


def _is_paged(s: Schedule, stage: str, array: Buffer) -> bool:
    """Whether data say where the rows of an array that a stage reads lie."""
    op = s.program[stage]
    assert isinstance(op, ComputeOp)
    indices = (index for load in loads(op) if load.buffer.name == array.name for index in load.index)
    return any(isinstance(node, Load) for index in indices for node in walk(index))


def _values_read(s: Schedule, mixed: str) -> Buffer:
    op = s.program[mixed]
    assert isinstance(op, ComputeOp)
    return next(load.buffer for load in loads(op) if op.axes[-1].name in variables(load.index[-1]))
