"""The form of a Winograd convolution: bands of rows of tiles, each transformed, multiplied and transformed back.

Both transforms of a band stay in the second cache; weights come by once for each band, fetched ahead. The products of
a point are those of a small matrix product, some tiles times some vectors of output channels in registers. With more
threads than bands that are even, all tiles are one band, whose stages are shared out one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.accesses import LINE
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of
from tensorlang.schedules.candidates import ROWS, powers, up_to
from tensorlang.schedules.cpu.moves import schedule_alone, turn_around
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.cpu.register_tile import best_part, side_by_side
from tensorlang.schedules.cpu.shares import computed_bits, fetch_weights, share_out, worth_threads
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Columns, Form, Mask, Room, as_index
from tensorlang.schedules.winograd import Roles, Winograd
from tensorlang.target.spec import Target
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import buffers

_TILES = 14
"""Tiles of a band, at least: as often each vector of weights is used."""
_TRANSFORMS = 0.9
"""The part of the second cache that both transforms of a band may take."""
_FETCHED, _SPILLED = 4, 8
"""Bytes of a cycle that a core moves from beyond its second cache: weights ahead, transforms as it needs them."""
_ROW = 16
"""Tiles of a row whose columns are transformed together: they stay in the first cache."""
_EVEN = 0.9
"""Shares of threads that are less even than this are worse than three loops that are shared out."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """`block`: output channels of a block. In registers: `rows` times `columns` of tiles times `width` channels.

    `band`: rows of tiles; `is_whole`: all of them are one, whose stages are shared out; `lanes`: of a vector.
    """

    block: int
    width: int
    rows: int
    columns: int
    band: int
    lanes: int
    is_whole: bool


def winograd_forms(target: Target, group: Group) -> list[Form]:
    """The form of a Winograd convolution; none for other groups."""
    found = group.transforms
    if found is None:
        return []
    why = f"tiles of {found.tile} * {found.tile} results between two transforms, in bands of rows"
    return [Form("winograd", partial(_schedule, group=group, found=found), why=why)]


def _schedule(room: Room, group: Group, found: Winograd) -> None:
    s, plan = room.s, _decide(room, group, found)
    for stage in group.between:
        if stage.op not in (found.rows.op, found.results.op):
            s[stage.name].compute_inline()
    _lay_out_sums(s, found, plan)
    anchor = Anchor(found.results.stage, group.output.name, room.target)
    results = accumulator(s, anchor)
    by_rows = found.results.op.axes[-1].name == found.results.x
    if by_rows:
        _channels_last(s[results], found.results)
    band, around = _schedule_output(room, anchor, found, plan, by_rows)
    _schedule_back(s, anchor, found, results, around, by_rows)
    _schedule_sums(room, anchor, found, plan, band)
    _schedule_tiles(room, anchor, found, plan, band)
    own = (found.columns.stage, found.tiles.stage)
    others = [stage for stage in group.producers if stage.name not in own]
    for stage in [stage for stage in others if found.weights.buffer.name in (b.name for b in buffers(stage.op))]:
        schedule_alone(room, stage)
        others.remove(stage)
    place_producers(room, replace(group, producers=tuple(others)), inline=False)
    if not any(axis in variables(found.data.index[-1]) for axis in found.columns.channels):
        _turn_data(room, found)


def _decide(room: Room, group: Group, found: Winograd) -> _Plan:
    """The numbers of a plan: in an open room, candidates around the usual ones."""
    target, extents = room.target, group.main.extents
    bits = computed_bits(found.sums.op.dtype)
    lanes = target.lanes(bits)
    high, wide, (channel,) = extents[found.sums.y], extents[found.sums.x], found.sums.channels
    block = found.stored_block or min(2 * lanes, -(-extents[channel] // lanes) * lanes)
    width = next(n for n in range(min(2 * lanes, block), 0, -1) if block % n == 0)
    vectors = -(-width // lanes)
    most = max(1, (target.vector_registers - 1) // vectors - 1)
    across = best_part(wide, 1, most, vectors)
    down = best_part(high, across, max(1, most // across), vectors) if across == wide else 1
    rows = room.choose("rows", up_to(ROWS, high), down)
    columns = room.choose("columns", up_to(ROWS, wide), across)
    room.limit(*_fits_registers(target, vectors))
    usual = _usual_band(found, extents, down, target)
    images = prod(extents[axis] for axis in found.sums.batch)
    threads = worth_threads(extents, target)
    whole = threads and _evenness(images, high, usual, target.cores) < _EVEN
    band = high if whole else room.choose("band", sorted({*up_to(powers(high), high), usual}), usual)
    return _Plan(block, width, rows, columns, band, min(lanes, block), whole)


def _usual_band(found: Winograd, extents: Mapping[str, int], down: int, target: Target) -> int:
    """The rows of tiles of a band that take the fewest cycles of a core; the fewest such rows.

    Weights that do not stay in the second cache come by once for each band, while products are made. Both transforms
    of a band stay there, or all of them are written to and read from what lies beyond, while nothing else is done.
    """
    high, wide, size = extents[found.sums.y], extents[found.sums.x], dtypes.info(found.weights.dtype).bytes
    (outputs,), points, inputs = found.sums.channels, found.sums.points, found.sums.op.reduce_axes[0].name
    count = prod(extents[axis] for axis in points)
    weights = size * count * extents[inputs] * extents[outputs]
    row = size * count * wide * (extents[inputs] + extents[outputs])
    products, cache = weights // size * wide * high, target.second_cache

    def cycles(band: int) -> float:
        read = -(-high // band) * weights / _FETCHED if weights > cache // 2 else 0.0
        spilled = 2 * high * row / _SPILLED if band * row > _TRANSFORMS * cache else 0.0
        return max(products / (2 * target.lanes(8 * size)), read) + spilled

    least = min(high, -(-max(1, -(-_TILES // wide)) // down) * down)
    bands: list[int] = [*range(least, high, down), high]
    return min(bands, key=cycles)


def _fits_registers(target: Target, vectors: int) -> tuple[str, Callable[[Columns], Mask]]:
    """The limit of a tile of so many vectors each, with one more of weights, and one of data."""
    registers = target.vector_registers
    text = f"the register tile fits {registers} vector registers"
    return text, lambda values: np.asarray((values["rows"] * values["columns"] + 1) * vectors + 1 <= registers)


def _evenness(images: int, high: int, band: int, cores: int) -> float:
    """The work of all bands beside that of the core with most of them, times all cores."""
    shares = -(-images * -(-high // band) // cores)
    return images * high / (cores * shares * band)


def _lay_out_sums(s: Schedule, found: Winograd, plan: _Plan) -> None:
    """Lay sums out in blocks of output channels, all points of a tile side by side."""
    roles, size = found.sums, as_index(plan.block)

    def blocks(*at: Expr) -> list[Expr]:
        place = dict(zip((axis.name for axis in roles.op.axes), at, strict=True))
        (o,) = (place[axis] for axis in roles.channels)
        inside = [place[axis] for axis in (roles.y, roles.x, *roles.points)]
        return [*(place[axis] for axis in roles.batch), o // size, *inside, o % size]

    s[roles.stage].transform_layout(blocks)


def _channels_last(results: Stage, roles: Roles) -> None:
    """Lay the results of a tile out with their channels side by side."""

    def places(*at: Expr) -> list[Expr]:
        place = dict(zip((axis.name for axis in roles.op.axes), at, strict=True))
        return [place[axis] for axis in _turned(roles)]

    results.transform_layout(places)


def _schedule_output(room: Room, anchor: Anchor, found: Winograd, plan: _Plan, by_rows: bool) -> tuple[str, str]:
    """Cut the output into bands and tiles; the loop around a band, and the one around a tile."""
    s, roles, m = room.s, found.results, found.tile
    out, own = s[anchor.output], axes_of(s, anchor.output)
    axis = dict(zip((a.name for a in roles.op.axes), own, strict=True))

    def split(name: str, factor: int) -> tuple[str, str]:
        outer, inner = out.split(name, factor=factor, tail="peel")
        return outer.name, inner.name

    down, row = split(axis[roles.y], m)
    band, down = split(down, plan.band)
    *further, feature = (axis[name] for name in roles.channels)
    channels, lane = split(feature, plan.lanes)
    across, column = split(axis[roles.x], -(-plan.lanes // m) * m if by_rows else m)
    batch = [axis[name] for name in roles.batch]
    if by_rows:
        out.reorder(*batch, band, down, *further, channels, across, row, column, lane)
        copied, vector, around = [row], column, across
    else:
        out.reorder(*batch, band, down, across, *further, channels, row, column, lane)
        copied, vector, around = [row, column], lane, channels
    for name in copied:
        out.unroll(name)
    out.vectorize(vector)
    if worth_threads(_extents(found.sums), room.target):
        shared = [*batch, band, *([down] if plan.is_whole else [])]
        band = out.fuse(*shared).name if len(shared) > 1 else band
        out.parallel(band)
    return band, around


def _schedule_back(s: Schedule, anchor: Anchor, found: Winograd, results: str, around: str, by_rows: bool) -> None:
    """Transform the sums of a tile back: along rows, then along columns."""
    rows, columns, out = s[found.rows.stage], s[results], s[anchor.output]
    rows.set_scope("local")
    for stage in (columns, rows):
        stage.compute_at(out, around)
    (xi,), (feature,) = found.rows.points, found.rows.channels
    across, column = rows.split(found.rows.x, factor=found.tile, tail="peel")
    rows.reorder(*found.rows.batch, found.rows.y, across, xi, column, feature)
    _copy_and_vectorize(rows, (xi, column.name), feature)
    roles = found.results
    stored = _turned(roles) if by_rows else tuple(axis.name for axis in roles.op.axes)
    own = dict(zip(stored, axes_of(s, results), strict=True))
    y, x, *further, lane = (own[axis] for axis in (roles.y, roles.x, *roles.channels))
    columns.reorder(*(own[axis] for axis in roles.batch), *further, x, y, lane)
    _copy_and_vectorize(columns, (y,) if by_rows else (x, y), lane)


def _schedule_sums(room: Room, anchor: Anchor, found: Winograd, plan: _Plan, band: str) -> None:
    """A product of matrices for each point: some tiles times a block of output channels in registers."""
    s, name = room.s, found.sums.stage
    local = s[s.cache_write(name, "local")]
    sums = s[name]
    *batch, block, y, x, xi, nu, lane = axes_of(s, name)
    down, row = sums.split(y, factor=plan.rows, tail="peel")
    across, column = sums.split(x, factor=plan.columns, tail="peel")
    part, lane = (axis.name for axis in sums.split(lane, factor=plan.width))
    outer = [*batch, xi, nu, block, part]
    sums.reorder(*outer, down, across, row, column, lane)
    _copy_and_vectorize(sums, (row.name, column.name), lane)
    along = _place(room, sums, anchor, plan, band, outer) or block
    local.compute_at(sums, across)
    *batch, block, y, x, xi, nu, lane = axes_of(s, local.name)
    (term,) = (axis.name for axis in found.sums.op.reduce_axes)
    local.reorder(*batch, block, xi, nu, term, y, x, lane)
    _copy_and_vectorize(local, (y, x), lane)
    if found.stored_block:
        sharers = -(-plan.band // plan.rows) if plan.width == plan.block else 1
        step = plan.block * dtypes.info(found.weights.dtype).bytes
        fetch_weights(local, found.weights.buffer.name, term, along, down.name, sharers, step)


def _schedule_tiles(room: Room, anchor: Anchor, found: Winograd, plan: _Plan, band: str) -> None:
    """Transform the data: a vector of channels of a row of tiles along its columns, then along the row."""
    s, roles, inner = room.s, found.tiles, found.columns
    tiles, columns = s[roles.stage], s[inner.stage]
    (depth,), (term,), wide = roles.channels, inner.channels, _extents(roles)[roles.x]
    channels, lane = tiles.split(depth, factor=room.target.lanes(computed_bits(roles.op.dtype)), tail="peel")
    part = next((n for n in range(min(wide, _ROW), 1, -1) if wide % n == 0), min(wide, _ROW))
    across, column = tiles.split(roles.x, factor=part, tail="peel")
    tiles.reorder(*roles.batch, roles.y, across, channels, column, *roles.points, lane)
    _copy_and_vectorize(tiles, roles.points, lane.name)
    _place(room, tiles, anchor, plan, band, [*roles.batch, roles.y, across.name])
    _lay_tiles_apart(s, roles, plan)
    columns.set_scope("local")
    columns.compute_at(tiles, channels)
    columns.reorder(*inner.batch, inner.y, inner.x, *inner.points, term)
    _copy_and_vectorize(columns, inner.points, term)


def _lay_tiles_apart(s: Schedule, roles: Roles, plan: _Plan) -> None:
    """Lay points an odd number of lines apart where tiles that are multiplied together share few sets of a cache."""
    size, extents = dtypes.info(roles.op.dtype).bytes, _extents(roles)
    tile = size * prod(extents[axis] for axis in (*roles.points, *roles.channels))
    if plan.rows * plan.columns > side_by_side(tile):
        s.attempt(partial(s[roles.stage].storage_align, roles.points[-1], 2 * LINE // size, LINE // size))


def _place(room: Room, stage: Stage, anchor: Anchor, plan: _Plan, band: str, outer: Sequence[str]) -> str:
    """Compute a stage for each band; the only one before the output, by all threads.

    Returns the loop that the last but one of the `outer` ones has become part of, or "".
    """
    if not plan.is_whole:
        stage.compute_at(room.s[anchor.output], band)
        return ""
    loop, fused = share_out(room.s, stage.name, outer, room.target)
    return loop if outer[-2] in fused else ""


def _turn_data(room: Room, found: Winograd) -> None:
    """Copy data whose channels lie apart, so that they lie side by side."""
    columns, s = found.columns, room.s
    copied = s[s.cache_read(found.data.buffer.name, "global", [columns.stage])]
    apart = [n for n, index in enumerate(found.data.index) if variables(index) & {*columns.channels}]
    places = [n for n in range(len(found.data.index)) if n not in apart]
    axes = copied.transform_layout(lambda *at: [at[n] for n in (*places, *apart)])
    turn_around(room, copied.name, axes[len(places) - 1].name, computed_bits(columns.op.dtype))


def _copy_and_vectorize(stage: Stage, copied: Sequence[str], vector: str) -> None:
    for axis in copied:
        stage.unroll(axis)
    stage.vectorize(vector)


def _turned(roles: Roles) -> tuple[str, ...]:
    """The axes with channels last."""
    return (*roles.batch, roles.y, roles.x, *roles.channels)


def _extents(roles: Roles) -> dict[str, int]:
    axes = (*roles.op.axes, *roles.op.reduce_axes)
    return {axis.name: extent_of(axis.extent) or 1 for axis in axes}
