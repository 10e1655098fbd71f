"""Chains of reductions over the same rows, such as softmax and norms: all stages of a row where the row is made."""

from __future__ import annotations

from functools import partial

from tensorlang.autotune.space.room import Form, Room
from tensorlang.autotune.space.structure import Group, Stage
from tensorlang.autotune.task import Task
from tensorlang.schedules.cpu.points import run_in_parallel
from tensorlang.schedules.cpu.rows import Rows, fused, schedule_part


def row_forms(task: Task, group: Group) -> list[Form]:
    """Forms for a group with parts; `inline` computes elements again where they are read instead of keeping them."""
    if not group.parts:
        return []
    several = any(_is_elementwise(group, part) for part in group.parts)
    return [
        Form("rows.inline" if inline else "rows.keep", partial(_schedule, group=group, inline=inline), opens=True)
        for inline in ((False, True) if several else (False,))
    ]


def _is_elementwise(group: Group, part: Stage) -> bool:
    return not part.reduce and len(part.spatial) == len(group.main.spatial)


def _schedule(room: Room, group: Group, inline: bool) -> None:
    s = room.s
    for producer in group.producers:
        s[producer.name].compute_inline()
    parts = list(group.parts)
    for part in [p for p in parts if inline and _is_elementwise(group, p)]:
        s[part.name].compute_inline()
        parts.remove(part)
    leading = min(len(part.spatial) for part in group.parts)
    names = list(group.output.spatial)
    out = s[group.output.name]
    along = fused(out, names[leading:])
    out.vectorize(along)
    loop = run_in_parallel(s, group.output.name, names[:leading], room.target)
    lanes = room.target.lanes(group.output.bits)
    rows = Rows(group.output.name, loop, lanes, horizontal=True, depth=len(names) - leading)
    for part in reversed(parts):
        schedule_part(s, part.name, rows)
