"""The nests of a trace: what every stage of a scheduled program does, for whole populations of decisions.

A trace is followed once for a population; nothing is lowered and isl is not asked. What decisions cannot change
(order, annotations, where stages are computed) is read off the state of one candidate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorlang.autotune.model.follow import Columns, Follower, Move
from tensorlang.autotune.model.nest import Kind, Loop, Nest
from tensorlang.autotune.model.stage_loops import Number, StageLoops
from tensorlang.dataclass import dataclass
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedule.state import ScheduleState, StageState
from tensorlang.schedules.accesses import Access
from tensorlang.te.program import Program

_KINDS = {
    LoopKind.SERIAL: Kind.SERIAL,
    LoopKind.PARALLEL: Kind.PARALLEL,
    LoopKind.UNROLLED: Kind.UNROLLED,
    LoopKind.VECTORIZED: Kind.VECTORIZED,
    LoopKind.BOUND: Kind.PARALLEL,
}


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A program, the steps of its schedule, and the state after them."""

    program: Program
    moves: tuple[Move, ...]
    state: ScheduleState

    def nests(self, values: Columns, count: int) -> tuple[Nest, ...]:
        """The nests of `count` candidates, whose decisions are columns of `values`; in program order.

        Decisions without a column are as they are.
        """
        taken = {name: np.full(count, float(value)) for name, value in self.state.decisions.items()}
        follower = Follower.of(self.program, {**taken, **values})
        for move in self.moves:
            follower.take(move)
        names = [name for name in self.state.stages if name in follower.stages]
        placed: dict[str, _Placed] = {}
        for name in reversed(names):
            placed[name] = _place(self.state, follower.stages, placed, name, count)
        return tuple(_nest(self.state, placed[name], count) for name in names)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A stage with its loops: those of other stages around it, in terms of its own axes, and its own.

    `ends` gives, for each of its own loops, how many loops there are up to and including that one.
    """

    stage: StageLoops
    outside: tuple[Loop, ...]
    own: tuple[Loop, ...]
    ends: Mapping[str, int]


def _place(
    state: ScheduleState, stages: Mapping[str, StageLoops], placed: Mapping[str, _Placed], name: str, count: int
) -> _Placed:
    stage, current = stages[name], state.stages[name]
    extents: dict[str, Number] = dict(stage.axes)
    outside: tuple[Loop, ...] = ()
    attach = current.attach
    if attach is not None and attach.stage in placed and not attach.after:
        host = placed[attach.stage]
        depth = host.ends.get(attach.axis, len(host.outside))
        shared = current.storage.is_shared
        readers = [found for found in placed.values() if _reads(found.stage, stage)]
        inside = [
            r for r in readers if len((*r.outside, *r.own)) >= depth and _is_within(state, r.stage.name, attach.stage)
        ]
        if inside:
            outside = _seen_from(stage, inside[0], depth, shared)
            extents |= _needed(stage, inside, depth, shared)
    loops, ends = _own_loops(stage, current, extents, len(outside), count)
    return _Placed(stage, outside, loops, ends)


def _is_within(state: ScheduleState, name: str, host: str) -> bool:
    """Whether a stage is the host of others, or is computed in it or deeper."""
    while name != host:
        above = state.stages[name].attach if name in state.stages else None
        if above is None:
            return False
        name = above.stage
    return True


def _reads(reader: StageLoops, stage: StageLoops) -> list[Access]:
    written = {a.buffer for a in stage.accesses if a.write}
    return [a for a in reader.accesses if not a.write and a.buffer in written]


def _around(reader: _Placed, depth: int, shared: bool) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The loops of a reader that repeat what is computed at a depth, and those that do not: threads share memory."""
    loops = (*reader.outside, *reader.own)
    apart = tuple(loop for loop in loops[:depth] if shared and loop.is_thread)
    return tuple(loop for loop in loops[:depth] if not (shared and loop.is_thread)), (*apart, *loops[depth:])


