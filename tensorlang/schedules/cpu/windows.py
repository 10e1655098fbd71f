"""Sums over windows: which form suits them; and those that slide over each channel by itself, or over few.

Depthwise and narrow convolutions, pooling, filters of images: where rows are contiguous, a tile is some rows of one
vector of columns. What padding cuts off a row is a condition of the lanes, so that vectors keep their places; what it
cuts off above and below shortens the loops. Where channels are contiguous, a tile is some pixels of a vector of
channels, and the loops are shorter on all sides. Other convolutions are those of `cpu.convolution`.
"""

from __future__ import annotations

from functools import partial

from tensorlang.ir.expr import variables
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of
from tensorlang.schedules.candidates import ROWS, up_to, vector_widths
from tensorlang.schedules.cpu.convolution import can_pack, schedule_convolution
from tensorlang.schedules.cpu.producers import anchor_of, place_producers
from tensorlang.schedules.cpu.shares import share_out, worth_threads
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.windows import WindowSum, window_sum
from tensorlang.target.spec import Target

_FEW = 8
"""Output channels that read the same data: with more of them vectors of channels are better than of pixels."""
_CHAINS = 4
"""Independent results of a tile: more would leave no registers for the weights."""
_PIXELS = 6
_MOST_COPIES = 256
"""Vector stores that the copies of a tile may make."""


def window_forms(target: Target, group: Group) -> list[Form]:
    """The form of a sum over windows, whatever is summed; none for other stages."""
    windows = window_sum(group.main.op)
    if windows is None:
        return []
    last, along = windows.axes[-1], variables(windows.data.index[-1])
    by_channels = last in windows.outputs and last in along and windows.extent(*windows.inputs) == 1
    if last == windows.x and _is_few(windows) and windows.y and windows.x in along:
        why = f"windows slide along {windows.x} over channels by themselves: some rows of a vector of columns"
        return [Form("windows.rows", partial(_schedule_sliding, group=group, windows=windows), why=why)]
    if by_channels and windows.y:
        why = f"windows slide over channels by themselves: some pixels of a vector along {last}"
        return [Form("windows.channels", partial(_schedule_sliding, group=group, windows=windows), why=why)]
    if not _is_convolution(windows):
        return []
    why = f"windows slide along {windows.x}, and {windows.weight.buffer.name} is read along {windows.outputs[-1]}"
    return [Form("windows.pixels", partial(schedule_convolution, group=group, windows=windows), why=why)]


def rows_come_first(target: Target, group: Group) -> bool:
    """Whether vectors of pixels beat those of channels all the same, so that other forms are tried before.

    Choices in the terms are made pixel by pixel there. A large image of few channels is stored faster by rows than
    turned around, where there is but one product for each input channel.
    """
    windows = window_sum(group.main.op)
    if windows is None or windows.factor is None or windows.axes[-1] != windows.x or _is_few(windows):
        return False
    size = windows.extent(*windows.axes) * windows.bits // 8
    is_large = bool(target.caches) and size > target.caches[min(1, len(target.caches) - 1)] // 2
    few = (windows.features or 1) <= 2 * target.lanes(windows.bits)
    return windows.chooses or (windows.extent(windows.down, windows.right) == 1 and few and is_large)


def _is_few(windows: WindowSum) -> bool:
    return windows.features is None or windows.features <= _FEW


def _is_convolution(windows: WindowSum) -> bool:
    """Whether weights come, or can be laid out, in vectors of output channels, and sums are stored along those."""
    if windows.factor is None or not windows.outputs:
        return False
    stored = windows.axes[-1] == windows.outputs[-1] or (windows.axes[-1] == windows.x and len(windows.outputs) == 1)
    return stored and (can_pack(windows) or windows.stored_block is not None)


def _schedule_sliding(room: Room, group: Group, windows: WindowSum) -> None:
    """Keep a tile of pixels in registers over the whole window."""
    s, anchor = room.s, anchor_of(room, group)
    acc = accumulator(s, anchor)
    tile = _tile_rows if windows.axes[-1] == windows.x else _tile_pixels
    around, names = tile(room, anchor, windows)
    s[acc].compute_at(s[anchor.output], around)
    _schedule_window(s[acc], windows, names)
    place_producers(room, group, inline=False)


