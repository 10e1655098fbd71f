"""Schedules of convolutions: some pixels of a row, times some vectors of output channels, stay in registers.

Weights are read as vectors of output channels, packed first if they are stored otherwise; pixels are read one by one
from the data as it is. At the border the sums are shorter: the loop over the window's columns is copied, so that each
copy has constant bounds. An output whose rows are contiguous is turned around in registers when it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import ceil, gcd

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, variables
from tensorlang.schedule import Schedule
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of, calls
from tensorlang.schedules.candidates import ROWS, up_to, vector_widths
from tensorlang.schedules.cpu.producers import anchor_of, place_producers
from tensorlang.schedules.cpu.register_tile import best_part, side_by_side
from tensorlang.schedules.cpu.shares import fetch_weights, share_out, worth_threads
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Room, as_index
from tensorlang.schedules.windows import WindowSum
from tensorlang.target.spec import Target
from tensorlang.te.operation import loads

_SHORT = 4
"""Short vectors of pixels are loaded whole, several at a time, and multiplied by the lane."""
_FEW_WEIGHTS = 1 / 8
"""The part of the second cache up to which weights are few."""
MOST_COPIES = 256
"""Vector stores that the copies of a loop over the window's columns may make."""
_PIXELS = 6
"""Columns of a tile where each channel has windows of its own: no weights are shared."""
_WIDEST = 28
"""Columns of a tile that the tuner tries."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What is kept in registers: rows and columns of pixels, of some blocks of so many output channels."""

    rows: int
    columns: int
    blocks: int
    block: int


