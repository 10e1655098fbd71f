"""Convolutions in bands: the rows that one makes are read by the next while they are in the cache.

A convolution over each channel by itself does little for each element that it reads and writes, and those around it,
from few channels to many and back, make these images large. So all of them make a band of rows before the next band is
begun. Rows that the windows of two bands read are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.cpu.convolution import schedule_convolution, weights_stay
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.windows import WindowSum, convolution
from tensorlang.target.spec import Target

_BANDS = (1, 2, 4, 8)
_BAND = 2
"""Tiles of rows of a band: with fewer, more of its rows are read twice; with more, they take more of the cache."""
_HIGH = 4
"""Rows that are worth bands."""


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
    windows = convolution(last.main.op)
    band = room.choose("band", up_to(_BANDS, windows.extent(windows.y)), min(_BAND, windows.extent(windows.y)))
    bands, reader = schedule_convolution(room, last, windows, band), windows
    for group in reversed(before):
        own, stage = convolution(group.main.op), room.s[group.output.name]
        schedule_convolution(room.of(group.main.name, replace(room.target, cores=1)), group, own)
        stage.compute_at(room.s[last.output.name], bands)
        if reader.extent(reader.down) > 1:
            stage.rolling_buffer()
        reader = own
