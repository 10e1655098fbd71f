"""Products on tensor cores, by hand: tiles for blocks and warps, fragments in registers, operands fetched ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.operators import after_product
from benchmarks.gpu.workloads import Workload
from tensorlang import te
from tensorlang.schedule import Schedule, Stage

ELEMENTS = {"float16": "f16", "bfloat16": "bf16"}
"""dtypes of operands -> their names in the instructions, which add up in float32."""
_WARP = 32
_ROWS, _COLUMNS, _DEPTH = 16, 8, 16
_GROUP_ROWS, _GROUP_DEPTH = 64, 64
_LANES = 8
"""Elements of 16 bytes."""


@dataclass(frozen=True, slots=True)
class WarpTiles:
    """Tiles of a block and of a warp as (rows, columns), steps of the sum in a tile, and tiles kept at once."""

    block: tuple[int, int] = (128, 128)
    warp: tuple[int, int] = (64, 32)
    depth: int = 32
    stages: int = 4

    @property
    def warps(self) -> tuple[int, int]:
        """Warps of a block, along rows and columns."""
        return self.block[0] // self.warp[0], self.block[1] // self.warp[1]


def warp_product(workload: Workload, target: str, tiles: WarpTiles | None = None) -> tuple[Schedule, list[te.Tensor]]:
    """A product in fragments of m16n8k16 (sm_80), with what follows it in the registers that hold the sums.

    `tiles` divide the matrices. Operands come to shared memory by asynchronous copies of 16 bytes, and from there by
    ldmatrix; the swizzle of their tiles keeps both free of bank conflicts.
    """
    tiles, element = tiles or WarpTiles(), ELEMENTS[workload.dtype]
    s, sums, given, result = _declared(workload)
    fetched = [s.cache_read(operand, "shared", [sums]) for operand in sums.op.input_tensors]
    held = [s.cache_read(tile, "warp", [sums]) for tile in fetched]
    s[sums].compute_at(s[result], _bind(s[result], tiles))
    outer, inner = _multiply(s[sums], tiles, element)
    for tile, operand in zip(held, "ab", strict=True):
        s[tile].compute_at(s[sums], inner)
        _load(s[tile], f"cuda.ldmatrix.{operand}.{element}")
    for tile in fetched:
        s[tile].compute_at(s[sums], outer)
        _copy(s[tile], (_WARP, tiles.warps[1], tiles.warps[0]))
        s[tile].swizzle()
        s[tile].pipeline(tiles.stages)
    return s, [*given, result]


def _declared(workload: Workload) -> tuple[Schedule, te.Tensor, list[te.Tensor], te.Tensor]:
    """A product with sums in float32, in the registers of a warp; what follows it is inlined into the result."""
    given = {name: te.placeholder(shape, workload.dtype, name=name) for name, shape in workload.shapes.items()}
    A, B = given["A"], given["B"]
    turned = workload.operator == "dense"
    k = te.reduce_axis((0, A.shape[1]), "k")

    def term(i: Any, j: Any) -> Any:
        right = B[j, k] if turned else B[k, j]
        return te.sum(A[i, k].astype("float32") * right.astype("float32"), axis=k)

    sums = te.compute((A.shape[0], B.shape[0 if turned else 1]), term, name="sums")
    result = after_product(sums, given, workload.dtype)
    s = te.create_schedule(result.op)
    for stage in s.stages:
        if stage.op.name not in (sums.op.name, result.op.name) and stage.op.input_tensors:
            stage.compute_inline()
    s[sums].set_scope("warp")
    return s, sums, list(given.values()), result


def _bind(stage: Stage, tiles: WarpTiles) -> Any:
    """Blocks, warps along z and y, and lanes as a fragment of sums lies in them; returns the loop of a warp."""
    i, j = stage.op.axis
    block_i, block_j, i, j = stage.tile(i, j, *tiles.block)
    warp_i, warp_j, i, j = stage.tile(i, j, *tiles.warp)
    fragment_i, i = stage.split(i, _ROWS)
    half, row = stage.split(i, _ROWS // 2)
    fragment_j, j = stage.split(j, _COLUMNS)
    column, pair = stage.split(j, 2)
    stage.reorder(block_i, block_j, warp_i, warp_j, row, column, fragment_i, fragment_j, half, pair)
    lane = stage.fuse(row, column)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((block_i, block_j, warp_i, warp_j, lane), tags, strict=True):
        stage.bind(axis, te.thread_axis(tag))
    stage.vectorize(pair)
    return warp_j


def _multiply(stage: Stage, tiles: WarpTiles, element: str) -> tuple[Any, Any]:
    """Fragments of the sums, step by step of k; returns the loops over tiles in shared memory and in registers."""
    i, j = stage.op.axis
    outer, inner = stage.split(stage.op.reduce_axis[0], tiles.depth)
    inner, k = stage.split(inner, _DEPTH)
    fragment_i, i = stage.split(i, _ROWS)
    fragment_j, j = stage.split(j, _COLUMNS)
    stage.reorder(outer, inner, fragment_i, fragment_j, i, j, k)
    stage.unroll(inner)
    stage.tensorize(i, te.intrin(f"cuda.mma.m16n8k16.{element}"))
    return outer, inner


def _load(stage: Stage, name: str) -> None:
    """Fragments of an operand from shared memory."""
    rows, columns = te.intrin(name).op.shape
    i, j = stage.op.axis
    _, _, i, _ = stage.tile(i, j, int(rows.value), int(columns.value))
    stage.tensorize(i, te.intrin(name))


@dataclass(frozen=True, slots=True)
class GroupTiles:
    """Warp groups of a block, each with 64 rows and all `columns`, and the tiles of 64 steps kept at once."""

    groups: int = 2
    columns: int = 256
    stages: int = 4


def group_product(workload: Workload, target: str, tiles: GroupTiles | None = None) -> tuple[Schedule, list[te.Tensor]]:
    """A product with a matrix given as [n, k], by the instructions of warp groups (wgmma, sm_90a).

    A group of 128 threads multiplies straight from shared memory. `tiles` divide the matrices.
    """
    tiles, element = tiles or GroupTiles(), ELEMENTS[workload.dtype]
    s, sums, given, result = _declared(workload)
    fetched = [s.cache_read(operand, "shared", [sums]) for operand in sums.op.input_tensors]
    i, j = s[result].op.axis
    block_i, block_j, i, j = s[result].tile(i, j, _GROUP_ROWS * tiles.groups, tiles.columns)
    group, i = s[result].split(i, _GROUP_ROWS)
    warp, i = s[result].split(i, _ROWS)
    half, row = s[result].split(i, _ROWS // 2)
    fragment, j = s[result].split(j, _COLUMNS)
    column, pair = s[result].split(j, 2)
    s[result].reorder(block_i, block_j, group, warp, row, column, fragment, half, pair)
    lane = s[result].fuse(s[result].fuse(warp, row), column)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((block_i, block_j, group, lane), tags, strict=True):
        s[result].bind(axis, te.thread_axis(tag))
    s[result].vectorize(pair)
    s[sums].compute_at(s[result], group)
    i, j = s[sums].op.axis
    step, k = s[sums].split(s[sums].op.reduce_axis[0], _GROUP_DEPTH)
    s[sums].reorder(step, i, j, k)
    for tile in fetched:
        s[tile].compute_at(s[sums], step)
        _copy(s[tile], (4 * _WARP, tiles.groups))
        s[tile].swizzle()
        s[tile].pipeline(tiles.stages)
    s[sums].tensorize(i, te.intrin(f"cuda.wgmma.m64n{tiles.columns}k{_GROUP_DEPTH}.{element}.bt"))
    return s, [*given, result]


def _copy(stage: Stage, threads: tuple[int, ...]) -> None:
    """A tile from global memory by threads along x, y, z, 16 bytes each at a time."""
    rest, lanes = stage.split(stage.fuse(*stage.op.axis), _LANES)
    stage.vectorize(lanes)
    for axis, extent in zip("xyz", threads):
        rest, thread = stage.split(rest, extent)
        stage.bind(thread, te.thread_axis(f"threadIdx.{axis}"))
