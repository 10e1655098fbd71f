"""Reductions with few results, or along memory: vectors of partial results, in pieces where threads want more."""

from __future__ import annotations

from functools import partial

from tensorlang.autotune.space.producers import place_producers
from tensorlang.autotune.space.room import Form, Room
from tensorlang.autotune.space.structure import Group
from tensorlang.autotune.task import Task
from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.reductions import schedule_reduction


def lane_forms(task: Task, group: Group) -> list[Form]:
    """Forms for any reduction: lanes of partial results, or its loops as declared."""
    if not group.main.reduce:
        return []
    return [
        Form("lanes", partial(_schedule_lanes, group=group), opens=True),
        Form("declared", partial(_schedule_declared, group=group), opens=True),
    ]


def _schedule_lanes(room: Room, group: Group) -> None:
    s = room.s
    place_producers(room, group, inline=True)
    for stage in group.between:
        s[stage.name].compute_inline()
    schedule_reduction(s, Anchor(group.main.name, group.output.name, room.target))


def _schedule_declared(room: Room, group: Group) -> None:
    s = room.s
    place_producers(room, group, inline=True)
    for stage in group.between:
        s[stage.name].compute_inline()
    main, loops = group.main, s[group.main.name]
    _, inner = loops.split(main.reduce[-1], factor=min(8, main.extents[main.reduce[-1]]))
    loops.unroll(inner)
    if room.task.threads > 1 and main.spatial:
        s.attempt(lambda: loops.parallel(main.spatial[0]))
