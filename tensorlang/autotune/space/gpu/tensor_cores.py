"""Products of matrices of narrow elements on the tensor cores of CUDA devices.

A block computes a tile, each of its warps a part of it by matrix instructions. The threads copy what a step reads into
shared memory, swizzled and some steps ahead; warps load fragments from there (docs/design/021-tensor-cores.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorlang import te
from tensorlang.autotune.model.nest import Access, Array
from tensorlang.autotune.search.sketch import Columns, Mask
from tensorlang.autotune.space.gpu.block import WORD, limits_of, math_product
from tensorlang.autotune.space.gpu.elements import inline_producers
from tensorlang.autotune.space.room import Form, Room
from tensorlang.autotune.space.structure import Group
from tensorlang.autotune.space.structure import Stage as Described
from tensorlang.autotune.task import Task
from tensorlang.ir.expr import Binary, Cast, Load
from tensorlang.schedule import Decision
from tensorlang.schedule.stage import Stage
from tensorlang.te.axis import Axis
from tensorlang.topi.gpu.tensor_cores import by_fragments, load_fragments

ROWS, COLUMNS, WARP = 16, 8, 32
WIDE = 16
"""Bytes that a thread copies at a time."""
INSTRUCTIONS = {"bfloat16": ("bf16", 16), "float16": ("f16", 16), "int8": ("s8", 32)}
"""dtype of the operands -> their name in the instructions, and terms of one product; sums are of 32 bits."""
_RESULTS = {"bfloat16": "float32", "float16": "float32", "int8": "int32"}
_SPARE_REGISTERS = 56
_PIPELINES = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Product:
    """`rows`, `columns` and `terms` are axes of a product; `left` is read along rows, `right` is turned, or not."""

    stage: Described
    rows: str
    columns: str
    terms: str
    left: Access
    right: Access
    turned: bool
    dtype: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the operands."""
        return self.left.itemsize

    def extent(self, axis: str) -> int:
        return self.stage.extents[axis]


def tensor_core_forms(task: Task, group: Group) -> list[Form]:
    """A form for products of two matrices that the target has instructions for; none for other stages."""
    if task.target.kind != "cuda" or task.target.cpu == "sm_75" or group.parts:
        return []
    product = product_of(group.main)
    if product is None or not all(_tiles(product)):
        return []
    return [Form("tensor-cores", partial(_schedule, group=group, product=product))]


def product_of(stage: Described) -> Product | None:
    """How a stage is a product of matrices with sums of 32 bits; None when it is not."""
    op = stage.op
    if len(stage.spatial) != 2 or len(stage.reduce) != 1 or op.reduction is None or len(stage.reads) != 2:
        return None
    match op.reduction.sources:
        case (Binary(op="mul", a=Cast(value=Load() as first), b=Cast(value=Load() as second)),):
            dtype = first.buffer.dtype
        case _:
            return None
    (rows, columns), (terms,) = stage.spatial, stage.reduce
    known = {tuple(t[0][0] if len(t) == 1 and t[0][1] == 1 else "" for t in r.dims): r for r in stage.reads}
    left = known.get((rows, terms))
    right, turned = known.get((terms, columns)), False
    if right is None:
        right, turned = known.get((columns, terms)), True
    good = dtype in INSTRUCTIONS and second.buffer.dtype == dtype and op.dtypes[0] == _RESULTS[dtype]
    if left is None or right is None or not good or (dtype == "int8" and not turned):
        return None
    return Product(stage, rows, columns, terms, left, right, turned, dtype)


def _tiles(p: Product) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Rows and columns of a warp, and terms of a step, that divide their axes."""
    depth = INSTRUCTIONS[p.dtype][1]
    rows = tuple(n for n in (16, 32, 64, 128) if p.extent(p.rows) % n == 0)
    columns = tuple(n for n in (16, 32, 64, 128) if p.extent(p.columns) % n == 0)
    terms = tuple(depth * n for n in (1, 2, 4) if p.extent(p.terms) % (depth * n) == 0)
    return rows, columns, terms


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows and columns of a warp, warps of a block along both, terms of a step."""

    rows: Decision
    columns: Decision
    down: Decision
    across: Decision
    terms: Decision
    pipeline: Decision