def _seen_from(stage: StageLoops, reader: _Placed, depth: int, shared: bool) -> tuple[Loop, ...]:
    """The loops of a reader down to a depth, in terms of the axes of the stage that it reads there."""
    (access, *_) = _reads(reader.stage, stage)
    moved = {axis: own for own, dim in zip(stage.spatial, access.dims, strict=True) for axis, _ in dim}
    around, _ = _around(reader, depth, shared)
    return tuple(replace(loop, axis=moved.get(loop.axis, f"repeat {loop.axis}")) for loop in around)


def _needed(stage: StageLoops, readers: Sequence[_Placed], depth: int, shared: bool) -> dict[str, Number]:
    """How much of a stage its readers read in one iteration of the loops down to a depth."""
    found: dict[str, Number] = {}
    for reader in readers:
        tile: dict[str, Number] = dict.fromkeys(reader.stage.axes, 1.0)
        for loop in _around(reader, depth, shared)[1]:
            if loop.axis in tile:
                tile[loop.axis] = np.minimum(tile[loop.axis] * loop.trips, reader.stage.axes[loop.axis])
        for access in _reads(reader.stage, stage):
            for axis, dim in zip(stage.spatial, access.dims, strict=True):
                span: Number = 1.0
                for other, coefficient in dim:
                    span = span + np.abs(coefficient) * (tile.get(other, 1.0) - 1)
                span = np.minimum(span, stage.axes[axis])
                found[axis] = np.maximum(found[axis], span) if axis in found else span
    return found


def _own_loops(
    stage: StageLoops, current: StageState, extents: Mapping[str, Number], before: int, count: int
) -> tuple[tuple[Loop, ...], dict[str, int]]:
    parts = stage.loops(extents)
    one, loops = np.ones(count), list[Loop]()
    ends: dict[str, int] = {}
    for leaf in max(current.places.values(), key=len, default=()):  # of several statements the deepest
        walked = [part for part in parts.get(leaf, ()) if isinstance(part.trips, np.ndarray) or part.trips != 1]
        thread = current.annotations[leaf].thread if leaf in current.annotations else ""
        loops += [Loop(part.axis, one * part.trips, _KINDS[current.kind(leaf)], thread) for part in walked]
        ends[leaf] = before + len(loops)
    return tuple(loops), ends


def _nest(state: ScheduleState, placed: _Placed, count: int) -> Nest:
    stage, current = placed.stage, state.stages[placed.stage.name]
    loops = (*placed.outside, *placed.own)
    walked = math.prod((loop.trips for loop in loops), start=np.ones(count))
    repeated = any(loop.axis not in stage.axes for loop in placed.outside)
    # Tiles that end beyond their axis are cut short; loops that repeat the stage are not.
    repeats = np.maximum(walked / math.prod(stage.axes.values(), start=1.0), 1) if repeated else 1.0
    return Nest(
        loops,
        tuple(replace(a, private=_is_private(state, a)) for a in stage.accesses),
        dict(stage.axes),
        stage.reduce,
        max(stage.operations, 1) * stage.points,
        stage.bits,
        count,
        local=current.storage.scope == "local",
        attached=current.attach is not None,
        around=len(placed.outside),
        repeats=repeats,
        scope=current.storage.scope,
        copies=stage.copies,
        host=_host(state, stage.name),
    )


def _host(state: ScheduleState, name: str) -> str:
    """The stage that a stage is computed in, or that one in, and so on."""
    while (attach := state.stages[name].attach) is not None and attach.stage in state.stages:
        name = attach.stage
    return name


def _is_private(state: ScheduleState, access: Access) -> bool:
    """Whether an array belongs to a tile: computed inside a loop, in local memory."""
    made = state.stages.get(state.program.producer.get(access.buffer, ""))
    return made is not None and made.storage.scope == "local" and made.attach is not None
