"""Attention on tensor cores: a warp has 16 rows of queries, and goes over all keys with what it needs in registers.

Keys and values of a block are copied to shared memory, swizzled and ahead; ldmatrix brings fragments of them to
registers, where those of the queries stay. The scores of a block are accumulators; the four lanes of a quad reduce
their rows, and each lane makes weights of its own scores, which lie as the left operand of the second product wants
them. What that gives is merged into the sums in the registers of the lane which stores them (FlashAttention: Dao et
al., 2022 and 2023). Neither scores nor weights are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensorlang import te
from tensorlang.ir.expr import Expr, Var
from tensorlang.schedule import Schedule
from tensorlang.schedule.rewrites.attention import attention_of
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, axes_of, compute_op
from tensorlang.schedules.cpu.attention import TENSOR_CORE_KEYS, TENSOR_CORE_WIDTH, keys_read, query_tile
from tensorlang.schedules.gpu.block_tile import Threads, copied_together
from tensorlang.schedules.gpu.blocks import WARP, limits
from tensorlang.schedules.gpu.tensor_cores import ELEMENTS, by_fragments, load_fragments, multiplies
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

_ROWS, _COLUMNS, _DEPTH = 16, 8, 16
"""The tile of one mma.sync of 16-bit elements."""
_QUAD, _DOWN = 4, 8
"""Lanes along a row of accumulators, and down a column."""
_CHUNK = 8
"""Elements of one copy to shared memory."""
_LINE = 64
"""Elements that lie in all banks of shared memory."""
_AT_ONCE = (32, 16)
"""Columns of values that are mixed and merged at a time: their accumulators are free for the next ones then."""
_STAGES = 2
"""Blocks of keys and values that are in shared memory at once."""
_BYTES = 2
"""Bytes of an element."""
_HELD = 144
"""Registers for queries and for sums, beside which scores, weights and addresses fit the 255 of a thread."""


def fits(target: Target, n: int | None, depth: int, width: int) -> bool:
    """Whether a target has threads, registers and shared memory for n queries of a depth, and values of a width."""
    rows, most = query_tile(n), limits(target)
    held = depth * _ROWS // (2 * WARP) + width * _ROWS // WARP
    wanted = rows // _ROWS * WARP, _shared_bytes(rows, depth, width, 1)
    return held <= _HELD and wanted[0] <= most.max_threads and wanted[1] <= most.shared_bytes


def prepare_attention(s: Schedule, name: str, target: Target) -> None:
    """Take an attention in blocks, where a target has tensor cores for both products, and room for what they need."""
    asked = attention_of(s.operation(name)) if target.can.device else None
    if asked is None or not multiplies(target, asked.query.dtype, asked.value.dtype, "float32"):
        return
    n, depth, width = map(extent_of, (asked.n, asked.query.shape[-1], asked.value.shape[-1]))
    if not depth or not width or depth % TENSOR_CORE_WIDTH or width % TENSOR_CORE_WIDTH:
        return
    if fits(target, n, depth, width):
        s[name].blocked_attention(TENSOR_CORE_KEYS, query_tile(n))


def takes(s: Schedule, anchor: Anchor, part: Mapping[str, str]) -> bool:
    """Whether an attention was blocked for tensor cores, and the target has them, and room for it."""
    if ROUNDED not in part or extent_of(compute_op(s, part[SCORE]).axes[-1].extent) != TENSOR_CORE_KEYS:
        return False
    score, main = compute_op(s, part[SCORE]), compute_op(s, anchor.main)
    (dtype,) = {load.buffer.dtype for load in loads(score)}
    n, width, depth = (extent_of(axis.extent) for axis in (*main.axes[-2:], score.reduce_axes[0]))
    return multiplies(anchor.target, dtype, dtype, score.dtype) and fits(anchor.target, n, depth or 0, width or 0)


def schedule_on_tensor_cores(s: Schedule, anchor: Anchor, part: Mapping[str, str]) -> None:
    """Schedule an attention that `takes` allows, and what follows it."""
    main, m = compute_op(s, anchor.main), keys_read(s, dict(part)).shape[-2]
    n = main.axes[-2].extent
    warps = query_tile(extent_of(n)) // _ROWS
    query, keys, values = _read(s, part)
    for word in (SCALED, WEIGHT):
        s[part[word]].compute_inline()
    held = s[s.cache_read(query, "warp", [part[SCORE]])]
    if anchor.main != anchor.output:
        s[anchor.main].compute_inline()
    for word in (SCORE, MIXED, ROUNDED):
        s[part[word]].set_scope("warp")
    threads, lane = _output(s, anchor.output, warps)
    merged, block, columns = _merged(s, part, s[anchor.output], lane)
    s[part[MIXED]].compute_at(merged, columns)
    factors = [_product(s, part[MIXED], values, "")]
    s[part[ROUNDED]].compute_at(merged, block)
    _weighted(s[part[ROUNDED]])
    for word in (TOTAL, GREATEST):
        _by_quads(s[part[word]])
        s[part[word]].compute_at(merged, block)
    s[part[SCORE]].compute_at(merged, block)
    factors.append(_product(s, part[SCORE], keys, ".bt"))
    held.compute_at(s[anchor.output], threads.loop)
    load_fragments(held, f"cuda.ldmatrix.a.{_element(s, query)}")
    _copied(s, query, s[anchor.output], threads.blocks[QUERIES], threads)
    depth, width = (extent_of(s.program.buffers[copy].shape[-1]) or 0 for copy in (keys, values))
    for copy in (keys, values):
        _copied(s, copy, merged, block, threads)
        if _shared_bytes(warps * _ROWS, depth, width, _STAGES) <= limits(anchor.target).shared_bytes:
            s[copy].pipeline(_STAGES)
    if main.attrs[CAUSAL]:
        made = [part[word] for word in (SCORE, GREATEST, TOTAL, ROUNDED, MIXED)]
        loops = (f"{merged.name}.{block.name}", f"{anchor.output}.{threads.blocks[QUERIES].name}")
        _leave_out_unseen(s, [*made, *factors, keys, values], loops, n, m)


def _leave_out_unseen(s: Schedule, stages: Sequence[str], loops: tuple[str, str], n: Expr, m: Expr) -> None:
    """Compute nothing for blocks of keys that no query of a block sees; `loops` are those over keys and queries."""
    (b, i), rows = (Var(name) for name in loops), query_tile(extent_of(n))
    for name in stages:
        s[name].set_store_predicate(b * TENSOR_CORE_KEYS <= i * rows + (rows - 1) + (m - n))


def _shared_bytes(rows: int, depth: int, width: int, stages: int) -> int:
    """Shared memory for so many queries, and for so many blocks of keys and of values."""
    keys = stages * TENSOR_CORE_KEYS
    return _BYTES * ((rows + keys) * _length(depth) + keys * _length(width))


def _length(width: int) -> int:
    """Elements from one row of a tile to the next: some more than the row has where it is not swizzled."""
    return width if _is_swizzled(width) else width + _CHUNK


def _is_swizzled(width: int) -> bool:
    """Whether turning the chunks of rows lets eight down a column lie in other banks."""
    return not width % _LINE or width in (_LINE // 2, _LINE // 4)


def _copied(s: Schedule, copy: str, host: Stage, place: Axis, threads: Threads) -> None:
    """Let the threads of a block copy a tile to shared memory, where eight chunks down a column lie in other banks."""
    *_, row, column = s[copy].op.axis
    s[copy].compute_at(host, place)
    width = extent_of(s.program.buffers[copy].shape[-1]) or 0
    if not _is_swizzled(width):
        s[copy].storage_align(row, 2 * _CHUNK, _CHUNK)
    copied_together(s[copy], (row, column), threads, _CHUNK)
    if _is_swizzled(width):
        s[copy].swizzle()


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


def _output(s: Schedule, output: str, warps: int) -> tuple[Threads, Axis]:
    """Blocks of queries, a warp for 16 of them along z, and its lanes along y and x as accumulators lie in them.

    Returns the threads with the loop over warps, and the loop over the last lanes.
    """
    *batch, i, j = axes_of(s, output)
    stage = s[output]
    block, row = stage.split(i, _ROWS * warps)
    warp, row = stage.split(row, _ROWS)
    half, row = stage.split(row, _DOWN)
    tile, column = stage.split(j, _COLUMNS)
    column, pair = stage.split(column, 2)
    stage.reorder(*batch, block, warp, row, column, tile, half, pair)
    for axis, tag in ((block, "blockIdx.x"), (warp, "threadIdx.z"), (row, "threadIdx.y"), (column, "threadIdx.x")):
        stage.bind(axis, tag)
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.y")
    for axis in (tile, half):
        stage.unroll(axis)
    stage.vectorize(pair)
    return Threads((_QUAD, _DOWN, warps), warp, {QUERIES: block}), column


def _merged(s: Schedule, part: Mapping[str, str], output: Stage, lane: Axis) -> tuple[Stage, Axis, Axis]:
    """Merge blocks of keys in the registers of the lane that stores them; returns the loops over blocks and columns.

    What a lane holds is stored without what the others do: rows and columns as digits, those of lanes of extent 1.
    """
    stage = s[part[MERGED]]
    at_once = next(w for w in _AT_ONCE if (extent_of(stage.op.axis[-1].extent) or 0) % w == 0)

    def digits(*index: Expr) -> list[Expr]:
        *batch, i, j = index
        column = j % at_once
        return [*batch, *_digits(i), j // at_once, column // _COLUMNS, column % _COLUMNS // 2, column % 2]

    *batch, i, half, row, outer, tile, column, pair = stage.transform_layout(digits)
    stage.set_scope("local")
    stage.compute_at(output, lane)
    (block,) = stage.op.reduce_axis
    stage.reorder(*batch, block, outer, i, half, row, tile, column, pair)
    for axis in (outer, half, tile, pair):
        stage.unroll(axis)
    return stage, block, outer


def _digits(i: Expr) -> tuple[Expr, Expr, Expr]:
    """A row: the 16 of a warp that it is in, the half of them, and which of the eight."""
    return i // _ROWS, i % _ROWS // _DOWN, i % _DOWN


def _weighted(stage: Stage) -> None:
    """Let each lane round weights of its own scores."""
    *batch, i, j = stage.op.axis
    i, row = stage.split(i, _ROWS)
    half, row = stage.split(row, _DOWN)
    tile, column = stage.split(j, _COLUMNS)
    column, pair = stage.split(column, 2)
    stage.reorder(*batch, row, column, i, tile, half, pair)
    stage.bind(row, "threadIdx.y")
    stage.bind(column, "threadIdx.x")
    for axis in (tile, half):
        stage.unroll(axis)
    stage.vectorize(pair)


def _by_quads(stage: Stage) -> None:
    """Reduce rows of scores by the four lanes that hold each."""
    *batch, i, half, row = stage.transform_layout(lambda *x: [*x[:-1], *_digits(x[-1])])
    tile, column = stage.split(stage.op.reduce_axis[0], _COLUMNS)
    column, pair = stage.split(column, 2)
    stage.reorder(*batch, i, half, row, column, tile, pair)
    stage.bind(column, "threadIdx.x")
    for axis in (half, row, tile, pair):
        stage.unroll(axis)


def _product(s: Schedule, name: str, factor: str, instruction: str) -> str:
    """Sum a tile of a product in registers; fragments of the right factor are brought there step by step.

    Returns the stage of these.
    """
    held = s[s.cache_read(factor, "warp", [name])]
    depth = extent_of(compute_op(s, name).reduce_axes[0].extent) or _DEPTH
    loops = by_fragments(s[name], depth, _DEPTH)
    held.compute_at(s[name], loops.inner)
    element = _element(s, factor)
    load_fragments(held, f"cuda.ldmatrix.{'bt' if instruction else 'b'}.{element}")
    s[name].tensorize(loops.tile, te.intrin(f"cuda.mma.m16n8k16.{element}{instruction}"))
    return held.name
