"""Convolutions in bands: the rows that one makes are read by the next while they are in the cache.

A convolution over each channel by itself does little for each element that it reads and writes, and those around it,
from few channels to many and back, make these images large. So all of them make a band of rows before the next band is
begun. Rows that the windows of two bands read are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil

from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.cpu.convolution import Bands, schedule_convolution, weights_stay
from tensorlang.schedules.cpu.shares import worth_threads
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.windows import WindowSum, convolution
from tensorlang.target.spec import Target

_BANDS = (1, 2, 4, 8)
_BAND = 2
"""Tiles of rows of a band: with fewer, more of its rows are read twice; with more, they take more of the cache."""
_HIGH = 4
"""Rows that are worth bands."""
_CLEARLY = 0.9
"""The part of the work of a thread that channels have to take instead of rows: data are read by all of them then."""


def band_form(groups: Sequence[Group]) -> Form:
    """The form of convolutions of which each reads what the one before makes."""
    names = " and ".join(group.main.name for group in groups[:-1])
    return Form("bands", partial(_schedule, groups=groups), why=f"rows of {names} are made as they are read")


def are_worth_bands(windows: Sequence[WindowSum], target: Target) -> bool:
    """Whether convolutions, one after another, have rows enough, and weights that stay in the cache meanwhile."""
    return windows[-1].extent(windows[-1].y) >= _HIGH and weights_stay(windows, target)


def _schedule(room: Room, groups: Sequence[Group]) -> None:
    """Each as it would be by itself, in the loop over bands of the last one, which alone is shared out to threads."""
    *before, last = groups
    windows = [convolution(group.main.op) for group in groups]
    reader, high = windows[-1], windows[-1].extent(windows[-1].y)
    rows = room.choose("band", up_to(_BANDS, high), min(_BAND, high))
    bands = schedule_convolution(room, last, reader, _bands(windows, rows, room.target))
    for group, own in zip(reversed(before), reversed(windows[:-1]), strict=True):
        stage = room.s[group.output.name]
        schedule_convolution(room.of(group.main.name, replace(room.target, cores=1)), group, own)
        stage.compute_at(room.s[last.output.name], bands)
        if reader.extent(reader.down) > 1:
            stage.rolling_buffer()
        reader = own


def _bands(windows: Sequence[WindowSum], rows: int, target: Target) -> Bands:
    """Bands of so many rows, shared out by rows, or by channels where each is computed by itself and that is more even.

    Rows that the windows of two threads read are made by both.
    """
    is_shared = any(worth_threads(w.extents, target) for w in windows)
    last, cores, lanes = windows[-1], target.cores, target.lanes(windows[-1].bits)
    high, channels, down = last.extent(last.y), last.extent(*last.outputs), last.extent(last.down)
    if not is_shared or not last.by_channels or channels % lanes:
        return Bands(rows, is_shared)
    unit = 2 * lanes  # of the panels that those before read
    most_rows, most_channels = ceil(ceil(high / rows) / cores) * rows, ceil(ceil(channels / unit) / cores) * unit
    by_rows, by_channels = min(high, most_rows + down - 1) / high, min(1.0, most_channels / channels)
    return Bands(rows, is_shared, most_channels if by_channels < _CLEARLY * by_rows else 0)
