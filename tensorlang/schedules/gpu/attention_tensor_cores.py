"""Attention on tensor cores: a warp has 16 rows of queries, and goes over all keys with what it needs in registers.

Keys and values of a block are copied to shared memory, swizzled and ahead; ldmatrix brings fragments of them to
registers, where those of the queries stay. The scores of a block are accumulators; the four lanes of a quad reduce
their rows, and each lane makes weights of its own scores, which lie as the left operand of the second product wants
them. What that gives is merged into the sums in the registers of the lane which stores them (FlashAttention: Dao et
al., 2022 and 2023). Neither scores nor weights are in memory.

Warp groups have 64 rows: wgmma reads queries, keys and values in shared memory, and weights in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang import te
from tensorlang.ir.expr import Const, Expr, Var, binary
from tensorlang.ir.simplify import simplify
from tensorlang.schedule import Schedule
from tensorlang.schedule.boxes import copies_boxes
from tensorlang.schedule.rewrites.attention import attention_of
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.cpu.attention import keys_read
from tensorlang.schedules.gpu.attention_tile import (
    CHUNK,
    COLUMNS,
    DEPTH,
    LINE,
    ROWS,
    AttentionTile,
    attention_tiles,
    is_swizzled,
)
from tensorlang.schedules.gpu.block_tile import Threads, copied_together
from tensorlang.schedules.gpu.tensor_cores import ELEMENTS, by_fragments, in_steps, load_fragments
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import loads
from tensorlang.te.tags import (
    CAUSAL,
    GREATEST,
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

_QUAD, _DOWN = 4, 8
"""Lanes along a row of accumulators, and down a column."""


def prepare_attention(s: Schedule, name: str, target: Target) -> None:
    """Take an attention in blocks, where a target has tensor cores for both products, and room for what they need."""
    asked = attention_of(s.operation(name)) if target.can.device else None
    if asked is None or asked.query.dtype != asked.value.dtype:
        return
    n, depth, width = map(extent_of, (asked.n, asked.query.shape[-1], asked.value.shape[-1]))
    tile = next(attention_tiles(target, asked.query.dtype, n, depth or 0, width or 0), None)
    if tile is not None:
        s[name].blocked_attention(tile.keys, tile.queries)


def tile_of(s: Schedule, anchor: Anchor, part: Mapping[str, str]) -> AttentionTile | None:
    """The tile of an attention that was blocked for tensor cores; None where the target has none for it."""
    if ROUNDED not in part:
        return None
    score, main = compute_op(s, part[SCORE]), compute_op(s, anchor.main)
    n, width, depth = (extent_of(axis.extent) for axis in (*main.axes[-2:], score.reduce_axes[0]))
    *_, rows, keys = score.axes
    (dtype,) = {load.buffer.dtype for load in loads(score)}
    tiles = attention_tiles(anchor.target, dtype, n, depth or 0, width or 0)
    fitting = (t for t in tiles if t.keys == extent_of(keys.extent) and _is_multiple(rows.extent, t.queries))
    return next(fitting, None)


def _is_multiple(extent: Expr, of: int) -> bool:
    """Whether an extent is known to be a multiple of a number."""
    match simplify(binary("floormod", extent, Const(of, extent.dtype))):
        case Const(value=0):
            return True
    return False


def schedule_on_tensor_cores(s: Schedule, anchor: Anchor, part: Mapping[str, str], tile: AttentionTile) -> None:
    """Schedule an attention by a tile of `tile_of`, and what follows it."""
    main, m = compute_op(s, anchor.main), keys_read(s, dict(part)).shape[-2]
    query, keys, values = _read(s, part)
    for word in (SCALED, WEIGHT):
        s[part[word]].compute_inline()
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    held = None if tile.in_groups else s[s.cache_read(query, "warp", [part[SCORE]])]
    for word in (SCORE, MIXED, ROUNDED):
        s[part[word]].set_scope("warp")
    threads, lane = _output(s, anchor.output, tile)
    merged, block, columns = _merged(s, part, s[anchor.output], lane, tile)
    s[part[MIXED]].compute_at(merged, columns)
    s[part[ROUNDED]].compute_at(merged, block)
    _weighted(s[part[ROUNDED]])
    for word in (TOTAL, GREATEST):
        _by_quads(s[part[word]], tile)
        s[part[word]].compute_at(merged, block)
    s[part[SCORE]].compute_at(merged, block)
    if held is not None:
        held.compute_at(s[anchor.output], threads.loop)
        load_fragments(held, f"cuda.ldmatrix.a.{_element(s, query)}")
    _copied(s, query, s[anchor.output], threads.blocks[QUERIES], threads, tile)
    for copy in (keys, values):
        _copied(s, copy, merged, block, threads, tile)
        if tile.stages > 1:
            s[copy].pipeline(tile.stages)
            if tile.in_groups and copies_boxes(s.state, copy):
                s[copy].bulk_copy()
    factors = [_product(s, part[MIXED], values, "", tile), _product(s, part[SCORE], keys, ".bt", tile)]
    if main.attrs[CAUSAL]:
        made = [part[word] for word in (SCORE, GREATEST, TOTAL, ROUNDED, MIXED)]
        loops = (f"{merged.name}.{block.name}", f"{anchor.output}.{threads.blocks[QUERIES].name}")
        _leave_out_unseen(s, [*made, *filter(None, factors), keys, values], loops, m - main.axes[-2].extent, tile)


def _leave_out_unseen(
    s: Schedule, stages: Sequence[str], loops: tuple[str, str], later: Expr, tile: AttentionTile
) -> None:
    """Compute nothing for blocks of keys that no query of a block sees; `loops` are those over keys and queries.

    `later`: how many more keys there are than queries.
    """
    b, i = (Var(name) for name in loops)
    for name in stages:
        s[name].set_store_predicate(b * tile.keys <= i * tile.queries + (tile.queries - 1) + later)


def _copied(s: Schedule, copy: str, host: Stage, place: Axis, threads: Threads, tile: AttentionTile) -> None:
    """Let the threads of a block copy a tile to shared memory, where eight chunks down a column lie in other banks."""
    *_, row, column = s[copy].op.axis
    s[copy].compute_at(host, place)
    width = extent_of(s.program.buffers[copy].shape[-1]) or 0
    if not is_swizzled(width):
        s[copy].storage_align(row, 2 * CHUNK, CHUNK)
    copied_together(s[copy], (row, column), threads, CHUNK)
    if is_swizzled(width):
        s[copy].swizzle(panels=tile.in_groups)


def _element(s: Schedule, factor: str) -> str:
    """What instructions call the elements of a factor."""
    return ELEMENTS[s.program.buffers[factor].dtype, "float32"]


def _read(s: Schedule, part: Mapping[str, str]) -> tuple[str, str, str]:
    """Copies in shared memory of queries, keys and values."""
    names = {load.buffer.name for load in loads(compute_op(s, part[SCORE]))} - {part[KEYS]}
    (query,) = names
    users = ((query, SCORE), (part[KEYS], SCORE), (part[VALUES], MIXED))
    copies = [str(s.name_of(s.cache_read(name, "shared", [part[user]]))) for name, user in users]
    for word in (w for w in (QUERIES, KEYS, VALUES) if w in part):
        s[part[word]].compute_inline()
    return copies[0], copies[1], copies[2]


def _output(s: Schedule, output: str, tile: AttentionTile) -> tuple[Threads, Axis]:
    """Blocks of queries, their teams along z, and the lanes of each along y and x as accumulators lie in them.

    Returns the threads with the loop over teams, and the loop over the last lanes.
    """
    *batch, i, j = axes_of(s, output)
    stage = s[output]
    block, row = stage.split(i, tile.queries)
    team, row = stage.split(row, tile.rows)
    rows, half = _down(stage, row)
    fragment, column = stage.split(j, COLUMNS)
    column, pair = stage.split(column, 2)
    stage.reorder(*batch, block, team, *rows, column, fragment, half, pair)
    down = stage.fuse(*rows)
    for axis, tag in ((block, "blockIdx.x"), (team, "threadIdx.z"), (down, "threadIdx.y"), (column, "threadIdx.x")):
        stage.bind(axis, tag)
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.y")
    for axis in (fragment, half):
        stage.unroll(axis)
    stage.vectorize(pair)
    return Threads((_QUAD, tile.lanes // _QUAD, tile.teams), team, {QUERIES: block}), column


def _down(stage: Stage, axis: Axis) -> tuple[list[Axis], Axis]:
    """Rows of a team: by lanes, those of a group in warps of 16, and the halves that each lane has."""
    warp, row = stage.split(axis, ROWS)
    half, row = stage.split(row, _DOWN)
    return [warp, row], half


def _merged(
    s: Schedule, part: Mapping[str, str], output: Stage, lane: Axis, tile: AttentionTile
) -> tuple[Stage, Axis, Axis]:
    """Merge blocks of keys in the registers of the lane that stores them; returns the loops over blocks and columns.

    What a lane holds is stored without what the others do: rows and columns as digits, those of lanes of extent 1.
    """
    stage, at_once = s[part[MERGED]], tile.at_once

    def digits(*index: Expr) -> list[Expr]:
        *batch, i, j = index
        column = j % at_once
        return [*batch, *_digits(i), j // at_once, column // COLUMNS, column % COLUMNS // 2, column % 2]

    axes = stage.transform_layout(digits)
    *batch, half, row, outer, fragment, column, pair = _by_lanes(stage, axes, 4, tile)
    stage.set_scope("local")
    stage.compute_at(output, lane)
    (block,) = stage.op.reduce_axis
    stage.reorder(*batch, block, outer, half, row, fragment, column, pair)
    for axis in (outer, half, fragment, pair):
        stage.unroll(axis)
    return stage, block, outer


def _digits(i: Expr) -> tuple[Expr, Expr, Expr]:
    """A row: the 16 of a warp that it is in, the half of them, and which of the eight."""
    return i // ROWS, i % ROWS // _DOWN, i % _DOWN


def _by_lanes(stage: Stage, axes: list[Axis], behind: int, tile: AttentionTile) -> list[Axis]:
    """Count the rows of a warp group, given as digits before the last axes, by the lanes that have them."""
    if not tile.in_groups:
        return axes

    def counted(*index: Expr) -> list[Expr]:
        (*batch, warp, half, row), rest = index[: len(index) - behind], index[len(index) - behind :]
        return [*batch, half, warp * _DOWN + row, *rest]

    return stage.transform_layout(counted)


def _weighted(stage: Stage) -> None:
    """Let each lane round weights of its own scores."""
    *batch, i, j = stage.op.axis
    row, half = _down(stage, i)
    fragment, column = stage.split(j, COLUMNS)
    column, pair = stage.split(column, 2)
    stage.reorder(*batch, *row, column, fragment, half, pair)
    stage.bind(stage.fuse(*row), "threadIdx.y")
    stage.bind(column, "threadIdx.x")
    for axis in (fragment, half):
        stage.unroll(axis)
    stage.vectorize(pair)


def _by_quads(stage: Stage, tile: AttentionTile) -> None:
    """Reduce rows of scores by the four lanes that hold each."""
    axes = stage.transform_layout(lambda *x: [*x[:-1], *_digits(x[-1])])
    *batch, half, row = _by_lanes(stage, axes, 0, tile)
    fragment, column = stage.split(stage.op.reduce_axis[0], COLUMNS)
    column, pair = stage.split(column, 2)
    stage.reorder(*batch, half, row, column, fragment, pair)
    stage.bind(column, "threadIdx.x")
    for axis in (half, fragment, pair):
        stage.unroll(axis)


def _product(s: Schedule, name: str, factor: str, turned: str, tile: AttentionTile) -> str:
    """Sum a tile of a product in registers, of a warp by fragments of the right factor that it brings there.

    Returns the stage of these, "" for none.
    """
    depth, element = extent_of(compute_op(s, name).reduce_axes[0].extent) or DEPTH, _element(s, factor)
    if tile.in_groups:
        columns, terms = (tile.keys, LINE) if turned else (tile.at_once, depth)
        held = "" if turned else ".ra"
        loops = in_steps(s[name], terms)
        s[name].tensorize(loops.tile, te.intrin(f"cuda.wgmma.m64n{columns}k{terms}.{element}{held}{turned}"))
        return ""
    fragments = s[s.cache_read(factor, "warp", [name])]
    loops = by_fragments(s[name], depth, DEPTH)
    fragments.compute_at(s[name], loops.inner)
    load_fragments(fragments, f"cuda.ldmatrix.{'bt' if turned else 'b'}.{element}")
    s[name].tensorize(loops.tile, te.intrin(f"cuda.mma.m16n8k16.{element}{turned}"))
    return str(fragments.name)
