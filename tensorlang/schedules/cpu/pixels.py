"""Pixels of a few channels: vectors of pixels, in each of which all channels are made.

Along memory neighbours are different channels, for which expressions differ: what weighs channels by numbers, or reads
another channel of the pixel, has no vectors there. Vectors of pixels are taken apart and put together in registers, so
that memory is read and written as it lies.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Load, Var, variables, walk
from tensorlang.ir.operators import DIVISION
from tensorlang.schedules.accesses import bytes_apart
from tensorlang.schedules.anchor import axes_of, compute_op
from tensorlang.schedules.cpu.points import contiguous_axes, run_along, run_in_parallel
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.moves import cuts_of, near_axis
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target
from tensorlang.te.operation import loads as loads_of

CHANNELS = 4
"""Channels at most."""
_FAR = 8
"""Elements from pixel to pixel at most: vectors are taken out of rows of so many times their length."""
_LEAST = 8
"""Pixels in a row that are worth vectors of them."""


@dataclass(frozen=True, slots=True)
class Pixels:
    """The axis of a stage that numbers channels, and that along which pixels lie side by side.

    `phases`: there is no such axis, but every so many elements of a row are made alike, as where an image is enlarged.
    `is_gathered`: data or floats say where pixels are read.
    """

    channel: str
    along: str
    phases: int = 1
    is_gathered: bool = False


def pixel_forms(target: Target, group: Group) -> list[Form]:
    """The form of an elementwise group that computes pixels of a few channels; none for others."""
    pixels = _pixels_of(group)
    if pixels is None:
        return []
    why = f"vectors along {pixels.along}, all {pixels.channel} of each"
    if pixels.is_gathered:
        why = f"pixels that lie where they were computed, one after the other, in vectors of {pixels.channel}"
    return [Form("pixels", partial(_schedule, group=group, pixels=pixels), why)]


def _pixels_of(group: Group) -> Pixels | None:
    """The channels that lie side by side in what is written, or else in what is read."""
    main, stages = group.main, (group.main, *group.producers)
    if len(main.spatial) < 2:
        return None
    *_, along, last = main.spatial
    near = next((axis for axis in map(near_axis, stages) if axis in main.spatial), None)
    if 1 < main.extents[last] <= CHANNELS and any(contiguous_axes(stage.op) == 1 for stage in stages):
        found = Pixels(last, along)
    elif near is not None and 1 < main.extents[near] <= CHANNELS:
        found = Pixels(near, last)
    elif phases := _phases(group):
        found = Pixels(last, last, phases)
    else:
        return None
    loads = [load for stage in stages for load in loads_of(stage.op)]
    is_far = any(bytes_apart(load, found.along) > _FAR * dtypes.info(load.dtype).bytes for load in loads)
    if any(_is_gathered(load, found) for load in loads):
        is_whole = found.channel == last != found.along and len(main.op.axes) == len(main.spatial)
        return replace(found, is_gathered=True) if is_whole else None
    return None if is_far or main.extents[found.along] < _LEAST else found


def _is_gathered(load: Load, pixels: Pixels) -> bool:
    """Whether data, or floats, say which pixels are read along an axis, of which channels lie side by side."""
    side_by_side = bool(load.index) and isinstance(load.index[-1], Var) and load.index[-1].name == pixels.channel
    parts = [node for index in load.index if pixels.along in variables(index) for node in walk(index)]
    return side_by_side and any(
        isinstance(n, Load) or (isinstance(n, Cast) and dtypes.info(n.value.dtype).is_float) for n in parts
    )


def _phases(group: Group) -> int:
    """What places along a row are divided by, if that is one small number; else 0."""
    last = group.main.spatial[-1]
    values = [value for stage in (group.main, *group.producers) for value in stage.op.body]
    divided = (n for value in values for n in walk(value) if isinstance(n, Binary) and n.op in DIVISION)
    places = (n for n in divided if last in variables(n.a) and not any(isinstance(part, Load) for part in walk(n.a)))
    divisors = {n.b.value if isinstance(n.b, Const) else 0 for n in places}
    (divisor,) = divisors if len(divisors) == 1 else (0,)
    return int(divisor) if 1 < divisor <= CHANNELS else 0


def _schedule(room: Room, group: Group, pixels: Pixels) -> None:
    """Vectors along rows, in each all channels; piece by piece, where rows come from several places."""
    place_producers(room, group, inline=True)
    s, name = room.s, group.main.name
    op, stage, names = compute_op(s, name), s[name], axes_of(s, name)
    outer = [axis for axis in names if axis not in (pixels.channel, pixels.along)]
    if pixels.phases > 1:
        pixel, phase = stage.split(pixels.along, factor=pixels.phases, tail="peel")
        stage.unroll(phase)
        stage.vectorize(pixel)
        run_in_parallel(s, name, outer, room.target)
        return
    stage.reorder(*outer, pixels.along, pixels.channel)
    if pixels.is_gathered:  # pixel by pixel, with what is the same along a row in front of it
        stage.vectorize(pixels.channel)
        run_in_parallel(s, name, outer, room.target)
        return
    stage.unroll(pixels.channel)
    if cuts := cuts_of(op, names.index(pixels.along)):
        run_in_parallel(s, name, outer, room.target)
        for piece in stage.partition(pixels.along, cuts):
            stage.vectorize(piece)
    else:
        run_along(room, name, outer, pixels.along)
