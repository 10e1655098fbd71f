"""Products on tensor cores: tiles of blocks and of warps, fragments in registers, operands copied ahead.

The tile of a block lies in shared memory, swizzled, and is filled by asynchronous copies of 16 bytes; ldmatrix brings
fragments of it to the registers of a warp, where mma.sync multiplies them (sm_80 and later). On Hopper (sm_90a) groups
of four warps multiply straight from shared memory, by wgmma, where both factors lie with their terms side by side. What
follows the product is computed in the registers that hold the sums.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorlang import dtypes, te
from tensorlang.ir.expr import Binary, Cast, Expr, Load, Var, variables
from tensorlang.schedule import Decision, Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.target.cuda.runtime import default_architecture
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, Reduce
from tensorlang.topi.gpu.block_tile import Threads, copied_together
from tensorlang.topi.gpu.blocks import WARP, limits
from tensorlang.topi.gpu.plan import CORES, MANY
from tensorlang.topi.operator import Anchor, axes_of, compute_op
from tensorlang.topi.product import Product, product_of

ELEMENTS = {
    ("float16", "float32"): "f16",
    ("bfloat16", "float32"): "bf16",
    ("int8", "int32"): "s8",
    ("uint8", "int32"): "u8",
}
"""The dtypes of factors and sums that have instructions -> the elements by their names there."""
_FIRST = 80
"""The architecture (sm_80) from which tensor cores have these instructions."""
_HOPPER = 90.5
"""The one that has wgmma (sm_90a)."""
_ROWS, _COLUMNS, _DEPTH_BYTES = 16, 8, 32
"""The tile of one mma.sync: rows and columns of sums, and bytes of terms of a factor."""
_LOADED = 16
"""Rows of a factor that one ldmatrix brings."""
_ACCESS = 16
"""Bytes of one copy to shared memory."""
_GROUP = 128
"""Threads of a warp group."""
_GROUP_ROWS, _GROUP_BYTES = 64, 128
"""Rows of sums of a wgmma, and the bytes of terms that one row of its factors has."""
_READ_COST = 16
"""What bringing a row or column of fragments to registers costs, in sums that are updated: ldmatrix moves 128 bytes
a cycle, in which an A100 updates 64 sums by as many bytes of terms."""
_FETCH_COST = 43
"""What bringing a row or column of a tile to shared memory costs, in sums: 47 bytes come from L2 each cycle."""


@dataclass(frozen=True, slots=True)
class WarpTile:
    """Tiles of a block and of a warp as (rows, columns), the terms of a step, and the steps that are there at once.

    `lanes`: threads that multiply together, those of a warp or of a warp group.
    """

    block: tuple[int, int]
    warp: tuple[int, int]
    lanes: int = WARP
    depth: int = 0
    stages: int = 0

    @property
    def warps(self) -> tuple[int, int]:
        """Warps of a block, along rows and columns."""
        return self.block[0] // self.warp[0], self.block[1] // self.warp[1]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps[0] * self.warps[1] * self.lanes


_TILES = (
    WarpTile((128, 128), (64, 32)),
    WarpTile((128, 64), (32, 32)),
    WarpTile((64, 128), (32, 32)),
    WarpTile((64, 64), (32, 32)),
    WarpTile((32, 64), (16, 32)),
    WarpTile((64, 32), (32, 16)),
    WarpTile((32, 32), (16, 16)),
    WarpTile((16, 32), (16, 16)),
)
"""At most 64 sums of a thread: they, the fragments and the addresses fit 128 registers."""
_GROUP_TILES = tuple(
    WarpTile((_GROUP_ROWS * groups, columns), (_GROUP_ROWS, columns), _GROUP)
    for groups, columns in ((2, 256), (2, 128), (1, 128), (1, 64))
)
"""At most 128 sums of a thread; fragments of factors need no registers."""
_GROUP_RATE = 0.6
"""The time of a sum in a warp group, in that of one in warps: mma.sync reaches about 60 % of a Hopper's rate."""
_ROW_BYTES = (128, 64, 32)
"""Bytes of terms of a step, the most wanted first for small tiles."""
_STAGES, _FEWEST_STAGES = 4, 3
_MOST_SHARED = 65536
"""Bytes of shared memory of a block, with which two blocks are on a multiprocessor of most GPUs."""
_ALIGNED = 1024
"""Bytes that the factors of a warp group may lie further on, to begin at as many."""


