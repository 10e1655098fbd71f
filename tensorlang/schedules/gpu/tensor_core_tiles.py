"""The sizes of products on tensor cores that the tuner chooses from: tiles of blocks, of warps or groups, and of steps.

The schedule is `tensor_cores.schedule_fragments`, which the library takes with sizes of its own.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from tensorlang.schedule import Decision
from tensorlang.schedules.accesses import Array
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.gpu.block import WORD
from tensorlang.schedules.gpu.blocks import WARP, limits
from tensorlang.schedules.gpu.elements import inline_producers
from tensorlang.schedules.gpu.parts import schedule_in_parts
from tensorlang.schedules.gpu.tensor_cores import ACCESS, TF32, element_of, schedule_fragments
from tensorlang.schedules.gpu.warp_tile import DEPTH_BYTES, GROUP, GROUP_BYTES, GROUP_ROWS, GROUP_SPARE, WarpTile
from tensorlang.schedules.product import Product, is_product, product_of
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.target.spec import Target

_WIDTHS = (256, 128, 64)
"""Columns of a warp group, one form each."""
_SIDES = (16, 32, 64, 128)
"""Rows and columns of a warp."""
_SPARE_REGISTERS = 56
_PIPELINES, _GROUP_PIPELINES = (1, 2, 3, 4), (3, 4)
"""Steps that are in shared memory at once: of groups, whose copies in bulk are ahead, all or a single one."""
_TOGETHER = (1, 2, 4, 8, 16)
_FEW_RESULTS = 1 << 18
"""With more results there are tiles enough for all multiprocessors."""
_PARTS = (512, 1024, 2048, 4096, 8192)
"""Terms of a part."""


def tensor_core_forms(target: Target, group: Group) -> list[Form]:
    """The forms for products of matrices that the target has instructions for; none for other stages."""
    op = group.main.op
    if not target.can.tensor_cores or group.parts or not is_product(op):
        return []
    p = product_of(op)
    batches = prod(group.main.extents[axis] for axis in p.batch)
    if element_of(op, p, target) is None or not p.m or not p.n or p.a.buffer.name == p.b.buffer.name:
        return []
    if target.gpu is not None and batches > target.gpu.grid[2]:
        return []
    is_tf32, terms = element_of(op, p, target) == TF32, p.depth or 0
    found: list[Form] = []
    form = partial(_schedule, group=group, product=p, is_tf32=is_tf32)
    if target.can.warp_groups and not is_tf32 and p.m % GROUP_ROWS == 0 and terms * p.itemsize % GROUP_BYTES == 0:
        found += [Form(f"warp-groups.{n}", partial(form, width=n)) for n in _WIDTHS if p.n % n == 0]
    if all(_dividing(_SIDES, n) for n in (p.m, p.n)):
        found.append(Form("tensor-cores", form))
        if not p.batch and p.m * p.n <= _FEW_RESULTS and _parts(terms):
            found.append(Form("tensor-cores.parts", partial(form, in_parts=True)))
    return found


def _dividing(numbers: tuple[int, ...], extent: int | None) -> tuple[int, ...]:
    return tuple(n for n in numbers if extent and extent % n == 0)


def _parts(terms: int) -> tuple[int, ...]:
    """Terms of a part, at least two of which are all."""
    return tuple(n for n in _dividing(_PARTS, terms) if n < terms)


def _schedule(
    room: Room, group: Group, product: Product, is_tf32: bool, width: int = 0, in_parts: bool = False
) -> None:
    """Schedule a product by warps, or by warp groups of so many columns."""
    s, terms = room.s, product.depth or 0
    inline_producers(room, group)
    for stage in group.between:
        s[stage.name].compute_inline()
    size = room.leave_open("part", _parts(terms)) if in_parts else terms
    tile = _group_tile(room, product, width) if width else _warp_tile(room, product, size)
    _limit(room, product, tile, size, is_tf32)
    anchor = Anchor(group.main.name, group.output.name, room.target)
    if in_parts:
        adders = room.leave_open("adders", (64, 128, 256))
        schedule_in_parts(s, anchor, size, lambda part: schedule_fragments(s, part, tile), adders)
    else:
        schedule_fragments(s, anchor, tile)


def _warp_tile(room: Room, p: Product, terms: int) -> WarpTile:
    depth = DEPTH_BYTES // p.itemsize
    return WarpTile(
        (
            room.leave_open("warp_rows", _dividing(_SIDES, p.m)),
            room.leave_open("warp_columns", _dividing(_SIDES, p.n)),
        ),
        (room.leave_open("warps_down", (1, 2, 4)), room.leave_open("warps_across", (1, 2, 4))),
        depth=room.leave_open("step", _dividing((depth, 2 * depth, 4 * depth), terms)),
        stages=room.leave_open("pipeline", _PIPELINES),
        together=room.leave_open("together", _TOGETHER),
    )


def _group_tile(room: Room, p: Product, width: int) -> WarpTile:
    down, depth = room.leave_open("groups_down", (1, 2, 3, 4)), GROUP_BYTES // p.itemsize
    stages = room.leave_open("pipeline", [n for n in _GROUP_PIPELINES if n * depth <= (p.depth or 0)] or [1])
    together = room.leave_open("together", _TOGETHER)
    return WarpTile((GROUP_ROWS, width), (down, 1), GROUP, depth, stages, together=together)


def _limit(room: Room, p: Product, tile: WarpTile, part: int, is_tf32: bool) -> None:
    """Keep tiles to what divides the matrices, and to the threads, registers and shared memory of a block."""
    own = limits(room.target)
    m, n, terms = p.m or 0, p.n or 0, p.depth or 0

    def of(number: int, values: Columns) -> Array:
        if isinstance(number, Decision):
            return np.asarray(values[number.name.removeprefix(room.prefix)])
        return np.ones(1) * number

    def block(values: Columns) -> tuple[Array, Array]:
        (rows, columns), (down, across) = ([of(x, values) for x in pair] for pair in (tile.warp, tile.warps))
        return rows * down, columns * across

    def count(values: Columns) -> Array:
        return np.asarray(tile.lanes * of(tile.warps[0], values) * of(tile.warps[1], values))

    def divides(values: Columns) -> Mask:
        down, across = block(values)
        whole = (m % down == 0) & (n % across == 0)
        even = (terms % of(part, values) == 0) & (of(part, values) % of(tile.depth, values) == 0)
        return np.asarray(whole & even & (m // down % of(tile.together, values) == 0))

    def held(values: Columns) -> Mask:
        rows, columns = (of(x, values) for x in tile.warp)
        fragments = (rows + columns) * p.itemsize * ACCESS / WORD if tile.lanes == WARP else 0
        words = (rows * columns + fragments) / tile.lanes + _SPARE_REGISTERS
        return np.asarray((words <= own.thread_registers) & (words * count(values) <= own.registers))

    def shared(values: Columns) -> Mask:
        size = sum(block(values)) * of(tile.depth, values) * p.itemsize * of(tile.stages, values)
        return np.asarray(size + (GROUP_SPARE if tile.lanes == GROUP else 0) <= own.shared_bytes)

    def threads(values: Columns) -> Mask:
        return np.asarray((count(values) <= own.max_threads) & (count(values) > WARP))

    def steps(values: Columns) -> Mask:
        return np.asarray(of(tile.stages, values) * of(tile.depth, values) <= of(part, values))

    def chunks(values: Columns) -> Mask:
        """Whether every thread of a block copies whole chunks of both operands."""
        wide = [p.itemsize if a and is_tf32 else ACCESS for a in (p.a_transposed, not p.b_transposed)]
        sizes = [n * of(tile.depth, values) * p.itemsize for n in block(values)]
        fits = [size % (count(values) * each) == 0 for size, each in zip(sizes, wide, strict=True)]
        return np.asarray(fits[0] & fits[1])

    room.limit("tiles of blocks divide the matrices, and groups of them the rows", divides)
    room.limit("all threads copy chunks of 16 bytes", chunks)
    room.limit("no more tiles at once than steps", steps)
    room.limit(f"a block has several warps, and at most {own.max_threads} threads", threads)
    room.limit(f"a block has {own.shared_bytes} bytes of shared memory", shared)
    room.limit(f"a thread has {own.thread_registers} registers", held)
