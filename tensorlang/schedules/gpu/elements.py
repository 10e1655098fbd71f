"""Stages without a reduction on a GPU: some elements a thread, and data that is turned around in shared memory."""

from __future__ import annotations

from functools import partial
from math import ceil, prod

import numpy as np

from tensorlang.schedules.candidates import up_to
from tensorlang.schedules.gpu.block import limit_threads, limits_of, sizes
from tensorlang.schedules.recognise import Group, Stage, is_read_often
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.target.spec import Target

VECTORS = (1, 2, 4, 8)
EACH = (1, 2, 4, 8)
_TILE = 32
_ROWS = (4, 8, 16, 32)
ALONE = 256
"""Threads of a block of a stage that is not tuned."""


def element_forms(target: Target, group: Group) -> list[Form]:
    """Along memory; and for a stage that reads across it, square tiles that are turned around in shared memory."""
    if group.main.reduce or group.parts:
        return []
    found = [Form("elements", partial(_schedule_along, group=group))]
    near = _near_axis(group.main)
    if near is not None:
        found.insert(0, Form("turned", partial(_schedule_turned, group=group, near=near)))
    return found


def schedule_elements(room: Room, stage: Stage) -> None:
    """Run a stage as a kernel of its own, an element a thread, with no decision open."""
    loops = room.s[stage.name]
    axes = list(loops.op.axis)
    if not axes:
        return
    block, thread = loops.split(
        loops.fuse(*axes) if len(axes) > 1 else axes[0], min(ALONE, limits_of(room).max_threads)
    )
    loops.bind(block, "blockIdx.x")
    loops.bind(thread, "threadIdx.x")


def inline_producers(room: Room, group: Group) -> None:
    """Compute stages in front where they are read; those that cannot, or are read often, run on their own."""
    for stage in group.producers:
        if is_read_often(group, stage) or not room.s.attempt(room.s[stage.name].compute_inline):
            schedule_elements(room, stage)


def _schedule_along(room: Room, group: Group) -> None:
    """`each` vectors a thread, a block of threads apart, so that neighbouring threads read neighbouring vectors."""
    inline_producers(room, group)
    stage, loops = group.main, room.s[group.main.name]
    if not stage.spatial:
        return
    total, last = prod(stage.extents.values()), stage.extents[stage.spatial[-1]]
    axes = list(loops.op.axis)
    flat = loops.fuse(*axes) if len(axes) > 1 else axes[0]
    threads = room.leave_open("threads", [n for n in sizes(1 << 10, limits_of(room).block[0]) if n >= min(32, total)])
    vector = room.leave_open("vector", [n for n in up_to(VECTORS, last) if last % n == 0])
    each = room.leave_open("each", up_to(EACH, total))
    rest, lanes = loops.split(flat, vector)
    rest, thread = loops.split(rest, threads)
    block, own = loops.split(rest, each)
    loops.reorder(block, thread, own, lanes)
    loops.bind(block, "blockIdx.x")
    loops.bind(thread, "threadIdx.x")
    loops.unroll(own)
    loops.vectorize(lanes)
    limit_threads(room, ["threads"], total)

    def busy(values: Columns) -> Mask:
        blocks = np.ceil(total / (values["threads"] * values["vector"] * values["each"]))
        fewest = ceil(total / (1 << 15))
        return np.asarray((blocks >= min(fewest, 32)) & (blocks <= limits_of(room).grid[0]))

    room.limit("there are blocks for all multiprocessors", busy)


def _near_axis(stage: Stage) -> str | None:
    """The axis along which a read lies in memory, where that is not the axis along which the stage writes."""
    for access in stage.reads:
        for axis in stage.spatial[:-1]:
            if access.stride_one(axis) and stage.spatial[-1] in access.axes and stage.extents[axis] > 1:
                return axis
    return None


def _schedule_turned(room: Room, group: Group, near: str) -> None:
    """Tiles of 32 by 32: rows of the source are read into shared memory, rows of the output are read out of it."""
    inline_producers(room, group)
    s, stage = room.s, group.main
    out, last = s[stage.name], stage.spatial[-1]
    read = next(a for a in stage.reads if a.stride_one(near) and last in a.axes)
    copy = s[s.cache_read(read.buffer, "shared", [stage.name])]
    rows = room.leave_open("rows", _ROWS)
    down, i = out.split(near, _TILE)
    across, j = out.split(last, _TILE)
    own, thread = out.split(i, rows)
    others = [axis for axis in stage.spatial if axis not in (near, last)]
    out.reorder(*others, down, across, own, thread, j)
    if others:
        out.bind(out.fuse(*others) if len(others) > 1 else others[0], "blockIdx.z")
    for axis, tag in ((across, "blockIdx.x"), (down, "blockIdx.y"), (thread, "threadIdx.y"), (j, "threadIdx.x")):
        out.bind(axis, tag)
    out.unroll(own)
    copy.compute_at(out, across)
    axes = list(copy.op.axis)
    rest, column = copy.split(copy.fuse(*axes) if len(axes) > 1 else axes[0], _TILE)
    rest, row = copy.split(rest, rows)
    copy.bind(column, "threadIdx.x")
    copy.bind(row, "threadIdx.y")
    if len(axes) > 1:
        copy.storage_align(axes[-2], _TILE, 1)
    limit_threads(room, ["rows"], prod(stage.extents.values()), least=1)
    most = limits_of(room).max_threads // _TILE
    room.limit(f"a block has at most {limits_of(room).max_threads} threads", lambda v: np.asarray(v["rows"] <= most))
