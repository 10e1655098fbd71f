"""The transform steps of Ansor (TVM's auto_scheduler, up to 0.19), replayed as primitives.

A step is a list: an opcode, the number of a stage, and numbers of its loops as they are at that step (classes of TVM's
`transform_step.cc`). Stages are numbered in the order of TVM's graph, inputs included; a step that makes a stage moves
the numbers behind it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.stage import Stage
from tensorlang.te.axis import Axis
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, Tensor

T = TypeVar("T")
THREADS = {
    4: "vthread",
    5: "blockIdx.x",
    6: "threadIdx.x",
    7: "blockIdx.y",
    8: "threadIdx.y",
    9: "blockIdx.z",
    10: "threadIdx.z",
}
"""Numbers of annotations that bind a loop to a thread axis."""


@dataclass(slots=True)
class _Replay:
    """A schedule under way: its stages in Ansor's order, by name, and the loops of each.

    `attached`: stage -> stage and loop that it is to be computed at. That is done last, since TVM lets loops that hold
    others be split and fused: what they hold moves to the inner part, or to the fused loop.
    """

    schedule: Schedule
    stages: list[str]
    steps: Sequence[Any]
    loops: dict[str, list[Axis]] = field(default_factory=dict)
    attached: dict[str, tuple[str, Axis]] = field(default_factory=dict)

    def name(self, number: int) -> str:
        """The stage of a number."""
        return _at(self.stages, number)

    def stage(self, number: int) -> Stage:
        return self.schedule[self.name(number)]

    def add(self, number: int, tensor: Tensor) -> None:
        """Take in a new stage at a number; later stages move on by one."""
        name = self.schedule.name_of(tensor)
        self.stages.insert(number, name)
        self.reset(name)

    def reset(self, name: str) -> None:
        """The loops of a stage as its operation has them."""
        op = self.schedule[name].op
        self.loops[name] = [*op.axis, *op.reduce_axis] if isinstance(op, ComputeOp) else []

    def loop(self, number: int, position: int) -> Axis:
        return _at(self.loops[self.name(number)], position)

    def put(self, number: int, first: int, count: int, made: Sequence[Axis]) -> None:
        """Replace `count` loops from `first` on by others; the last of those holds what they held."""
        host = self.name(number)
        gone = set(map(str, self.loops[host][first : first + count]))
        self.loops[host][first : first + count] = made
        for stage, (at, axis) in self.attached.items():
            if at == host and str(axis) in gone:
                self.attached[stage] = host, made[-1]


def _at(items: Sequence[T], number: int) -> T:
    """The item of a number; Python would count numbers below zero from the end."""
    if number < 0:
        raise IndexError(number)
    return items[number]


def replay_steps(tensors: Sequence[Tensor], steps: Sequence[Any]) -> Schedule:
    """Return the schedule that Ansor's steps give the program of these tensors (inputs, then outputs).

    Every step becomes primitives of the trace, and the result is proven legal. RecordError names a step that is unknown
    or does not fit the program; ScheduleError says why the schedule is not legal.
    """
    outputs = [t.op for t in tensors if not isinstance(t.op, PlaceholderOp)]
    schedule = create_schedule(outputs)
    run = _Replay(schedule, [schedule.name_of(op) for op in graph_order(tensors)], steps)
    for name in run.stages:
        run.reset(name)
    with schedule.proven_together("the imported schedule"):
        for number, step in enumerate(steps):
            _apply(run, number, step)
        for stage, (host, axis) in run.attached.items():
            schedule[stage].compute_at(host, axis)
    return schedule


def graph_order(tensors: Sequence[Tensor]) -> list[Operation]:
    """The operations in Ansor's order: sorted topologically, those that its walk from the tensors found last first."""
    found: dict[Operation, int] = {}
    stack = [t.op for t in tensors]
    while stack:
        op = stack.pop()
        if op not in found:
            found[op] = len(found)
            stack += [t.op for t in op.input_tensors]
    waiting = {op: len(op.input_tensors) for op in found}
    readers: dict[Operation, list[Operation]] = {op: [] for op in found}
    for op in found:
        for tensor in op.input_tensors:
            readers[tensor.op].append(op)
    by_number = list(found)
    ready = [-n for op, n in found.items() if not waiting[op]]
    heapq.heapify(ready)
    order: list[Operation] = []
    while ready:
        op = by_number[-heapq.heappop(ready)]
        order.append(op)
        for reader in readers[op]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, -found[reader])
    return order


