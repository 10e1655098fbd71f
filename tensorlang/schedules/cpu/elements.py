"""Stages without a reduction: arithmetic element by element, and data that changes its place."""

from __future__ import annotations

from functools import partial

from tensorlang.schedules.candidates import UNROLLS, up_to
from tensorlang.schedules.cpu.moves import comes_in_pieces, schedule_pieces, schedule_turned
from tensorlang.schedules.cpu.panels import schedule_panels
from tensorlang.schedules.cpu.pixels import pixel_forms
from tensorlang.schedules.cpu.points import schedule_elementwise
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.moves import chooses, near_axis
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.words import is_word_layout
from tensorlang.target.spec import Target


def elementwise_forms(target: Target, group: Group) -> list[Form]:
    """Along memory; in pieces, where a row comes from several places; in tiles, where it reads across its vectors.

    Vectors that are put together by a choice, as where a last panel is filled up, are not turned around.
    """
    if not group.main.spatial:
        return [Form("scalar", partial(_schedule_scalar, group=group), "a single element")]
    found = [
        Form("along", partial(_schedule_along, group=group), "element by element, along memory"),
        Form("plain", partial(_schedule_plain, group=group), "scalar code, always legal"),
    ]
    if is_word_layout(group.main.op):
        return [Form("panels", partial(_schedule_panels, group=group), "narrow numbers in panels of words"), *found]
    moved = (group.main, *group.producers)  # the latter are computed where they are read
    if any(near_axis(stage) for stage in moved):
        turned = Form("turned", partial(_schedule_turned, group=group), "reads lie across its vectors: turned in tiles")
        found.insert(int(any(chooses(stage.op) for stage in moved)), turned)
    if any(comes_in_pieces(stage.op) for stage in moved):
        pieces = Form("pieces", partial(_schedule_pieces, group=group), "rows come from several places, piece by piece")
        found.insert(0, pieces)
    return [*pixel_forms(target, group), *found]


def _schedule_scalar(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)


def _schedule_along(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)
    schedule_elementwise(room, group.main.name)


def _schedule_pieces(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)
    schedule_pieces(room, group.main.name)


def _schedule_panels(room: Room, group: Group) -> None:
    place_producers(room, group, inline=False)
    schedule_panels(room.s, group.main.name, room.target)


def _schedule_plain(room: Room, group: Group) -> None:
    """Scalar code, its outermost loop in parallel: what is always legal."""
    place_producers(room, group, inline=False)
    stage = room.s[group.main.name]
    last = group.main.spatial[-1]
    usual = min(UNROLLS[-1], group.main.extents[last])
    _, inner = stage.split(last, factor=room.choose("unroll", up_to(UNROLLS, usual), usual))
    stage.unroll(inner)
    if room.target.cores > 1:
        room.s.attempt(lambda: stage.parallel(stage.leaf_iter_vars[0]))


def _schedule_turned(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)
    schedule_turned(room, group.main.name)
