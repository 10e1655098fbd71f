"""Copies from global to shared memory that run while threads compute: which arrays, and where threads wait for them.

An array that is filled some tiles ahead by plain copies need not wait for them in the iteration that begins them. All
copies of an iteration are one group, closed after the last of them, in iterations too that begin none. A thread waits
for its own groups right before the barrier that lets others read what it copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Const, Load, Select
from tensorlang.ir.stmt import INDEX, AsyncCopy, If, Seq, Stmt, Store, map_children
from tensorlang.polyhedral.barriers import Address, Join, Place
from tensorlang.schedule.boxes import copied_load
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import ComputeOp, PlaceholderOp, buffers


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The arrays that a loop fills by asynchronous copies: where a group is closed, and where threads wait for it.

    Groups are closed in the `ahead` iterations before the first one, too. `waits` gives places with the number of
    groups that may still be under way there. `barriers` count the groups of bulk copies.
    """

    arrays: tuple[str, ...]
    ahead: int
    commit: Address
    waits: tuple[tuple[Address, int], ...]
    barriers: Buffer | None = None


def copied_ahead(state: ScheduleState) -> dict[str, int]:
    """The arrays in shared memory that are plain copies of arguments, made ahead; with how many tiles ahead."""
    found: dict[str, int] = {}
    for name, stage in state.stages.items():
        op = state.program[name]
        if not stage.storage.is_ahead or stage.storage.scope != "shared" or not isinstance(op, ComputeOp):
            continue
        load = copied_load(op)
        if load is not None and isinstance(state.program[state.program.producer[load.buffer.name]], PlaceholderOp):
            found |= {b.name: stage.storage.ahead for b in buffers(op)}
    return found


def pipelines(
    places: Sequence[Place],
    joins: Sequence[Join],
    barriers: Sequence[Address],
    candidates: Mapping[str, int],
    bulk: Collection[str] = (),
) -> list[Pipeline]:
    """The pipelines of a kernel: an array is in one if barriers of the loop that fills it are all that it needs.

    Arrays that are copied in `bulk` are not in one with others.
    """
    found: dict[tuple[Address, bool], dict[str, tuple[Place, list[Address]]]] = {}
    for array in candidates:
        fills = [p for p in places if any(a.array == array and a.is_write for a in p.accesses)]
        if len(fills) != 1 or not fills[0].uniform:
            continue
        depth = _depth(fills[0], array)
        if depth is None:
            continue
        body = fills[0].address[:depth]
        needs = [j.places for j in joins if j.source.array == array and j.source.is_write]
        serving = [b for b in barriers if b[:-1] == body and any(b in need for need in needs)]
        if needs and all(not need.isdisjoint(serving) for need in needs):
            found.setdefault((body, array in bulk), {})[array] = (fills[0], serving)
    made = ((_pipeline(body, arrays, candidates, places), counted) for (body, counted), arrays in found.items())
    return [replace(pipeline, barriers=_barriers(pipeline)) if counted else pipeline for pipeline, counted in made]


def _barriers(pipeline: Pipeline) -> Buffer:
    """Memory barriers, one for each group that may be under way or waited for."""
    return Buffer(f"{pipeline.arrays[0]}.filled", (Const(pipeline.ahead + 1, INDEX),), "uint64", "shared")


def _depth(fill: Place, array: str) -> int | None:
    """The level of the body in which an array is filled ahead: that of the loop which counts its tiles."""
    ahead = next(a.statement.ahead for a in fill.accesses if a.array == array and a.is_write)
    names = [loop.name for loop in fill.uniform]
    return names.index(ahead) + 1 if ahead in names else None


def _pipeline(
    body: Address,
    arrays: Mapping[str, tuple[Place, list[Address]]],
    candidates: Mapping[str, int],
    places: Sequence[Place],
) -> Pipeline:
    level = len(body)
    commit = max(fill.address[level] for fill, _ in arrays.values()) + 1
    waits: dict[Address, int] = {}
    for array, (_, serving) in arrays.items():
        reads = _reads(array, body, places)
        for place in serving:
            # Before the group of this iteration is closed, one fewer has been since the tile that is read now; and a
            # wait after a read that nothing else serves is for the tile of the next iteration.
            late = any(r < place[-1] and not any(other[-1] <= r for other in serving) for r in reads)
            pending = max(0, candidates[array] - (place[-1] < commit) - late)
            waits[place] = min(pending, waits.get(place, pending))
    ahead = max(candidates[array] for array in arrays)
    return Pipeline(tuple(arrays), ahead, (*body, commit), tuple(waits.items()))


def _reads(array: str, body: Address, places: Sequence[Place]) -> set[int]:
    """The items of a body that read an array."""
    inside = (p for p in places if p.address[: len(body)] == body)
    return {p.address[len(body)] for p in inside if any(a.array == array and not a.is_write for a in p.accesses)}


def begun(stmt: Stmt) -> Stmt:
    """The statement with its stores as copies that it begins."""
    match stmt:
        case Store(value=Load() as load):
            return AsyncCopy(stmt.buffer, stmt.index, load.buffer, load.index, 1, runs=stmt.runs)
        case Store(value=Select(cond=cond, then=Load() as load)):
            return AsyncCopy(stmt.buffer, stmt.index, load.buffer, load.index, 1, cond, stmt.runs)
        case If() | Seq():
            return map_children(stmt, begun)
    return stmt
