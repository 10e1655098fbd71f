"""Ordered statements on a GPU: as they were declared, the outermost loop on blocks of threads where that is legal."""

from __future__ import annotations

from functools import partial

from tensorlang.schedules.gpu.block import limit_threads, sizes
from tensorlang.schedules.gpu.blocks import limits
from tensorlang.schedules.room import Form, Room
from tensorlang.te.operation import HybridOp


def bound_forms(op: HybridOp) -> list[Form]:
    """Two forms of a stage of ordered statements: outer iterations on threads, and one thread for all."""
    return [Form("bound", partial(_bound, op=op)), Form("declared", partial(_declared, op=op))]


def _bound(room: Room, op: HybridOp) -> None:
    """The loop around all statements in blocks of threads. Not legal where one iteration needs another."""
    loops = room.s[op.name]
    leaves = room.s.state.stages[op.name].leaves
    if not leaves:
        return
    most = limits(room.target).block[0]
    threads = room.leave_open("threads", [n for n in sizes(1 << 10, most) if n >= limits(room.target).warp])
    block, thread = loops.split(leaves[0], threads)
    loops.bind(block, "blockIdx.x")
    loops.bind(thread, "threadIdx.x")
    limit_threads(room, ["threads"], float("inf"))


def _declared(room: Room, op: HybridOp) -> None:
    """Nothing is bound."""
