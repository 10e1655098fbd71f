"""Products of matrices on the tensor cores of CUDA devices: tiles of blocks, of warps or warp groups, and of steps.

A block computes a tile, each of its warps (or groups of four of them, on Hopper) a part of it by matrix instructions.
The threads copy what a step reads into shared memory, swizzled and some steps ahead; warps load fragments from there,
and groups multiply from there (docs/design/021-tensor-cores.md). Where tiles are few, parts of the terms are summed by
blocks of their own, and a second kernel adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from tensorlang import te
from tensorlang.schedule import Decision
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.accesses import Array
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.gpu.block import WORD, limits_of
from tensorlang.schedules.gpu.block_tile import Threads, bind_together, copied_together
from tensorlang.schedules.gpu.elements import inline_producers
from tensorlang.schedules.gpu.matrix_product import Product, product_of
from tensorlang.schedules.gpu.tensor_cores import TF32, by_fragments, in_steps, load_fragments
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis

ROWS, COLUMNS, WARP = 16, 8, 32
GROUP, GROUP_ROWS, GROUP_BYTES = 128, 64, 128
"""Threads of a warp group, rows of its tile, and bytes of the terms of its step."""
WIDE = 16
"""Bytes that a thread copies at a time."""
_WIDTHS = (256, 128, 64)
"""Columns of a warp group, one form each."""
_SPARE_REGISTERS = 56
_ALIGNED = 1024
"""Bytes that the copies of warp groups may begin later."""
_PIPELINES = (1, 2, 3, 4)
_GROUP_PIPELINES, _GROUP_AHEAD = (1, 3, 4), 2
"""With four tiles at once and two ahead, the products of a step go on while the next step begins."""
_TOGETHER = (1, 2, 4, 8, 16)
_FEW_RESULTS = 1 << 18
"""With more results there are tiles enough for all multiprocessors."""
_PARTS = (512, 1024, 2048, 4096, 8192)
"""Terms of a part."""


def tensor_core_forms(target: Target, group: Group) -> list[Form]:
    """The forms for products of matrices that the target has instructions for; none for other stages."""
    if not target.can.tensor_cores or group.parts:
        return []
    p = product_of(group.main, target)
    limits = target.gpu
    if p is None or (limits is not None and prod(map(p.extent, p.batch)) > limits.grid[2]):
        return []
    found: list[Form] = []
    if target.can.warp_groups and p.element != TF32 and _divides(p, GROUP_ROWS, GROUP_BYTES):
        widths = [n for n in _WIDTHS if p.extent(p.columns) % n == 0]
        found += [Form(f"warp-groups.{n}", partial(_schedule, group=group, product=p, width=n)) for n in widths]
    if all(_tiles(p, p.extent(p.terms))):
        found.append(Form("tensor-cores", partial(_schedule, group=group, product=p)))
        if not p.batch and p.extent(p.rows) * p.extent(p.columns) <= _FEW_RESULTS and _parts(p):
            found.append(Form("tensor-cores.parts", partial(_schedule, group=group, product=p, in_parts=True)))
    return found


def _divides(p: Product, rows: int, row_bytes: int) -> bool:
    return p.extent(p.rows) % rows == 0 and p.extent(p.terms) * p.itemsize % row_bytes == 0


def _parts(p: Product) -> tuple[int, ...]:
    """Terms of a part, at least two of which are all."""
    return tuple(n for n in _PARTS if p.extent(p.terms) % n == 0 and n < p.extent(p.terms))


def _tiles(p: Product, terms: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Rows and columns of a warp, and terms of a step, that divide their axes."""
    rows = tuple(n for n in (16, 32, 64, 128) if p.extent(p.rows) % n == 0)
    columns = tuple(n for n in (16, 32, 64, 128) if p.extent(p.columns) % n == 0)
    return rows, columns, tuple(p.depth * n for n in (1, 2, 4) if terms % (p.depth * n) == 0)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows and columns of a warp or group, of how many `lanes`; those of a block along both; terms of a step."""

    lanes: int
    rows: int | Decision
    columns: int | Decision
    down: Decision
    across: int | Decision
    terms: int | Decision
    pipeline: Decision
    together: Decision


def _schedule(room: Room, group: Group, product: Product, width: int = 0, in_parts: bool = False) -> None:
    """Schedule a product by warps, or by warp groups of so many columns."""
    s = room.s
    inline_producers(room, group)
    for stage in group.between:
        s[stage.name].compute_inline()
    terms = product.extent(product.terms)
    size = room.leave_open("part", _parts(product)) if in_parts else terms
    tile = (
        _group_tile(room, product, width)
        if width
        else _warp_tile(room, product, _parts(product)[0] if in_parts else terms)
    )
    _limit(room, product, tile, size)
    if in_parts:
        outer, _ = s[group.main.name].split(product.terms, size)
        out = s[partial_results(s, group.main.name, str(outer), 0)]
        total = s[s.cache_write(out.name, "warp")]
        _add_parts(room, group)
    elif group.main is group.output:
        out, total = s[group.output.name], s[s.cache_write(group.main.name, "warp")]
    else:
        out, total = s[group.output.name], s[group.main.name]
        total.set_scope("warp")
    _multiply(room, product, tile, out, total)


def _multiply(room: Room, product: Product, tile: _Tile, out: Stage, total: Stage) -> None:
    """Compute the sums `total` of a tile of `out` by matrix instructions, from copies in shared memory."""
    s, is_tf32 = room.s, product.element == TF32
    lie_across = (product.left_across, not product.turned)
    across = [lies and not is_tf32 for lies in lie_across]
    shared = {}
    for read, lies in zip((product.left, product.right), lie_across, strict=True):
        copy = s[s.cache_read(read.buffer, "shared", [total.name])]
        shared[copy.name] = lies and is_tf32
        if shared[copy.name]:
            copy.transform_layout(lambda *index: [*index[:-2], index[-1], index[-2]])
    in_groups = tile.lanes == GROUP
    held = [] if in_groups else [s[s.cache_read(copy, "warp", [total.name])] for copy in shared]
    threads = _bind_output(out, tile)
    total.compute_at(out, threads.loop)
    loops = in_steps(total, tile.terms) if in_groups else by_fragments(total, tile.terms, product.depth)
    shape = f"wgmma.m{GROUP_ROWS}n{tile.columns}k{tile.terms}" if in_groups else f"mma.m16n8k{product.depth}"
    turns = ".at" * across[0] + ".bt" * (not across[1])
    total.tensorize(loops.tile, te.intrin(f"cuda.{shape}.{product.element}{turns}"))
    for fragment, name in zip(held, ("at" if across[0] else "a", "b" if across[1] else "bt")):
        fragment.compute_at(total, loops.inner)
        load_fragments(fragment, f"cuda.ldmatrix.{name}.{product.element}")
    for (name, is_turned), lies in zip(shared.items(), across, strict=True):
        copy = s[name]
        copy.compute_at(total, loops.outer)
        order = copy.op.axis[-2:]
        wide = 1 if is_turned else WIDE // product.itemsize
        copied_together(copy, order[::-1] if is_turned else order, threads, wide, wide=True)
        copy.swizzle(panels=lies and in_groups)
        copy.pipeline(tile.pipeline, _GROUP_AHEAD if in_groups else None)


def _add_parts(room: Room, group: Group) -> None:
    """Add the parts of each result, and compute what follows, by a thread each."""
    s, out = room.s, room.s[group.output.name]
    if group.main is group.output:
        total = s[s.cache_write(group.main.name, "local")]
    else:
        total = s[group.main.name]
        total.set_scope("local")
    block, thread = out.split(out.fuse(*out.op.axis), room.leave_open("adders", (64, 128, 256)))
    out.bind(block, "blockIdx.x")
    out.bind(thread, "threadIdx.x")
    total.compute_at(out, thread)


def _warp_tile(room: Room, p: Product, terms: int) -> _Tile:
    rows, columns, steps = _tiles(p, terms)
    return _Tile(
        WARP,
        room.leave_open("warp_rows", rows),
        room.leave_open("warp_columns", columns),
        room.leave_open("warps_down", (1, 2, 4)),
        room.leave_open("warps_across", (1, 2, 4)),
        room.leave_open("step", steps),
        room.leave_open("pipeline", _PIPELINES),
        room.leave_open("together", _TOGETHER),
    )


def _group_tile(room: Room, p: Product, width: int) -> _Tile:
    down, pipeline = room.leave_open("groups_down", (1, 2, 3, 4)), room.leave_open("pipeline", _GROUP_PIPELINES)
    together = room.leave_open("together", _TOGETHER)
    return _Tile(GROUP, GROUP_ROWS, width, down, 1, GROUP_BYTES // p.itemsize, pipeline, together)


def _limit(room: Room, p: Product, tile: _Tile, part: int | Decision) -> None:
    """Keep tiles to what divides the matrices, and to the threads, registers and shared memory of a block."""
    limits = limits_of(room)

    def of(number: int | Decision, values: Columns) -> Array:
        if isinstance(number, Decision):
            return np.asarray(values[number.name.removeprefix(room.prefix)])
        return np.ones(1) * number

    def block(values: Columns) -> tuple[Array, Array]:
        return of(tile.rows, values) * of(tile.down, values), of(tile.columns, values) * of(tile.across, values)

    def warps(values: Columns) -> Array:
        return np.asarray(of(tile.down, values) * of(tile.across, values))

    def divides(values: Columns) -> Mask:
        down, across = block(values)
        whole = (p.extent(p.rows) % down == 0) & (p.extent(p.columns) % across == 0)
        terms = (p.extent(p.terms) % of(part, values) == 0) & (of(part, values) % of(tile.terms, values) == 0)
        return np.asarray(whole & terms & (p.extent(p.rows) // down % of(tile.together, values) == 0))

    def held(values: Columns) -> Mask:
        rows, columns = of(tile.rows, values), of(tile.columns, values)
        fragments = (rows + columns) * p.itemsize * WIDE / WORD if tile.lanes == WARP else 0
        words = (rows * columns + fragments) / tile.lanes + _SPARE_REGISTERS
        return np.asarray((words <= limits.thread_registers) & (words * tile.lanes * warps(values) <= limits.registers))

    def shared(values: Columns) -> Mask:
        size = sum(block(values)) * of(tile.terms, values) * p.itemsize * of(tile.pipeline, values)
        return np.asarray(size + (_ALIGNED if tile.lanes == GROUP else 0) <= limits.shared_bytes)

    def threads(values: Columns) -> Mask:
        count = tile.lanes * warps(values)
        return np.asarray((count <= limits.max_threads) & (count > WARP))

    def steps(values: Columns) -> Mask:
        return np.asarray(of(tile.pipeline, values) * of(tile.terms, values) <= of(part, values))

    def chunks(values: Columns) -> Mask:
        """Whether every thread of a block copies whole chunks of both operands."""
        around = (p.left_across, not p.turned)
        wide = [p.itemsize if a and p.element == TF32 else WIDE for a in around]
        sizes = [n * of(tile.terms, values) * p.itemsize for n in block(values)]
        fits = [size % (tile.lanes * warps(values) * each) == 0 for size, each in zip(sizes, wide, strict=True)]
        return np.asarray(fits[0] & fits[1])

    room.limit("tiles of blocks divide the matrices, and groups of them the rows", divides)
    room.limit("all threads copy chunks of 16 bytes", chunks)
    room.limit("no more tiles at once than steps", steps)
    room.limit(f"a block has several warps, and at most {limits.max_threads} threads", threads)
    room.limit(f"a block has {limits.shared_bytes} bytes of shared memory", shared)
    room.limit(f"a thread has {limits.thread_registers} registers", held)


def _bind_output(out: Stage, tile: _Tile) -> Threads:
    """Blocks, warps along z and y, and the lanes as a fragment of sums lies in them; with the loop around a warp."""
    *batch, i, j = out.op.axis
    rest, i = out.split(i, tile.rows)
    block_i, warp_i = out.split(rest, tile.down)
    rest, j = out.split(j, tile.columns)
    block_j, warp_j = out.split(rest, tile.across)
    fragment_i, i = out.split(i, ROWS)
    half, row = out.split(i, COLUMNS)
    fragment_j, j = out.split(j, COLUMNS)
    column, pair = out.split(j, 2)
    lanes: list[Axis] = [fragment_i, row, column] if tile.lanes == GROUP else [row, column]
    held = [fragment_j, half] if tile.lanes == GROUP else [fragment_i, fragment_j, half]
    out.reorder(*batch, block_i, block_j, warp_i, warp_j, *lanes, *held, pair)
    for axis, tag in ((warp_i, "threadIdx.z"), (warp_j, "threadIdx.y"), (out.fuse(*lanes), "threadIdx.x")):
        out.bind(axis, tag)
    bind_together(out, block_i, block_j, tile.together)
    if batch:
        out.bind(out.fuse(*batch) if len(batch) > 1 else batch[0], "blockIdx.z")
    out.vectorize(pair)
    return Threads((tile.lanes, tile.across, tile.down), warp_j, {})
