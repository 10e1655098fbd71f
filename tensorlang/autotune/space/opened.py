"""Closed schedules opened: the numbers of a trace become decisions, with candidates around what they are.

This is how schedules of the operator library, and those that a rule writes with fixed numbers, are tuned: the steps
stay, and every candidate is proven anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tensorlang.autotune.model.nest import Nest, register_tile
from tensorlang.autotune.model.nests import Scheduled
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.task import Task
from tensorlang.schedule import Decision, Trace
from tensorlang.schedule import primitives as p
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.primitive import Primitive
from tensorlang.schedules.room import MOST_UNROLLED, Columns, Constraint, Mask

MOST_KNOBS = 12
_STEPS = (-3, -2, -1, 0, 1, 2, 3)


def opened(task: Task, trace: Trace) -> tuple[Draft, dict[str, int]]:
    """A draft of the same steps with the factors of its splits open, and the decisions that make the trace again.

    Layouts that were made for a factor follow it.
    """
    extents = _extents(task, trace)
    factors = _factors(trace)
    choices: dict[str, p.SampleChoice] = {}
    changed: dict[int, Primitive] = {}
    for place, (name, factor) in factors.items():
        candidates = _candidates(factor, extents[place], _lanes(task, trace, place))
        if len(choices) == MOST_KNOBS or len(candidates) < 2:
            continue
        step = trace.steps[place]
        choices[name] = p.SampleChoice(name, candidates, factor)
        assert isinstance(step, p.Split)
        changed[place] = replace(step, factor=Decision(name, factor))
    followed = {choice.decision: name for name, choice in choices.items()}  # of equal factors the last: the innermost
    for place, step in enumerate(trace.steps):
        if isinstance(step, p.TransformLayout):
            changed[place] = replace(step, index=tuple(_following(text, followed) for text in step.index))
    draft = Draft.of(task.outputs)
    taken = trace.open  # decisions that are open already stay
    for step in (*choices.values(), *(changed.get(n, s) for n, s in enumerate(trace.steps))):
        draft.apply(step)
    start = {name: choice.decision for name, choice in choices.items()} | {n: trace.decisions[n] for n in taken}
    return draft, start


def _factors(trace: Trace) -> dict[int, tuple[str, int]]:
    """The places of splits by a number, with the names of their decisions."""
    found: dict[int, tuple[str, int]] = {}
    names: set[str] = set(trace.open)
    for place, step in enumerate(trace.steps):
        if isinstance(step, p.Split) and step.factor is not None and not isinstance(step.factor, Decision):
            wish = re.sub(r"\W", "_", f"{step.stage}_{step.axis}")
            name = next(n for n in _numbered(wish) if n not in names)
            names.add(name)
            found[place] = name, step.factor
    return found


def _numbered(wish: str) -> Iterator[str]:
    yield wish
    number = 2
    while True:
        yield f"{wish}_{number}"
        number += 1


def _extents(task: Task, trace: Trace) -> dict[int, int]:
    """How long the axis of every split is."""
    draft, found = Draft.of(task.outputs), dict[int, int]()
    for place, step in enumerate(trace.steps):
        if isinstance(step, p.Split):
            known = draft.state.axis_ranges(step.stage).get(step.axis)
            found[place] = (None if known is None else constant(known.extent)) or 1
        draft.apply(step)
    return found


def _lanes(task: Task, trace: Trace, place: int) -> int:
    """The vector length where the inner loop of a split is vectorised (or a partial result for each lane); else 1."""
    step = trace.steps[place]
    assert isinstance(step, p.Split)
    inner = re.compile(re.escape(step.axis) + r"_i(_\d+)?$")
    later = trace.steps[place + 1 :]
    vectors = any(
        isinstance(s, p.Vectorize | p.RFactor) and s.stage == step.stage and inner.match(s.axis) for s in later
    )
    return task.target.lanes(32) if vectors and (step.factor or 1) % task.target.lanes(32) == 0 else 1


def _candidates(factor: int, extent: int, lanes: int) -> tuple[int, ...]:
    """Numbers near a factor: halves, doubles, those between, divisors of the axis; whole vectors of a vector loop."""
    if lanes > 1:
        return tuple(sorted({factor, *(lanes * n for n in (1, 2, 3, 4, 6, 8) if lanes * n <= max(extent, factor))}))
    near = {round(factor * 2.0**n) for n in _STEPS} | {round(factor * 0.75), round(factor * 1.5)}
    divisors = {n for n in range(1, min(extent, 64) + 1) if extent % n == 0 and factor / 4 <= n <= 4 * factor}
    return tuple(sorted({factor, *(n for n in near | divisors if 1 <= n <= extent)}))


def _following(text: str, followed: Mapping[int, str]) -> str:
    """An index of a layout with its block sizes replaced by decisions of that value."""
    return re.sub(r"(//|%) (\d+)", lambda m: f"{m[1]} {followed.get(int(m[2]), m[2])}" if int(m[2]) > 1 else m[0], text)


def device_limits(task: Task, scheduled: Scheduled, start: Mapping[str, int]) -> tuple[Constraint, ...]:
    """What a device allows of any trace: the heaviest stages' register tiles and unrolled bodies.

    The schedule that was opened sets the measure where it goes beyond a limit itself.
    """
    names = tuple(start)
    own = scheduled.nests({n: np.asarray([float(start[n])]) for n in names}, 1)
    registers = [max(task.target.vector_registers, _registers(task, nest)[0]) for nest in own]
    bodies = [max(MOST_UNROLLED, _body(task, nest)[0]) for nest in own]

    def nests(values: Columns) -> tuple[tuple[Nest, ...], int]:
        count = len(next(iter(values.values()))) if values else 1
        return scheduled.nests(values, count), count

    def fits(values: Columns) -> Mask:
        found, count = nests(values)
        mask = np.ones(count, dtype=bool)
        for nest, most, body in zip(found, registers, bodies, strict=True):
            mask &= (_registers(task, nest) <= most) & (_body(task, nest) <= body)
        return mask

    return (Constraint("register tiles and unrolled bodies fit the device", fits),) if names else ()


def _registers(task: Task, nest: Nest) -> Mask:
    return np.asarray(register_tile(nest, task.target.lanes(nest.bits)).registers * np.ones(nest.count))


def _body(task: Task, nest: Nest) -> Mask:
    return np.asarray(register_tile(nest, task.target.lanes(nest.bits)).fma)
