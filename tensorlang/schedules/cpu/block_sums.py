"""Block sums of integer products under scales: a block in registers, then one multiply-add for all of its lanes.

For some panels at a time, block by block: the words of a panel's codes are unpacked in registers, a dot instruction
multiplies them with a word of each row of data, and the block's sums are added up under its scales before the next
block is begun. Nothing of it goes through memory but the weights, once, and the data, which stay in the first cache.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Call, variables, walk
from tensorlang.schedule import Schedule
from tensorlang.schedules.accesses import LINE, PAGE
from tensorlang.schedules.block_sums import BlockSums, PanelsRead
from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.cpu.moves import schedule_alone
from tensorlang.schedules.cpu.narrow_product import dot_instruction
from tensorlang.schedules.cpu.points import run_in_parallel
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.schedules.words import WORD
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import ComputeOp, loads

_PANELS = (1, 2, 3, 4, 6, 8)
_ROWS = (1, 2, 3, 4, 6, 8, 12, 16)
_WORDS = (1, 2, 4, 8, 16)
_BLOCKS = (1, 2, 4, 8)
_SHARED = 32
"""Terms whose codes may lie in the same bytes."""
_AHEAD, _FAR, _BUSY = 4096, 16384, 4
"""Bytes of codes that are fetched ahead, into the first cache and the second, and from how many products of vectors for
a line of codes on the second is asked, too.

Prefetchers of machines lose a stream at the end of a page. They keep up with one row of data. Several take so long that
what comes from memory to the first cache holds its few places for lines on their way; the second has more of them.
"""
_STEPS = (1, 2, 4, 8, 12, 16, 24, 32, 64)
"""Blocks from one to those that are fetched meanwhile."""
_SPARE = 4
"""Registers for codes and scales."""
_USUAL_WORDS = 8
"""Words of a block that are written out: codes of fewer bits than a byte share loads among so many."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Elementwise stages that read sums of panels as columns."""

    group: Group
    read: PanelsRead


@dataclass(frozen=True, slots=True)
class _Tile:
    """The stage in whose loops sums are made, a tile at a time, and the loop that they are made in."""

    stage: str
    loop: str


def block_form(dots: Group, sums: Group, roles: BlockSums, behind: Behind | None = None) -> Form:
    """The form of sums of blocks, and the sum of those under scales, in the tile of what is made of them `behind`."""
    why = f"sums of blocks of {roles.words.panels.buffer.name} in registers, under what belongs to a block"
    return Form("blocks", partial(_schedule, dots=dots, sums=sums, roles=roles, behind=behind), why=why)


def _schedule(room: Room, dots: Group, sums: Group, roles: BlockSums, behind: Behind | None) -> None:
    s, name = room.s, sums.main.name
    codes = _unpacked(room, dots, roles)
    place_producers(room, sums, inline=False)
    for stage in sums.between:
        s[stage.name].compute_inline()
    if behind is not None:
        place_producers(room, behind.group, inline=True)
    elif sums.main is sums.output:
        name = s.cache_write(name, "local")
    total, sides = s[name], (roles.around[-1], roles.rows[-1])
    tile = _tile(room, sums, roles, behind, int(dots.main.points))
    total.compute_at(s[tile.stage], tile.loop)
    total.set_scope("local")
    others = (axis for axis in sums.main.spatial if axis not in (*sides, roles.lane))
    blocks = _blocks(room, dots, sums, roles)
    far, near = total.split(roles.block, blocks, tail="peel")
    total.reorder(far, near, *others, *sides, roles.lane)
    for axis in (near, *sides):
        total.unroll(axis)
    total.vectorize(roles.lane)
    part = s[dots.main.name]
    part.compute_at(total, roles.around[-1])
    part.set_scope("local")
    _lay_rows_apart(s, roles)
    reader, loop = _sum_block(room, dots, roles, codes)
    _fetch_codes(room, sums, roles, (reader, loop), (str(far), blocks))