def fragment_tile(s: Schedule, anchor: Anchor) -> WarpTile | None:
    """The tile of a product on tensor cores; None where they do not take it.

    They take products of one dtype of `ELEMENTS` on sm_80 and later: A given as [m, k], B of bytes as [n, k]. The
    number of terms has to be known and to fill instructions, and so do columns that lie side by side in B. All other
    rows and columns are filled up with zeros, in shared memory.
    """
    op, architecture = compute_op(s, anchor.main), _architecture(anchor.target)
    product = product_of(op)
    if architecture < _FIRST or not _sums_products(op) or _element(product, op.dtype) is None:
        return None
    size, depth, n = _bytes(product), product.depth or 0, product.n
    if not depth or depth * size % _DEPTH_BYTES or (not product.b_transposed and (n is None or n * size % _ACCESS)):
        return None
    tiles: tuple[WarpTile, ...] = _TILES
    if product.b_transposed and architecture == _HOPPER and depth * size % _GROUP_BYTES == 0:
        tiles += _GROUP_TILES
    found = (_sized(tile, depth * size, size, anchor.target) for tile in tiles)
    return min((tile for tile in found if tile is not None), key=lambda tile: _cost(tile, product), default=None)


def _sums_products(op: ComputeOp) -> bool:
    """Whether a stage adds up products of elements, each made as wide as the sum before."""
    match op.reduction:
        case (
            Reduce(sources=(Binary(op="mul", a=Cast(value=Load()), b=Cast(value=Load())),), where=None, init=()) as sums
        ):
            return sums.reducer.text() == "sum"
    return False


def _element(product: Product, sums: str) -> str | None:
    """What instructions call the elements of factors; None for products that they do not compute."""
    a, b = product.a, product.b
    element = ELEMENTS.get((a.buffer.dtype, sums)) if a.buffer.dtype == b.buffer.dtype else None
    columns = [product.j, product.k] if product.b_transposed else [product.k, product.j]
    matrices = _is_matrix(a.index, [product.i, product.k]) and _is_matrix(b.index, columns)
    packed = element in ("s8", "u8") and not product.b_transposed
    return element if matrices and not packed else None


def _is_matrix(index: Sequence[Expr], axes: Sequence[str]) -> bool:
    """Whether a matrix is read at two axes, and one of a batch at anything else."""
    *batch, row, column = index
    inside = [i.name if isinstance(i, Var) else "" for i in (row, column)]
    return inside == list(axes) and not any(set(axes) & set(variables(i)) for i in batch)


def _bytes(product: Product) -> int:
    return dtypes.info(product.a.buffer.dtype).bytes


def _architecture(target: Target) -> float:
    """The number in the name of an architecture, and a half for what it alone has (sm_90a); 0 where there is none."""
    found = re.match(r"sm_(\d+)(a?)", default_architecture(target)) if target.kind == "cuda" else None
    return int(found[1]) + len(found[2]) / 2 if found else 0


