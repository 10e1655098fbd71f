"""The schedules that take part: the library's, and those written by hand, without any rule of the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from benchmarks.gpu.operators import after_product
from benchmarks.gpu.workloads import Workload
from tensorlang import dtypes, te, topi
from tensorlang.schedule import Schedule
from tensorlang.target import parse

Scheduler: TypeAlias = Callable[[Workload, str], tuple[Schedule, list[te.Tensor]]]
"""The schedule of a workload for a target, with the arguments of its kernel: the inputs, then the result."""

LIBRARY = "tensorlang"
BY_HAND = "tensorlang, by hand"
_LOAD_BYTES = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """Tiles of a product: rows and columns of a block and of a thread, steps of the sum fetched at once, stages."""

    rows: int = 128
    columns: int = 128
    depth: int = 16
    thread: int = 8
    stages: int = 3


def by_library(workload: Workload, target: str) -> tuple[Schedule, list[te.Tensor]]:
    """What `topi.schedule` makes, on tensor cores where it can; tuned records are left aside."""
    with parse(target):
        tensors = workload.program()
    return topi.schedule(tensors[-1], target, tuned=False), tensors


def tiled_product(workload: Workload, target: str, tile: Tile = Tile()) -> tuple[Schedule, list[te.Tensor]]:
    """A product of matrices in tiles of shared memory and registers, with what follows it in the tile of its thread.

    The tiles of both operands are fetched by vectors, some steps ahead of their use. No tensor cores.
    """
    given = {name: te.placeholder(shape, workload.dtype, name=name) for name, shape in workload.shapes.items()}
    A, B = given["A"], given["B"]
    k = te.reduce_axis((0, A.shape[1]), "k")
    shape = (A.shape[0], B.shape[1])
    term = te.compute(
        shape, lambda i, j: te.sum(A[i, k].astype("float32") * B[k, j].astype("float32"), axis=k), name="product"
    )
    product, result = term, after_product(term, given, workload.dtype)
    s = te.create_schedule(result.op)
    for between in s.stages:
        if between.op.name not in (product.op.name, result.op.name) and between.op.input_tensors:
            between.compute_inline()
    _place(s, product, result, tile)
    return s, [*given.values(), result]


def _place(s: Schedule, product: te.Tensor, result: te.Tensor, tile: Tile) -> None:
    """Bind the loops of the result, and compute the sums and the copies of their operands inside them."""
    fetched = [s.cache_read(operand, "shared", [product]) for operand in product.op.input_tensors]
    held = [s.cache_read(stage, "local", [product]) for stage in fetched]
    if product is result:
        product = s.cache_write(result, "local")
    else:
        s[product].set_scope("local")
    thread = _bind_tiles(s, result, tile)
    s[product].compute_at(s[result], thread)
    outer, inner = s[product].split(s[product].op.reduce_axis[0], tile.depth)
    s[product].reorder(outer, inner, *s[product].op.axis)
    s[product].unroll(inner)
    for stage in held:
        s[stage].compute_at(s[product], inner)
    for stage in fetched:
        s[stage].compute_at(s[product], outer)
        _fetch(s, stage, tile)


def _bind_tiles(s: Schedule, result: te.Tensor, tile: Tile) -> Any:
    """Give tiles to blocks and to threads; returns the loop of a thread inside which its tile is computed."""
    i, j = s[result].op.axis
    block_i, i = s[result].split(i, tile.rows)
    block_j, j = s[result].split(j, tile.columns)
    thread_i, i = s[result].split(i, tile.thread)
    thread_j, j = s[result].split(j, tile.thread)
    s[result].reorder(block_i, block_j, thread_i, thread_j, i, j)
    for axis, tag in ((block_i, "blockIdx.y"), (block_j, "blockIdx.x"), (thread_i, "threadIdx.y")):
        s[result].bind(axis, te.thread_axis(tag))
    s[result].bind(thread_j, te.thread_axis("threadIdx.x"))
    s[result].vectorize(j)
    return thread_j


def _fetch(s: Schedule, stage: te.Tensor, tile: Tile) -> None:
    """Fetch a tile by all threads of the block, 16 bytes each at a time."""
    along_y, along_x = tile.rows // tile.thread, tile.columns // tile.thread
    width = _LOAD_BYTES // dtypes.info(stage.dtype).bytes
    chunk, lane = s[stage].split(s[stage].fuse(*s[stage].op.axis), width)
    rest, x = s[stage].split(chunk, along_x)
    _, y = s[stage].split(rest, along_y)
    s[stage].bind(y, te.thread_axis("threadIdx.y"))
    s[stage].bind(x, te.thread_axis("threadIdx.x"))
    s[stage].vectorize(lane)
    if tile.stages > 1:
        s[stage].pipeline(tile.stages)


def schedulers(workload: Workload, target: str) -> dict[str, Scheduler]:
    """The schedules of a workload that a target can run, by the name of the contestant."""
    found: dict[str, Scheduler] = {LIBRARY: by_library}
    if workload.operator in ("matmul", "matmul_gelu"):
        found[BY_HAND] = tiled_product
    return found


def is_ours(name: str) -> bool:
    """Whether a contestant is a kernel of tensorlang."""
    return name in (LIBRARY, BY_HAND)