@dataclass(frozen=True, slots=True)
class Bands:
    """Tiles of rows that are made before the next ones are begun, of all channels.

    `is_shared`: threads share them, a thread has some after one another; or bands of so many `channels`, 0 for all.
    """

    rows: int
    is_shared: bool
    channels: int = 0


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of an output: around a tile; over bands of rows, blocks of channels and rows. "" for none.

    `alone`: whether one thread has all rows of a block.
    """

    tile: str
    bands: str
    blocks: str
    rows: str
    alone: bool


def schedule_convolution(room: Room, group: Group, windows: WindowSum, bands: Bands | None = None) -> str:
    """Keep a tile of pixels and channels in registers over all input channels, for each place of the window.

    Returns the loop over bands, or the one around a tile.
    """
    s, target, anchor = room.s, room.target, anchor_of(room, group)
    tile = _decide(room, windows)
    acc = accumulator(s, anchor)
    if _is_packed(windows, tile.block):
        _pack_weights(s, acc, windows, tile.block, target)
    if windows.axes[-1] == windows.x:
        _channels_last(s[acc], windows, tile.block)
    loops = _schedule_output(s, anchor, windows, tile, bands)
    s[acc].compute_at(s[anchor.output], loops.tile)
    _schedule_sum(room, acc, windows, tile, loops)
    place_producers(room, group, inline=False)
    if windows.extent(windows.down) == 1 and loops.alone and _rows_first(windows, target):
        _make_by_rows(s, group, acc, anchor.output, loops.rows)
    return loops.bands or loops.tile


def _decide(room: Room, windows: WindowSum) -> Tile:
    """The numbers of a tile: in an open room, candidates around those of the plan."""
    usual, lanes = tile_of(windows, room.target), room.target.lanes(windows.bits)
    high, wide = windows.extent(windows.y), windows.extent(windows.x)
    whole = 0 if windows.by_channels else _unbroken(windows)
    sizes = [n for n in range(1, whole + 1) if whole % n == 0]
    if not whole:
        features = windows.extent(windows.outputs[-1]) if windows.by_channels else windows.features
        sizes = [*vector_widths(features or usual.block, lanes)]
    parts = [n for n in range(1, _WIDEST + 1) if wide % n == 0]
    rows = room.choose("rows", up_to(ROWS, high), usual.rows)
    columns = room.choose("columns", sorted({*up_to(ROWS, wide), *parts}), usual.columns)
    blocks = room.choose("blocks", up_to(ROWS, windows.extent(*windows.outputs[:-1])), usual.blocks)
    block = room.choose("block", sizes, usual.block)
    room.limit_tile(windows.bits, ("rows", "columns", "blocks"), "block", "copies")
    return Tile(rows, columns, blocks, block)


def _is_packed(windows: WindowSum, block: int) -> bool:
    """Whether weights are laid out in blocks first: unless they are so, or all of them are two."""
    if windows.by_channels:
        return False
    return windows.stored_block is None or (windows.stored_block == 0 and (windows.features or 0) > 2 * block)


def _channels_last(acc: Stage, windows: WindowSum, block: int) -> None:
    """Lay sums out in blocks of output channels, [batch, o / block, y, x, block]."""
    size = as_index(block)

    def blocks(*at: Expr) -> list[Expr]:
        place = dict(zip(windows.axes, at, strict=True))
        (o,) = (place[axis] for axis in windows.outputs)
        pixel = [place[axis] for axis in (windows.y, windows.x) if axis]
        return [*(place[axis] for axis in windows.batch), o // size, *pixel, o % size]

    acc.transform_layout(blocks)


def tile_of(windows: WindowSum, target: Target) -> Tile:
    """Choose the tile: two vectors of channels, or what blocks and groups leave of that, and pixels to fill registers.

    Columns in parts as equal as can be. Several rows, which use each vector of weights more often, only of images that
    are narrow; where padding makes the rows of a tile unlike, which takes more copies, only for a stream of weights.
    No more pixels than the first cache keeps while they are read side by side.
    """
    lanes, extents = target.lanes(windows.bits), windows.extents
    if windows.by_channels:
        return Tile(1, min(_PIXELS, extents.get(windows.x, _PIXELS)), 1, lanes)
    block = _channel_block(windows, 2 * lanes)
    blocks = max(1, min(2 * lanes // block, windows.extent(*windows.outputs[:-1])))
    vectors = blocks * -(-block // lanes)
    spare = 1 if target.lanes(32) > _SHORT else _SHORT
    most = max(1, min((target.vector_registers - spare) // vectors - 1, side_by_side(windows.apart)))
    high, wide = extents.get(windows.y), extents.get(windows.x)
    if windows.x in windows.cut:
        most = max(1, min(most, MOST_COPIES // (blocks * windows.extent(windows.right))))
    if wide is None:
        return Tile(1, most, blocks, block)
    columns = best_part(wide, 1, most, vectors)
    if windows.y in windows.cut:
        copies = blocks * windows.extent(windows.down, windows.right)
        most = 1 if _rows_first(windows, target) else min(most, MOST_COPIES // copies)
    if columns < wide or high is None:
        return Tile(1, columns, blocks, block)
    return Tile(best_part(high, columns, max(1, most // columns), vectors), columns, blocks, block)


def _channel_block(windows: WindowSum, most: int) -> int:
    """Output channels of a block: as many as may be, unless blocks of weights or groups end before that."""
    whole = _unbroken(windows)
    if whole:
        return max(n for n in range(1, most + 1) if whole % n == 0)
    return most if windows.features is None else min(most, windows.features)


def _unbroken(windows: WindowSum) -> int:
    """What blocks of channels have to divide: blocks of weights, and groups; 0 where there are none."""
    grouped = windows.features is not None and windows.features != windows.extent(*windows.outputs)
    return gcd(windows.stored_block or 0, windows.features or 0 if grouped else 0)


def can_pack(windows: WindowSum) -> bool:
    """Whether every dimension of the weights is an axis of its own, so that they can be laid out in blocks."""
    moved = [variables(index) for index in windows.weight.index]
    wanted = {*windows.outputs, *filter(None, (windows.down, windows.right)), *windows.inputs}
    single = all(isinstance(index, Var) for index in windows.weight.index)
    return len(windows.outputs) == 1 and single and set().union(*moved) == wanted and len(moved) == len(wanted)


def _pack_weights(s: Schedule, acc: str, windows: WindowSum, block: int, target: Target) -> None:
    """Copy the weights into blocks of output channels, [o / block, y, x, c, block]."""
    if not can_pack(windows):
        return  # blocks of another kind: read as they are
    size, axes = as_index(block), [next(iter(variables(index))) for index in windows.weight.index]
    (output,) = windows.outputs
    terms = [axis for axis in (windows.down, windows.right, *windows.inputs) if axis]
    near = next((axis for axis in reversed(axes) if windows.extents.get(axis) != 1), axes[-1])

    def blocks(*at: Expr) -> list[Expr]:
        place = dict(zip(axes, at, strict=True))
        return [place[output] // size, *(place[axis] for axis in terms), place[output] % size]

    packed = s[s.cache_read(windows.weight.buffer.name, "global", [acc])]
    first, *inner, lane = packed.transform_layout(blocks)
    if near in terms:  # rows along it are contiguous, and turned around in registers
        along = inner.pop(terms.index(near))
        packed.reorder(first, *inner, lane, along)
    packed.vectorize(lane)
    if worth_threads({n: e for n, e in windows.extents.items() if n in axes}, target):
        share_out(s, packed.name, [first.name], target)


def _make_by_rows(s: Schedule, group: Group, acc: str, output: str, rows: str) -> None:
    """Make what stands in front for some rows at a time, which stay in the cache while they are read.

    What weights are made of is not: those are laid out before all rows.
    """
    inside = {acc, output}
    for stage in reversed(group.producers) if rows else ():
        alone = stage.name in s.state.stages and s.state.stages[stage.name].attach is None
        made_here = alone and inside.issuperset(s.program.consumers[stage.name])
        if made_here and s.attempt(partial(s[stage.name].compute_at, s[output], rows)):
            inside.add(stage.name)


def _schedule_output(s: Schedule, anchor: Anchor, windows: WindowSum, tile: Tile, bands: Bands | None) -> Loops:
    """Tile the output. Threads share rows."""
    out = s[anchor.output]
    axis = dict(zip(windows.axes, axes_of(s, anchor.output), strict=True))

    def split(name: str, factor: int) -> tuple[str, str]:
        outer, inner = out.split(axis[name], factor=factor, tail="peel")
        return outer.name, inner.name

    rows, row = ([part] for part in split(windows.y, tile.rows)) if windows.y else ([], [])
    columns, column = split(windows.x, tile.columns)
    *further, feature = windows.outputs
    blocks, together = ([part] for part in split(further[0], tile.blocks)) if further else ([], [])
    around, lanes = split(feature, tile.block)
    batch, blocks = [axis[name] for name in windows.batch], [*blocks, around]
    order = [*batch, *rows, *blocks] if _rows_first(windows, anchor.target) else [*batch, *blocks, *rows]
    is_shared, shared, band = worth_threads(windows.extents, anchor.target), order, ""
    if bands is not None:
        is_shared = bands.is_shared
        band, inside = (loop.name for loop in out.split(rows[0], factor=bands.rows, tail="peel"))
        if is_shared and bands.channels:
            count = max(1, bands.channels // tile.block)
            part, around = (loop.name for loop in out.split(around, factor=count, tail="peel"))
            batch, blocks = [*batch, part], [around]
        elif is_shared:
            part, band = (loop.name for loop in out.split(band, nparts=anchor.target.cores, tail="peel"))
            batch = [*batch, part]
        shared, rows, order = batch, [inside], [*batch, band, inside, *blocks]
    elif windows.extent(feature) % tile.block and rows and rows[0] in order[: order.index(around)]:
        shared = order[: order.index(around)]  # fused with rows, blocks of two sizes would be guarded ones
    out.reorder(*order, columns, *together, *row, column, lanes)
    copied, vector = (row, column) if windows.axes[-1] == windows.x else ([*together, *row, column], lanes)
    for name in [] if calls(out) else copied:  # a function in every row of a tile is a lot of code
        out.unroll(name)
    out.vectorize(vector)
    alone = bands is not None or not is_shared
    if is_shared:
        loop, fused = share_out(s, anchor.output, shared, anchor.target)
        alone, around = alone or not {*rows} & {*fused}, loop if around in fused else around
    return Loops(columns, band, around, rows[0] if rows else "", alone)


def _schedule_sum(room: Room, acc: str, windows: WindowSum, tile: Tile, loops: Loops) -> None:
    """One place of the window after the other, all input channels for each, or those of a block.

    A template says how many `inputs` a block has, and whether the window's columns are `copies`.
    """
    stage, channels = room.s[acc], sorted(windows.inputs, key=lambda axis: windows.extent(axis) > 1)  # of one, first
    if "inputs" in room.given:
        channels[-1:] = (str(part) for part in stage.split(channels[-1], factor=room.given["inputs"]))
    pixel = [axis for axis in (windows.y, windows.x) if axis]
    turned = (*windows.batch, "", *pixel, *windows.outputs)
    at = dict(zip(turned if windows.axes[-1] == windows.x else windows.axes, axes_of(room.s, acc), strict=True))
    blocks, lanes = [at[name] for name in ("", *windows.outputs[:-1]) if name in at], at[windows.outputs[-1]]
    places = [axis for axis in (windows.down, windows.right) if axis]
    # Blocks inside pixels: a pixel in a register serves all blocks before the next takes its place.
    inside = [*(at[axis] for axis in pixel), *blocks]
    around = [at[axis] for axis in windows.batch]
    stage.reorder(*around, *channels[:-1], *places, *channels[-1:], *inside, lanes)
    if tile.rows > 1 and windows.y in windows.cut:
        stage.unroll(windows.down)
    few = windows.by_channels and windows.extent(windows.down, windows.right) * _PIXELS <= MOST_COPIES
    if room.given.get("copies", few or windows.x in windows.cut):
        stage.unroll(windows.right)
    for name in inside:
        stage.unroll(name)
    stage.vectorize(lanes)
    rows = ceil(windows.extent(windows.y) / tile.rows)
    if channels and not windows.by_channels and (rows == 1 or not _rows_first(windows, room.target)):
        _fetch(stage, channels[-1], windows, tile, loops, rows)


def _fetch(stage: Stage, channel: str, windows: WindowSum, tile: Tile, loops: Loops, rows: int) -> None:
    """Prefetch weights: tiles of rows, or those of columns of a single one, share out those of the next block."""
    read = {load.buffer.name for load in loads(stage.schedule.state.compute_op(stage.name))}
    (weights,) = read - {windows.data.buffer.name}
    shared, sharers = loops.rows, rows
    if rows == 1:
        shared, sharers = loops.tile, ceil(windows.extent(windows.x) / tile.columns)
    if loops.bands or not loops.alone:
        sharers = 1
    step = tile.block * dtypes.info(windows.weight.dtype).bytes
    fetch_weights(stage, weights, channel, loops.blocks, shared, sharers, step)


def _rows_first(windows: WindowSum, target: Target) -> bool:
    """Whether all weights stay in the cache, so that the data need come by only once.

    Where many of them come from far, and the data stay too, it is faster to fetch one block while all rows take the
    one before.
    """
    if not weights_stay([windows], target):
        return False
    size = windows.extent(*windows.batch, windows.y, windows.x, *windows.inputs) * dtypes.info(windows.data.dtype).bytes
    return size > target.second_cache // 2 or weights_stay([windows], target, _FEW_WEIGHTS)


def weights_stay(sums: Iterable[WindowSum], target: Target, part: float = 0.5) -> bool:
    """Whether the weights of some convolutions fill a part of the second cache at most; those by channels are few."""
    mixing = [w for w in sums if not w.by_channels]
    sizes = [w.extent(*w.outputs, *w.inputs, w.down, w.right) * dtypes.info(w.weight.dtype).bytes for w in mixing]
    return sum(sizes) <= target.second_cache * part
