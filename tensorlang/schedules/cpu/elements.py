"""Stages without a reduction: arithmetic element by element, and data that changes its place."""

from __future__ import annotations

from functools import partial

from tensorlang.ir.expr import Select, walk
from tensorlang.schedules.cpu.moves import turn_around
from tensorlang.schedules.cpu.panels import schedule_panels
from tensorlang.schedules.cpu.points import schedule_elementwise
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.schedules.words import is_word_layout
from tensorlang.target.spec import Target


def elementwise_forms(target: Target, group: Group) -> list[Form]:
    """Along memory; and for a stage that reads across its vectors, square tiles turned around in registers."""
    if not group.main.spatial:
        return [Form("scalar", partial(_schedule_scalar, group=group), True, "a single element")]
    found = [
        Form("along", partial(_schedule_along, group=group), True, "element by element, along memory"),
        Form("plain", partial(_schedule_plain, group=group), True, "scalar code, always legal"),
    ]
    if is_word_layout(group.main.op):
        return [Form("panels", partial(_schedule_panels, group=group), why="narrow numbers in panels of words"), *found]
    near = _near_axis(group)
    if near is not None:
        body = partial(_schedule_turned, group=group, near=near)
        turned = Form("turned", body, True, f"reads lie along {near}: turned in tiles")
        found.insert(int(_chooses(group)), turned)
    return found


def _near_axis(group: Group) -> str | None:
    """The axis along which a read lies in memory, where that is not the axis of the vectors."""
    stage = group.main
    for access in stage.reads:
        for axis in stage.spatial[:-1]:
            if access.stride_one(axis) and stage.spatial[-1] in access.axes:
                return axis
    return None


def _chooses(group: Group) -> bool:
    """Whether vectors are put together by a choice, as where a last panel is filled up: those are not turned around."""
    return any(isinstance(node, Select) for value in group.main.op.body for node in walk(value))


def _schedule_scalar(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)


def _schedule_along(room: Room, group: Group) -> None:
    place_producers(room, group, inline=True)
    schedule_elementwise(room.s, group.main.name, room.target)


def _schedule_panels(room: Room, group: Group) -> None:
    place_producers(room, group, inline=False)
    schedule_panels(room.s, group.main.name, room.target)


def _schedule_plain(room: Room, group: Group) -> None:
    """Scalar code, its outermost loop in parallel: what is always legal."""
    place_producers(room, group, inline=False)
    stage = room.s[group.main.name]
    _, inner = stage.split(group.main.spatial[-1], factor=min(8, group.main.extents[group.main.spatial[-1]]))
    stage.unroll(inner)
    if room.target.cores > 1:
        room.s.attempt(lambda: stage.parallel(stage.leaf_iter_vars[0]))


def _schedule_turned(room: Room, group: Group, near: str) -> None:
    place_producers(room, group, inline=True)
    turn_around(room.s, group.main.name, near, group.main.bits, room.target)