def _sized(tile: WarpTile, length: int, element: int, target: Target) -> WarpTile | None:
    """A tile with steps and stages that fit a target, for rows of so many bytes of terms; None if there are none."""
    in_groups = tile.lanes == _GROUP
    most = limits(target).shared_bytes - _ALIGNED if in_groups else min(_MOST_SHARED, limits(target).shared_bytes)
    if tile.threads > limits(target).max_threads:
        return None
    for row in (_GROUP_BYTES,) if in_groups else _ROW_BYTES:
        stages = min(_STAGES, most // (sum(tile.block) * row), length // row)
        if length % row == 0 and stages >= min(_FEWEST_STAGES, length // row):
            return replace(tile, depth=row // element, stages=stages)
    return None


def _cost(tile: WarpTile, product: Product) -> tuple[float, int]:
    """The sums that a multiprocessor could update in the time that its blocks take, reads and copies added."""
    (rows, columns), warp = tile.block, tile.warp
    blocks = -(-(product.m or MANY) // rows) * -(-(product.n or MANY) // columns) * (product.batches or 1)
    area = rows * columns
    in_groups = tile.lanes == _GROUP
    update = _GROUP_RATE if in_groups else 1 + _READ_COST * sum(warp) / (warp[0] * warp[1])
    fetches = _FETCH_COST * (rows + columns) / area
    return -(-blocks // CORES) * area * (update + fetches), area


def schedule_fragments(s: Schedule, anchor: Anchor, tile: WarpTile) -> None:
    """Schedule a product that `fragment_tile` takes, and what follows it, by a tile."""
    main = compute_op(s, anchor.main)
    product = product_of(main)
    element, turned, chunk = _element(product, main.dtype), product.b_transposed, _ACCESS // _bytes(product)
    sums = _in_registers(s, anchor)
    copies = [str(s.name_of(s.cache_read(read.buffer.name, "shared", [sums]))) for read in (product.a, product.b)]
    for copy, own, extent in zip(copies, (-2, -2 if turned else -1), tile.block, strict=True):
        s[copy].pad(s[copy].op.axis[own], extent)
    for axis, extent in zip(s[sums].op.axis[-2:], tile.block, strict=True):
        s[sums].pad(axis, extent)
    held = [str(s.name_of(s.cache_read(copy, "warp", [sums]))) for copy in copies] if tile.lanes == WARP else []
    threads = _bind(s, anchor.output, tile)
    s[sums].compute_at(s[anchor.output], threads.loop)
    loops = by_fragments(s[sums], tile.depth, 2 * chunk) if held else _in_steps(s[sums], tile.depth)
    for fragment, word in zip(held, ("a", "bt" if turned else "b")):
        s[fragment].compute_at(s[sums], loops.inner)
        load_fragments(s[fragment], f"cuda.ldmatrix.{word}.{element}")
    for copy in copies:
        s[copy].compute_at(s[sums], loops.outer)
        copied_together(s[copy], s[copy].op.axis[-2:], threads, chunk, wide=True)
        s[copy].swizzle()
        if tile.stages > 1:
            s[copy].pipeline(tile.stages)
    shape = f"mma.m16n8k{2 * chunk}" if held else f"wgmma.m64n{tile.warp[1]}k{tile.depth}"
    s[sums].tensorize(loops.tile, te.intrin(f"cuda.{shape}.{element}{'.bt' if turned else ''}"))


def _in_registers(s: Schedule, anchor: Anchor) -> str:
    """The stage that holds the sums, in the registers of a warp."""
    if anchor.main == anchor.output:
        return str(s.name_of(s.cache_write(anchor.main, "warp")))
    s[anchor.main].set_scope("warp")
    return anchor.main


def _bind(s: Schedule, output: str, tile: WarpTile) -> Threads:
    """Blocks, warps or groups along z and y, and lanes as a fragment of sums lies in them; its loop is that of y."""
    *batch, i, j = axes_of(s, output)
    stage = s[output]
    block_i, block_j, row, column = stage.tile(i, j, *tile.block)
    warp_i, warp_j, row, column = stage.tile(row, column, *tile.warp)
    fragment_i, row = stage.split(row, _ROWS)
    half, row = stage.split(row, _ROWS // 2)
    fragment_j, column = stage.split(column, _COLUMNS)
    column, pair = stage.split(column, 2)
    lanes, held = ([fragment_i, row, column], []) if tile.lanes == _GROUP else ([row, column], [fragment_i])
    held += [fragment_j, half]
    stage.reorder(*batch, block_i, block_j, warp_i, warp_j, *lanes, *held, pair)
    bound = (block_i, block_j, warp_i, warp_j, stage.fuse(*lanes))
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip(bound, tags, strict=True):
        stage.bind(axis, tag)
    if batch:
        stage.bind(stage.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    for axis in held:
        stage.unroll(axis)
    stage.vectorize(pair)
    return Threads((tile.lanes, tile.warps[1], tile.warps[0]), warp_j, {i: block_i, j: block_j})


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of sums over tiles in shared memory, over fragments of those, and the outermost of an instruction."""

    outer: Axis
    inner: Axis
    tile: Axis


def by_fragments(stage: Stage, terms: int | Decision, depth: int) -> Loops:
    """Cut sums into steps of so many terms, and these into products of fragments of `depth` terms."""
    *batch, i, j = stage.op.axis
    outer, inner = stage.split(stage.op.reduce_axis[0], terms)
    inner, k = stage.split(inner, depth)
    fragment_i, i = stage.split(i, _ROWS)
    fragment_j, j = stage.split(j, _COLUMNS)
    stage.reorder(*batch, outer, inner, fragment_i, fragment_j, i, j, k)
    stage.unroll(inner)
    return Loops(outer, inner, i)


def _in_steps(stage: Stage, terms: int) -> Loops:
    """Cut the sums of a warp group into steps of so many terms."""
    *batch, i, j = stage.op.axis
    step, k = stage.split(stage.op.reduce_axis[0], terms)
    stage.reorder(*batch, step, i, j, k)
    return Loops(step, step, i)


def load_fragments(stage: Stage, instruction: str) -> None:
    """Fragments of a factor from shared memory."""
    rows, columns = te.intrin(instruction).op.shape
    *_, i, j = stage.op.axis
    _, _, i, _ = stage.tile(i, j, int(rows.value), int(columns.value))
    stage.tensorize(i, te.intrin(instruction))