def _tile(room: Room, sums: Group, roles: BlockSums, behind: Behind | None, work: int) -> _Tile:
    """The loops of a stage over tiles of some panels and rows, and inside of them one panel after the other."""
    s, output = room.s, sums.output.name if behind is None else behind.group.main.name
    out, sizes = s[output], _sizes(room, sums, roles)
    if behind is None:
        own = dict(zip(sums.main.spatial, (str(axis) for axis in out.op.axis), strict=True))
    else:
        panel, lane = out.split(behind.read.column, sums.main.extents[roles.lane])
        own = {**behind.read.axes, roles.around[-1]: str(panel), roles.lane: str(lane)}
    inside = list[str]()
    for axis in (axis for axis in sizes if axis in own):
        around, within = map(str, out.split(own[axis], sizes[axis], tail="peel"))
        own[axis] = around
        inside.append(within)
    panels, rows = ([own[axis] for axis in axes if axis in own] for axes in (roles.around, roles.rows))
    out.reorder(*panels, *rows, *inside, own[roles.lane])
    loop = run_in_parallel(s, out.name, panels, room.target, work)
    calls = any(isinstance(node, Call) for body in out.op.body for node in walk(body))
    for axis in inside if behind is None or not calls else ():
        out.unroll(axis)
    out.vectorize(own[roles.lane])
    return _Tile(output, rows[-1] if rows else loop)