def _apply(run: _Replay, number: int, step: Any) -> None:
    shown = f"step {number} of the log line, {step!r}"
    if not isinstance(step, list) or not step or not isinstance(step[0], str) or step[0] not in _STEPS:
        raise RecordError(f"{shown}, is none that is known; there are {', '.join(_STEPS)}")
    try:
        _STEPS[step[0]](run, *step[1:])
    except (IndexError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{shown}, does not fit the program; it has the stages {', '.join(run.stages)}") from error


def _annotate(run: _Replay, number: int, position: int, annotation: int) -> None:
    stage, axis = run.stage(number), run.loop(number, position)
    match annotation:
        case 0:
            pass
        case 1:
            stage.unroll(axis)
        case 2:
            stage.vectorize(axis)
        case 3:
            stage.parallel(axis)
        case _ if annotation in THREADS:
            stage.bind(axis, THREADS[annotation])
        case _:
            raise ValueError(annotation)


def _fuse(run: _Replay, number: int, positions: Sequence[int]) -> None:
    fused = run.stage(number).fuse(*(run.loop(number, p) for p in positions))
    run.put(number, positions[0], len(positions), [fused])


def _pragma(run: _Replay, number: int, position: int, pragma: str) -> None:
    name, _, value = pragma.partition("$")
    run.stage(number).pragma(run.loop(number, position), name, int(value) if value else None)


def _reorder(run: _Replay, number: int, order: Sequence[int]) -> None:
    loops = [run.loop(number, p) for p in order]
    if len(loops) != len(run.loops[run.name(number)]):
        raise ValueError(order)
    run.stage(number).reorder(*loops)
    run.loops[run.name(number)] = loops


def _split(run: _Replay, number: int, position: int, _extent: int, lengths: Sequence[int], inner: int) -> None:
    _split_into(run, number, position, lengths, bool(inner))


def _split_into(run: _Replay, number: int, position: int, lengths: Sequence[int], inner: bool) -> None:
    """Split a loop: `lengths` are those of the inner loops, or (`inner` false) the trips of the outer ones."""
    stage, rest = run.stage(number), run.loop(number, position)
    made: list[Axis] = []
    for length in reversed(lengths) if inner else lengths:
        if inner:
            rest, part = stage.split(rest, factor=length)
            made.insert(0, part)
        else:
            part, rest = stage.split(rest, nparts=length)
            made.append(part)
    run.put(number, position, 1, [rest, *made] if inner else [*made, rest])


def _lengths(run: _Replay, source: int) -> list[int]:
    """The lengths of an earlier split."""
    step = _at(run.steps, source)
    if step[0] != "SP":
        raise ValueError(source)
    return list(step[4])


def _follow_split(run: _Replay, number: int, position: int, source: int, loops: int) -> None:
    lengths = _lengths(run, source)
    _split_into(run, number, position, [*lengths[: loops - 1], math.prod(lengths[loops - 1 :])], inner=True)


def _follow_fused_split(
    run: _Replay, number: int, position: int, sources: Sequence[int], level: int, inner: int
) -> None:
    length = math.prod(_at(_lengths(run, source), level) for source in sources)
    _split_into(run, number, position, [length], inner=bool(inner))


def _storage_align(run: _Replay, number: int, position: int, factor: int, offset: int) -> None:
    run.stage(number).storage_align(run.loop(number, position), factor, offset)


def _compute_at(run: _Replay, number: int, target: int, position: int) -> None:
    run.attached[run.name(number)] = run.name(target), run.loop(target, position)


def _compute_inline(run: _Replay, number: int) -> None:
    run.stage(number).compute_inline()


def _compute_root(run: _Replay, number: int) -> None:
    run.attached.pop(run.name(number), None)


def _cache_read(run: _Replay, number: int, scope: str, readers: Sequence[int]) -> None:
    made = run.schedule.cache_read(run.name(number), scope, [run.name(r) for r in readers])
    run.add(number + 1, made)


def _cache_write(run: _Replay, number: int, scope: str) -> None:
    written = run.name(number)
    made = run.schedule.cache_write(written, scope)
    run.add(number, made)
    run.reset(written)


def _rfactor(run: _Replay, number: int, position: int, factor_position: int) -> None:
    factored = run.name(number)
    made = run.schedule.rfactor(factored, run.loop(number, position), factor_position)
    run.add(number, made)
    run.reset(factored)


_STEPS: Mapping[str, Callable[..., None]] = {
    "AN": _annotate,
    "FU": _fuse,
    "PR": _pragma,
    "RE": _reorder,
    "SP": _split,
    "FSP": _follow_split,
    "FFSP": _follow_fused_split,
    "SA": _storage_align,
    "CA": _compute_at,
    "CI": _compute_inline,
    "CR": _compute_root,
    "CHR": _cache_read,
    "CHW": _cache_write,
    "RF": _rfactor,
}
"""Opcodes of the log -> what they do."""
