"""Ordered statements on a GPU: iterations that wait for no other on threads of their own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from tensorlang import dtypes
from tensorlang.errors import ScheduleError
from tensorlang.ir.expr import Load
from tensorlang.ir.expr import walk as walk_expr
from tensorlang.ir.stmt import Allocate, For, walk
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import primitives as p
from tensorlang.schedule.order import LoopNode, Order, loops_at, places
from tensorlang.schedules.gpu.block import limit_threads, sizes
from tensorlang.schedules.gpu.blocks import (
    THREADS,
    WARP,
    extents,
    fused,
    limits,
    on_blocks,
    on_threads,
    product,
    whole_warps,
)
from tensorlang.schedules.room import Form, Room, waits
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import HybridOp

_FEW = 64
"""Threads of a block that do not meet: what runs in order has few, which are to be on all multiprocessors."""
_THREADS = 512
"""Threads of a block at most that meet after each step."""
_MANY_BLOCKS = 1024
"""Iterations of free loops that are work for all multiprocessors, if each has a thread."""
_STEP = 1 << 14
"""Iterations of a step that one block makes as soon as it takes to launch another kernel."""
_SHORT = 256
"""Iterations that one thread makes as soon as a kernel is launched: that is no reason for a warning."""
_MOST_SCRATCH = 1 << 30
"""Bytes of arrays that threads have for themselves."""
_ATOMIC_BITS = 32
"""Of whole numbers that every GPU updates at once."""


def bound_forms(op: HybridOp) -> list[Form]:
    """Forms of a stage of ordered statements; the last is what is taken untuned."""
    return [
        Form("bound", partial(_bound, op=op)),
        Form("apart", partial(_apart, op=op), why="what waits for no other runs in threads of its own"),
    ]


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


def _apart(room: Room, op: HybridOp) -> None:
    """Loops that need not wait, around those that must. Loops that wait around all others stay on the host."""
    if _counts(op):
        room.s[op.name].atomic()
    for node in loops_at(room.s.state.stages[op.name].order):
        _share(room, op, node, launched_once=True)


def _counts(op: HybridOp) -> bool:
    """Whether places that are data say which whole numbers are updated: instructions do that in any order."""
    updates = [source.store for source in sources(op).values() if source.reducer]
    told = [store for store in updates if any(isinstance(n, Load) for i in store.index for n in walk_expr(i))]
    kinds = [dtypes.info(store.buffer.dtype) for store in told]
    return len(told) == len(updates) > 0 and all(d.is_integer and d.bits == _ATOMIC_BITS for d in kinds)


def _share(room: Room, op: HybridOp, node: LoopNode, launched_once: bool) -> None:
    """Give iterations of a nest threads of their own: of as many of its outer loops as one order has in front."""
    chain, body = _chain(node)
    free, waiting = _apart_from_waiting(room, op.name, chain)
    is_nested = bool(loops_at(body)) or len(waiting) > 1
    if waiting and is_nested and room.s.attempt(partial(_in_blocks, room, op, free, waiting, body)):
        return
    for first in range(len(chain)):
        ahead, behind = ([axis for axis in chain[first:] if axis in part] for part in (free, waiting))
        if not ahead or not ((first == 0 and launched_once) or _pays(room, op.name, ahead)):
            break
        if room.s.attempt(partial(_in_front, room, op, ahead, behind)):
            return
    count = product(extents(room.s, op.name, chain))
    if launched_once and not loops_at(body) and count is not None and count <= _SHORT:
        on_blocks(room.s, op.name, [room.s[op.name].split(chain[0], nparts=1)[0].name])
        return
    for child in loops_at(body):
        _share(room, op, child, launched_once=False)


def _chain(node: LoopNode) -> tuple[list[str], Order]:
    """The loops from one on of which each holds nothing but the next, and what the last one holds."""
    axes, body = [node.axis], node.body
    while len(body) == 1 and isinstance(body[0], LoopNode):
        axes.append(body[0].axis)
        body = body[0].body
    return axes, body


def _apart_from_waiting(room: Room, stage: str, loops: Sequence[str]) -> tuple[list[str], list[str]]:
    """Loops whose iterations need not wait for each other, and those whose iterations must."""
    waiting = [axis for axis in loops if waits(room, stage, axis)]
    return [axis for axis in loops if axis not in waiting], waiting


def _pays(room: Room, stage: str, loops: Sequence[str]) -> bool:
    """Whether iterations are worth a launch of their own."""
    found = product(extents(room.s, stage, loops))
    return found is None or found >= WARP


def _in_front(room: Room, op: HybridOp, free: Sequence[str], waiting: Sequence[str]) -> None:
    """A thread for each iteration of loops that do not wait, in which those that wait run."""
    if _scratch(room, op, free) > _MOST_SCRATCH:
        raise ScheduleError("autotune", f"each iteration of {', '.join(free)} has large arrays of its own")
    if waiting:
        room.s[op.name].reorder(*free, *waiting)
    on_threads(room.s, op.name, free, room.target, threads=_FEW if waiting else THREADS)


def _scratch(room: Room, op: HybridOp, loops: Sequence[str]) -> int:
    """Bytes of arrays that all iterations of some loops have for themselves, as far as extents are known."""
    inside = [s.body for s in walk(op.body) if isinstance(s, For) and s.var.name in loops]
    own = {a.buffer.name: a.buffer for body in inside for a in walk(body) if isinstance(a, Allocate)}
    sizes = [prod(extent_of(n) or 1 for n in b.shape) * dtypes.info(b.dtype).bytes for b in own.values()]
    return sum(sizes) * (product(extents(room.s, op.name, loops)) or 1)


def _in_blocks(room: Room, op: HybridOp, free: Sequence[str], waiting: Sequence[str], body: Order) -> None:
    """A block for each iteration of free loops, whose threads share the steps of loops that wait, and meet after each.

    A step is an iteration of these, or a wavefront where they hold no other loop. Not for steps of so few iterations
    that threads do not pay, nor of so many that other blocks would help.
    """
    loops, blocks = room.s[op.name], product(extents(room.s, op.name, free))
    if blocks is None or blocks > _MANY_BLOCKS or not _is_for_a_block(room, op.name, body):
        raise ScheduleError("autotune", f"other blocks help with {op.name}")
    if free:
        loops.reorder(*free, *waiting)
    step, shared = _inner(room, op.name, waiting, body) if loops_at(body) else _wavefront(room, op.name, waiting)
    counts = [product(extents(room.s, op.name, axes)) for axes in shared]
    if all(count is not None and count < WARP for count in counts):
        raise ScheduleError("autotune", f"an iteration of {step} is no work for a block")
    if not free and None in extents(room.s, op.name, [step]):  # no loop around all steps: each is launched
        for axes in shared:
            on_threads(room.s, op.name, axes, room.target)
        return
    on_blocks(room.s, op.name, free or [loops.split(step, nparts=1)[0].name])
    most = min(_THREADS, limits(room.target).max_threads)
    for axes, count in zip(shared, counts, strict=True):
        threads = most if count is None else min(most, whole_warps(count))
        _, thread = loops.split(fused(room.s, op.name, axes), factor=threads)
        loops.bind(thread, "threadIdx.x")


def _is_for_a_block(room: Room, stage: str, body: Order) -> bool:
    """Whether what loops hold has so few iterations that one block makes them as soon as many."""
    counts = [product(extents(room.s, stage, place)) for place in places(body).values()]
    return all(count is not None and count <= _STEP for count in counts)


def _inner(room: Room, stage: str, waiting: Sequence[str], body: Order) -> tuple[str, list[list[str]]]:
    """The outermost loop that waits, and of the nests inside of all the loops that do not wait, in front of others."""
    found = [_apart_from_waiting(room, stage, _chain(node)[0]) for node in loops_at(body)]
    for free, others in found:
        if free and others:
            room.s[stage].reorder(*free, *others)
    return waiting[0], [free for free, _ in found if free]


def _wavefront(room: Room, stage: str, waiting: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Run loops as wavefronts; the loop over these, and the one that is free in each."""
    wave = waiting[-1]
    for step in p.plan_wavefront(room.s.state, stage, waiting):
        if not isinstance(step, p.Parallel):
            wave = next(iter(room.s.apply(step)), wave)
    return wave, [[waiting[0]]]