def _schedule(room: Room, group: Group, product: Product) -> None:
    s, main = room.s, group.main
    inline_producers(room, group)
    for stage in group.between:
        s[stage.name].compute_inline()
    if group.main is group.output:
        total = s[s.cache_write(main.name, "warp")]
    else:
        total = s[main.name]
        total.set_scope("warp")
    tile = _decide(room, product)
    element, depth = INSTRUCTIONS[product.dtype]
    shared = [s[s.cache_read(read.buffer, "shared", [total.name])] for read in (product.left, product.right)]
    held = [s[s.cache_read(copy.name, "warp", [total.name])] for copy in shared]
    out = s[group.output.name]
    total.compute_at(out, _bind_output(out, tile))
    loops = by_fragments(total, tile.terms, depth)
    total.tensorize(loops.tile, te.intrin(f"cuda.mma.m16n8k{depth}.{element}{'.bt' if product.turned else ''}"))
    for fragment, name in zip(held, ("a", "bt" if product.turned else "b"), strict=True):
        fragment.compute_at(total, loops.inner)
        load_fragments(fragment, f"cuda.ldmatrix.{name}.{element}")
    for copy in shared:
        copy.compute_at(total, loops.outer)
        _fetch(copy, tile, WIDE // product.itemsize)
        copy.swizzle()
        copy.pipeline(tile.pipeline)


def _decide(room: Room, p: Product) -> _Tile:
    rows, columns, terms = _tiles(p)
    tile = _Tile(
        room.choose("warp_rows", rows),
        room.choose("warp_columns", columns),
        room.choose("warps_down", (1, 2, 4)),
        room.choose("warps_across", (1, 2, 4)),
        room.choose("step", terms),
        room.choose("pipeline", _PIPELINES),
    )
    limits = limits_of(room)

    def block(values: Columns) -> tuple[Array, Array]:
        return values["warp_rows"] * values["warps_down"], values["warp_columns"] * values["warps_across"]

    def divides(values: Columns) -> Mask:
        down, across = block(values)
        return np.asarray((p.extent(p.rows) % down == 0) & (p.extent(p.columns) % across == 0))

    def held(values: Columns) -> Mask:
        fragments = math_product((values["warp_rows"] + values["warp_columns"], np.asarray([p.itemsize * WIDE / WORD])))
        words = (values["warp_rows"] * values["warp_columns"] + fragments) / WARP
        return np.asarray(words + _SPARE_REGISTERS <= limits.thread_registers)

    def shared(values: Columns) -> Mask:
        down, across = block(values)
        size = (down + across) * values["step"] * p.itemsize * values["pipeline"]
        return np.asarray(size <= limits.shared_bytes)

    def threads(values: Columns) -> Mask:
        warps = values["warps_down"] * values["warps_across"]
        return np.asarray((WARP * warps <= limits.max_threads) & (warps > 1))

    def chunks(values: Columns) -> Mask:
        """Whether every thread of a block copies whole chunks of both operands."""
        team = WARP * values["warps_down"] * values["warps_across"] * WIDE
        down, across = block(values)
        sizes = [n * values["step"] * p.itemsize for n in (down, across)]
        return np.asarray((sizes[0] % team == 0) & (sizes[1] % team == 0))

    room.limit("tiles of blocks divide the matrices", divides)
    room.limit("all threads copy chunks of 16 bytes", chunks)
    room.limit(f"a block has several warps, and at most {limits.max_threads} threads", threads)
    room.limit(f"a block has {limits.shared_bytes} bytes of shared memory", shared)
    room.limit(f"a thread has {limits.thread_registers} registers", held)
    return tile


def _bind_output(out: Stage, tile: _Tile) -> Axis:
    """Blocks, warps along z and y, and the lanes as a fragment of sums lies in them; returns the loop around a warp."""
    i, j = out.op.axis
    rest, i = out.split(i, tile.rows)
    block_i, warp_i = out.split(rest, tile.down)
    rest, j = out.split(j, tile.columns)
    block_j, warp_j = out.split(rest, tile.across)
    fragment_i, i = out.split(i, ROWS)
    half, row = out.split(i, COLUMNS)
    fragment_j, j = out.split(j, COLUMNS)
    column, pair = out.split(j, 2)
    out.reorder(block_i, block_j, warp_i, warp_j, row, column, fragment_i, fragment_j, half, pair)
    lane = out.fuse(row, column)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((block_i, block_j, warp_i, warp_j, lane), tags, strict=True):
        out.bind(axis, tag)
    out.vectorize(pair)
    return warp_j


def _fetch(copy: Stage, tile: _Tile, wide: int) -> None:
    """Copy a tile by all threads of the block, 16 bytes each at a time."""
    rest, lanes = copy.split(copy.fuse(*copy.op.axis), wide)
    copy.vectorize(lanes)
    for axis, threads in (("x", WARP), ("y", tile.across), ("z", tile.down)):
        rest, thread = copy.split(rest, threads)
        copy.bind(thread, f"threadIdx.{axis}")