def _tile_rows(room: Room, anchor: Anchor, windows: WindowSum) -> tuple[str, list[str]]:
    """Some rows (and channels that read the same data) of one vector of columns; the loop around a tile, its axes."""
    s, lanes = room.s, room.target.lanes(windows.bits)
    out, axis = s[anchor.output], dict(zip(windows.axes, axes_of(s, anchor.output), strict=True))
    wide, channel = windows.extents.get(windows.x, 1 << 20), windows.outputs[-1:]
    shared = [n for n in range(1, _CHAINS + 1) if (windows.features or 1) % n == 0]
    together = room.choose("channels", shared, shared[-1]) if channel else 1
    tall = room.choose("rows", up_to(ROWS, windows.extent(windows.y)), _CHAINS // shared[-1])
    width = room.choose("width", vector_widths(wide, lanes), min(lanes, wide))
    room.limit_tile(windows.bits, ("rows", "channels"), "width", "copies")
    cut = {name: out.split(axis[name], factor=together, tail="peel") for name in channel}
    cut[windows.y] = out.split(axis[windows.y], factor=tall, tail="peel")
    cut[windows.x] = out.split(axis[windows.x], factor=width, tail="peel")
    around = [axis[name] for name in windows.axes if name not in cut] + [str(outer) for outer, _ in cut.values()]
    *unrolled, column = (str(inner) for _, inner in cut.values())
    out.reorder(*around, *unrolled, column)
    if _copies(windows) * -(-wide // lanes) <= _MOST_COPIES:
        out.unroll(around[-1])  # the conditions of lanes are constant in a copy
    for name in unrolled:
        out.unroll(name)
    out.vectorize(column)
    if worth_threads(windows.extents, room.target):
        share_out(s, anchor.output, around[:-1], room.target)
    return around[-1], [*cut]


def _tile_pixels(room: Room, anchor: Anchor, windows: WindowSum) -> tuple[str, list[str]]:
    """Some pixels of one vector of channels; the loop around a tile, and its axes."""
    s, lanes, (*others, last) = room.s, room.target.lanes(windows.bits), windows.axes
    out, axis = s[anchor.output], dict(zip(windows.axes, axes_of(s, anchor.output), strict=True))
    width = room.choose("width", vector_widths(windows.extents.get(last, lanes), lanes), lanes)
    wide = windows.extents.get(windows.x, _PIXELS)
    pixels = room.choose("pixels", up_to(ROWS, wide), min(_PIXELS, wide))
    room.limit_tile(windows.bits, ("pixels",), "width", "copies")
    blocks, lane = (str(a) for a in out.split(axis[last], factor=width, tail="peel"))
    columns, pixel = (str(a) for a in out.split(axis[windows.x], factor=pixels, tail="peel"))
    outside = [axis[name] for name in others if name != windows.x]
    out.reorder(*outside, blocks, columns, pixel, lane)
    out.unroll(pixel)
    out.vectorize(lane)
    if worth_threads(windows.extents, room.target):
        share_out(s, anchor.output, outside, room.target)
    return columns, [windows.x, last]


def _schedule_window(stage: Stage, windows: WindowSum, tile: list[str]) -> None:
    by_rows = tile[-1] == windows.x
    around = [name for name in windows.axes if name not in tile]
    stage.reorder(*around, *windows.inputs, windows.down, windows.right, *tile)
    if _copies(windows) <= _MOST_COPIES:
        stage.unroll(windows.right)
    if by_rows:
        stage.unroll(windows.down)
    for name in tile[:-1]:
        stage.unroll(name)
    stage.vectorize(tile[-1])


def _copies(windows: WindowSum) -> int:
    """The vector operations of a tile."""
    return windows.extent(windows.down, windows.right) * _CHAINS
