"""Chains of reductions over the same rows on a GPU, such as softmax and norms: a block of threads a row."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from tensorlang.schedules.candidates import powers
from tensorlang.schedules.cpu.rows import fused
from tensorlang.schedules.gpu.block import limit_shared, limit_threads, limits_of
from tensorlang.schedules.gpu.elements import inline_producers
from tensorlang.schedules.recognise import Group, Stage
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.target.spec import Target


def block_row_forms(target: Target, group: Group) -> list[Form]:
    """Forms for a group with parts: `keep` elements of a row in shared memory, or compute them again (`inline`)."""
    if not group.parts:
        return []
    several = any(_is_elementwise(group, part) for part in group.parts)
    return [
        Form("rows.inline" if inline else "rows.keep", partial(_schedule, group=group, inline=inline))
        for inline in ((False, True) if several else (False,))
    ]


def _is_elementwise(group: Group, part: Stage) -> bool:
    return not part.reduce and len(part.spatial) == len(group.main.spatial)


def _schedule(room: Room, group: Group, inline: bool) -> None:
    """All stages of a row where the row is made; their loops run on the same threads."""
    s = room.s
    inline_producers(room, group)
    parts = list(group.parts)
    for part in [p for p in parts if inline and _is_elementwise(group, p)]:
        s[part.name].compute_inline()
        parts.remove(part)
    leading = min(len(part.spatial) for part in group.parts)
    names = list(group.output.spatial)
    length = prod(group.output.extents[axis] for axis in names[leading:])
    limits = limits_of(room)
    threads = room.leave_open("threads", [n for n in powers(limits.max_threads) if n >= min(limits.warp, length)])
    out = s[group.output.name]
    row = fused(out, names[:leading])
    serial, thread = out.split(fused(out, names[leading:]), threads)
    out.reorder(row, serial, thread)
    out.bind(row, "blockIdx.x")
    out.bind(thread, "threadIdx.x")
    for part in reversed(parts):
        loops = s[part.name]
        loops.set_scope("shared")
        loops.compute_at(out, row)
        along = list(part.reduce) or list(part.spatial[leading:])
        if not along:
            continue
        rest, lane = loops.split(fused(loops, along), threads)
        if part.reduce:
            loops.reorder(lane, rest)
        loops.bind(lane, "threadIdx.x")
    kept = sum(prod(part.extents[axis] for axis in part.spatial[leading:]) * part.output.itemsize for part in parts)
    limit_threads(room, ["threads"], length)
    limit_shared(room, lambda values: np.full(values["threads"].shape, float(kept)))

    def useful(values: Columns) -> Mask:
        return np.asarray(values["threads"] < 2 * max(length, limits.warp))

    room.limit("threads have elements of a row to work on", useful)
