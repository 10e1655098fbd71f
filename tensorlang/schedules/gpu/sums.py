"""Reductions by the threads of a block together: few results, sums along memory, whatever no tile makes sense for."""

from __future__ import annotations

from functools import partial
from math import ceil, prod

import numpy as np

from tensorlang.schedules.candidates import powers, up_to
from tensorlang.schedules.cpu.rows import partial_results
from tensorlang.schedules.gpu.block import limit_threads, limits_of
from tensorlang.schedules.gpu.elements import inline_producers, schedule_elements
from tensorlang.schedules.recognise import Group, Stage
from tensorlang.schedules.room import Columns, Form, Mask, Room
from tensorlang.target.spec import Target
from tensorlang.te.operation import ComputeOp
from tensorlang.te.program import Program

ROWS = (1, 2, 4, 8, 16, 32)
FEW_RESULTS = 1 << 9
"""With more results there are enough blocks without summing in parts."""
LONG = 1 << 13
"""Terms that are worth a second kernel."""
_SHARED_USES = 4
_MANY_RESULTS = 1 << 13
_TERMS = (1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15)


def sum_forms(target: Target, group: Group) -> list[Form]:
    """Forms for any reduction: the threads of a block sum one or several results; in parts, where results are few."""
    main = group.main
    if not main.reduce or group.parts or _is_product(main):
        return []
    found = [Form("sums", partial(_schedule, group=group, parts=False))]
    terms = prod(main.extents[axis] for axis in main.reduce)
    results = prod(main.extents[axis] for axis in main.spatial)
    if results <= FEW_RESULTS and terms >= LONG and len(main.op.body) == 1:
        found.insert(0, Form("sums.parts", partial(_schedule, group=group, parts=True)))
    return found


def _is_product(stage: Stage) -> bool:
    """Whether many results share what they read: tiles are better in any case."""
    results = prod(stage.extents[axis] for axis in stage.spatial)
    uses = min((stage.points / prod(stage.extents[axis] for axis in r.axes) for r in stage.reads if r.axes), default=1)
    return uses >= _SHARED_USES and results >= _MANY_RESULTS


def _schedule(room: Room, group: Group, parts: bool) -> None:
    s, main = room.s, group.main
    inline_producers(room, group)
    for stage in group.between:
        s[stage.name].compute_inline()
    if group.main is not group.output:
        schedule_elements(room, group.output)
    if not parts:
        sum_by_threads(room, main.name, _along_memory(main), "")
        return
    loops = s[main.name]
    axes = [str(axis) for axis in loops.op.reduce_axis]
    flat = loops.fuse(*axes) if len(axes) > 1 else axes[0]
    terms = prod(main.extents[axis] for axis in main.reduce)
    size = room.leave_open("part", [n for n in _TERMS if n < terms] or [ceil(terms / 2)])
    block, _ = loops.split(flat, size)
    first = partial_results(s, main.name, str(block), 0)
    sum_by_threads(room, first, _along_memory(main), "part_")
    sum_by_threads(room, main.name, True, "whole_")


def _along_memory(stage: Stage) -> bool:
    """Whether neighbouring terms lie side by side in memory, at least in one of the arrays, and none lies across."""
    last = stage.reduce[-1]
    moved = [read for read in stage.reads if last in read.axes]
    return any(read.stride_one(last) for read in moved) or not stage.spatial


def sum_by_threads(room: Room, name: str, along: bool, prefix: str) -> None:
    """Run a reduction as a kernel: its terms on threads, its results on blocks, and on threads across them.

    Threads of a warp run along memory: along the terms, or along neighbouring results.
    """
    s = room.s
    op = s.program[name]
    assert isinstance(op, ComputeOp)
    loops = s[name]
    results = _extents(s.program, name, [str(axis) for axis in loops.op.axis])
    terms = loops.op.reduce_axis
    flat = loops.fuse(*terms) if len(terms) > 1 else terms[0]
    limits = limits_of(room)
    most = powers(limits.max_threads)
    lane_name, row_name = f"{prefix}lanes", f"{prefix}rows"
    lanes = room.leave_open(lane_name, [n for n in most if n <= limits.block[0 if along else 1]])
    serial, lane = loops.split(flat, lanes)
    x, y = ("threadIdx.x", "threadIdx.y") if along else ("threadIdx.y", "threadIdx.x")
    own = list(loops.op.axis)
    if not own:
        loops.reorder(lane, serial)
        loops.bind(lane, "threadIdx.x")
        limit_threads(room, [lane_name], float("inf"))
        return
    rows = room.leave_open(row_name, up_to(ROWS if along else (*ROWS, 64, 128), results))
    block, row = loops.split(loops.fuse(*own) if len(own) > 1 else own[0], rows)
    loops.reorder(block, row, lane, serial)
    loops.bind(block, "blockIdx.x")
    loops.bind(row, y)
    loops.bind(lane, x)
    limit_threads(room, [lane_name, row_name], float("inf"))

    def aligned(values: Columns) -> Mask:
        """Whether warps run along memory."""
        return np.asarray(values[lane_name if along else row_name] >= min(8, limits.warp, results if not along else 8))

    room.limit("neighbouring threads read neighbouring elements", aligned)


def _extents(program: Program, name: str, axes: list[str]) -> int:
    """How many results a stage has."""
    op = program[name]
    assert isinstance(op, ComputeOp)
    known = {axis.name: axis for axis in op.axes}
    return prod(int(getattr(known[axis].extent, "value", 1)) for axis in axes if axis in known)
