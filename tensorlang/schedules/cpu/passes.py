"""Schedules of rows that no cache keeps: one pass over all rows for each sum, and one for what is made of them.

Statistics over images whose channels lie side by side are the typical case: a vector of channels reads a line of memory
of each pixel, and all pixels of one channel do not stay until the next pass.
"""

from __future__ import annotations

from functools import partial
from math import prod

from tensorlang.schedules.anchor import Anchor
from tensorlang.schedules.cpu.points import schedule_elementwise
from tensorlang.schedules.cpu.producers import place_producers
from tensorlang.schedules.cpu.reductions import schedule_sums
from tensorlang.schedules.recognise import Group
from tensorlang.schedules.room import Form, Room
from tensorlang.target.spec import Target


def pass_forms(target: Target, group: Group) -> list[Form]:
    """A form for rows that lie across memory, of which the second cache does not keep a vector; none for others."""
    output = group.output
    if not group.parts or not group.along or len(output.spatial) - 1 in group.along:
        return []
    length = prod(output.extents[output.spatial[d]] for d in group.along)
    if length * target.vector_bytes <= target.second_cache:
        return []
    why = "rows lie across memory and no cache keeps them: a pass over all rows for each sum"
    return [Form("rows.passes", partial(_schedule, group=group), why=why)]


def _schedule(room: Room, group: Group) -> None:
    """Every sum for itself, as vectors of sums; what is made of them where it is read."""
    place_producers(room, group, inline=True)
    sums = [part for part in group.parts if part.reduce]
    for part in group.parts:
        if part not in sums:
            room.s[part.name].compute_inline()
    for number, part in enumerate(sums):
        schedule_sums(room, Anchor(part.name, part.name, room.target), f"sum_{number}_")
    schedule_elementwise(room, group.output.name)
