"""Elementwise stages in front of others: computed where they are read, or on their own."""

from __future__ import annotations

from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.points import schedule_elementwise
from tensorlang.schedules.recognise import Group, Stage, is_read_often
from tensorlang.schedules.room import Room


def place_producers(room: Room, group: Group, inline: bool) -> None:
    """Inline the group's producers; those that are read often only if `inline`, else they run on their own."""
    for stage in group.producers:
        wanted = inline or not is_read_often(group, stage)
        if not (wanted and room.s.attempt(room.s[stage.name].compute_inline)):
            schedule_alone(room, stage)


def schedule_alone(room: Room, stage: Stage) -> None:
    """Run a stage on its own: vectors along memory, the outer loops in parallel, where that is legal."""
    room.s.attempt(lambda: schedule_elementwise(room.s, stage.name, room.target))


def anchor_of(room: Room, group: Group) -> Anchor:
    """A group as an anchor: what stands between its main stage and its output is computed where it is read."""
    for stage in group.between:
        room.s[stage.name].compute_inline()
    return Anchor(group.main.name, group.output.name, room.target)