def _fetch_codes(room: Room, sums: Group, roles: BlockSums, reader: tuple[str, str], steps: tuple[str, int]) -> None:
    """Fetch codes that are read in a loop of a stage, some iterations of the loop over `steps` of blocks ahead."""
    s, (stage, loop), (along, blocks) = room.s, reader, steps
    read, extents = _codes_of_panel(s, stage, roles), sums.main.extents
    panel, rows = sum(read.values()), prod(extents[axis] for axis in roles.rows)
    step = max(1, blocks * panel // extents[roles.block])
    products = rows * prod(extent_of(n) or 1 for n in roles.words.panels.buffer.shape[-3:])
    wanted = {1: room.choose("ahead", _STEPS, -(-_AHEAD // step))}
    if rows > 1 and products >= _BUSY * panel:
        wanted[2] = room.choose("far", _STEPS, -(-_FAR // step))
    for level, ahead in wanted.items():
        for array in read:
            s.attempt(partial(s[stage].prefetch, array, loop, ahead, along=along, level=level))


def _lay_rows_apart(s: Schedule, roles: BlockSums) -> None:
    """Let rows of data that are made here begin in different sets of the first cache."""
    data, rows = roles.words.data, {roles.inner[axis] for axis in roles.rows}
    made = s.program[s.program.producer[data.buffer.name]]
    moved = [d for d, index in enumerate(data.index) if variables(index) & rows]
    if isinstance(made, ComputeOp) and moved and extent_of(data.buffer.shape[moved[-1]]) != 1:
        size = dtypes.info(data.buffer.dtype).bytes
        s.attempt(partial(s[made.name].storage_align, made.axes[moved[-1]].name, PAGE // size, LINE // size))


def _codes_of_panel(s: Schedule, reader: str, roles: BlockSums) -> dict[str, int]:
    """The arrays that codes are made of, and the bytes of each that belong to a panel."""
    op, found = s.program[reader], dict[str, int]()
    assert isinstance(op, ComputeOp)
    inside = {axis.name for axis in (*op.axes[-3:], *op.reduce_axes)} | {roles.inner[roles.block]}
    for load in loads(op):
        moved = [variables(index) for index in load.index]
        if len(moved) > 2 and set() < moved[-2] <= inside:
            sizes = (extent_of(n) or 1 for n, by in zip(load.buffer.shape, moved, strict=True) if by <= inside)
            found[load.buffer.name] = prod(sizes) * dtypes.info(load.buffer.dtype).bytes
    return found


def _sizes(room: Room, sums: Group, roles: BlockSums) -> dict[str, int]:
    """How many panels of weights, and then rows of data, are made at once."""
    registers, extents = room.target.vector_registers, sums.main.extents
    vectors = -(-extents[roles.lane] // room.target.lanes(WORD))
    panel, row = roles.around[-1], roles.rows[-1]
    most = max(n for n in _ROWS if n <= max(1, (registers - _SPARE) // (2 * vectors)))
    even = -(-extents[row] // -(-extents[row] // most))
    rows = min(extents[row], min((n for n in _ROWS if even <= n <= most), default=most))
    sizes = {
        panel: room.choose("panels", up_to(_PANELS, extents[panel]), 1),
        row: room.choose("rows", up_to(_ROWS, extents[row]), rows),
    }

    def fits(values: Columns) -> Mask:
        return np.asarray(values["rows"] * vectors <= registers)

    room.limit(f"the sums of a block fit {registers} vector registers", fits)
    return sizes


def _blocks(room: Room, dots: Group, sums: Group, roles: BlockSums) -> int:
    """How many blocks are written out one after the other: small ones share words of codes, and scales of several."""
    terms = prod(dots.main.extents[axis] for axis in dots.main.reduce)
    usual = max(1, _SHARED // terms)
    return room.choose("blocks", up_to(_BLOCKS, sums.main.extents[roles.block]), usual)


def _unpacked(room: Room, dots: Group, roles: BlockSums) -> str:
    """The stage of the codes, if a stage makes them; what it reads once is computed in it, all others ahead."""
    s, name = room.s, room.s.program.producer[roles.words.panels.buffer.name]
    made = next((stage for stage in dots.producers if stage.name == name and isinstance(stage.op, ComputeOp)), None)
    others = tuple(stage for stage in dots.producers if stage is not made)
    for stage in others:
        once = made is not None and s.program.consumers[stage.name] == (name,) and made.points <= stage.points
        if not (once and s.attempt(s[stage.name].compute_inline)):
            schedule_alone(room, stage)
    return "" if made is None else made.name


def _sum_block(room: Room, dots: Group, roles: BlockSums, codes: str) -> tuple[str, str]:
    """Sum a block: word by word, codes of a word unpacked, then multiplied with a word of each row of data.

    The stage that reads weights, and its loop over words.
    """
    s, target = room.s, room.target
    stage = s[dots.main.name]
    *windows, term = (str(axis) for axis in stage.op.reduce_axis)
    rows = [roles.inner[axis] for axis in roles.rows]
    lane = roles.inner[roles.lane]
    around = [str(axis) for axis in stage.op.axis if str(axis) not in (*rows, lane)]
    dot = dot_instruction(roles.words.data.dtype, roles.words.panels.dtype, target)
    lanes = target.lanes(WORD) if dot is None else int(dot.buffers["out"].shape[0])
    whole = dots.main.extents[lane] % lanes == 0
    word = windows[-1:]
    written = []
    if word and dots.main.extents[word[0]] > 1:
        most = dots.main.extents[word[0]]
        size = room.choose("words", up_to(_WORDS, most), min(_USUAL_WORDS, most))
        far, near = stage.split(word[0], factor=size, tail="peel")
        written, windows = [str(near)], [*windows[:-1], str(far)]
    vector, inner = (str(axis) for axis in stage.split(lane, factor=lanes))
    if dot is not None and whole:
        stage.reorder(*around, *windows, *written, *rows, vector, inner, term)
        stage.tensorize(inner, dot)
    else:
        stage.reorder(*around, *windows, *written, term, *rows, vector, inner)
        stage.vectorize(inner)
    for axis in (*written, *rows[-1:], vector):
        stage.unroll(axis)
    place = (*written, *windows, *around)[0]
    if not codes:
        return stage.name, place
    made = s[codes]
    made.compute_at(stage, place)
    made.set_scope("local")
    *_, words, last, byte = (str(axis) for axis in made.op.axis)
    made.vectorize(made.fuse(last, byte))
    return codes, words
