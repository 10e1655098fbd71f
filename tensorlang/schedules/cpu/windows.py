"""Sums over windows: which form suits them; and those that slide over each channel by itself, or over few.

Depthwise and narrow convolutions, pooling, filters of images: where rows are contiguous, a tile is some rows of one
vector of columns. What padding cuts off a row is a condition of the lanes, so that vectors keep their places; what it
cuts off above and below shortens the loops. Others, and convolutions of many channels, are those of `cpu.convolution`.
"""

from __future__ import annotations

from functools import partial

from tensorlang.ir.expr import variables
from tensorlang.schedule.stage import Stage
from tensorlang.schedules.anchor import Anchor, accumulator, axes_of
from tensorlang.schedules.candidates import ROWS, up_to, vector_widths
from tensorlang.schedules.cpu.convolution import MOST_COPIES, can_pack, schedule_convolution
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


def window_forms(target: Target, group: Group) -> list[Form]:
    """The form of a sum over windows, whatever is summed; none for other stages."""
    windows = window_sum(group.main.op)
    if windows is None:
        return []
    along = variables(windows.data.index[-1])
    if windows.axes[-1] == windows.x and _is_few(windows) and windows.y and windows.x in along:
        why = f"windows slide along {windows.x} over channels by themselves: some rows of a vector of columns"
        return [Form("windows.rows", partial(_schedule_sliding, group=group, windows=windows), why=why)]
    if not _is_convolution(windows) or _is_filter(windows):
        return []
    why = f"windows slide along {windows.x}: a tile of pixels of vectors along {windows.outputs[-1]}"
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
    is_large = bool(target.caches) and size > target.second_cache // 2
    few = (windows.features or 1) <= 2 * target.lanes(windows.bits)
    return windows.chooses or (windows.extent(windows.down, windows.right) == 1 and few and is_large)


def _is_few(windows: WindowSum) -> bool:
    return windows.features is None or windows.features <= _FEW


def _is_filter(windows: WindowSum) -> bool:
    """Whether windows slide along one axis, that of memory, over each channel by itself: vectors of results do, too."""
    return not windows.y and windows.axes[-1] == windows.x and windows.features == 1 and not windows.inputs


def _is_convolution(windows: WindowSum) -> bool:
    """Whether data or weights come in vectors of output channels, or can be laid out so, and sums are stored so."""
    if windows.by_channels:
        return True
    if windows.factor is None or not windows.outputs:
        return False
    stored = windows.axes[-1] == windows.outputs[-1] or (windows.axes[-1] == windows.x and len(windows.outputs) == 1)
    return stored and (can_pack(windows) or windows.stored_block is not None)


def _schedule_sliding(room: Room, group: Group, windows: WindowSum) -> None:
    """Keep a tile of pixels in registers over the whole window."""
    s, anchor = room.s, anchor_of(room, group)
    acc = accumulator(s, anchor)
    around, names = _tile_rows(room, anchor, windows)
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
    if _copies(windows) * -(-wide // lanes) <= MOST_COPIES:
        out.unroll(around[-1])  # the conditions of lanes are constant in a copy
    for name in unrolled:
        out.unroll(name)
    out.vectorize(column)
    if worth_threads(windows.extents, room.target):
        share_out(s, anchor.output, around[:-1], room.target)
    return around[-1], [*cut]


def _schedule_window(stage: Stage, windows: WindowSum, tile: list[str]) -> None:
    around = [name for name in windows.axes if name not in tile]
    stage.reorder(*around, *windows.inputs, windows.down, windows.right, *tile)
    if _copies(windows) <= MOST_COPIES:
        stage.unroll(windows.right)
    for name in (windows.down, *tile[:-1]):
        stage.unroll(name)
    stage.vectorize(tile[-1])


def _copies(windows: WindowSum) -> int:
    """The vector operations of a tile."""
    return windows.extent(windows.down, windows.right) * _CHAINS
