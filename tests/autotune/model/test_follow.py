"""What the model follows through a trace: the loops that the state of the schedule has, for every primitive."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from tensorlang import te
from tensorlang.autotune.model.follow import FOLLOWS, NO_EFFECT, Follower, Move
from tensorlang.errors import DefinitionError, ScheduleError
from tensorlang.ir.expr import to_text
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import Schedule, Trace, order
from tensorlang.schedule.axis_range import AxisRange, constant
from tensorlang.schedule.primitive import REGISTRY
from tensorlang.schedule.relation import (
    AffineRelation,
    BandRelation,
    FuseRelation,
    PartsRelation,
    ShiftRelation,
    SkewRelation,
    SplitRelation,
    made_by,
    made_values,
)
from tensorlang.schedule.state import ScheduleState, initial_state
from tensorlang.te.operation import ComputeOp, HybridOp
from tensorlang.te.program import Program
from tensorlang.testing.ordered_programs import ordered_programs
from tensorlang.testing.strategies import programs
from tensorlang.testing.traces import schedules
from tests.schedule.primitive_uses import USES

TILTED = (SkewRelation, AffineRelation, BandRelation)
"""Loops whose iterations others decide: the model counts those of one run of them."""


def test_every_primitive_is_in_the_table() -> None:
    assert set(FOLLOWS) == set(REGISTRY.values())
    assert {kind for kind, follow in FOLLOWS.items() if follow is FOLLOWS[NO_EFFECT[0]]} == set(NO_EFFECT)


def followed(trace: Trace, program: Program, values: Mapping[str, Any]) -> Follower:
    """The stages of a program, as the model follows a trace."""
    state = initial_state(program)
    follower = Follower.of(program, values)
    for step in trace.steps:
        before = state
        state, made = step.apply(before)
        follower.take(Move(step, made, before, state))
    return follower


def reaches(state: ScheduleState, stage: str, strand: str) -> dict[str, AxisRange]:
    """The ranges of the axes that a statement had in its operation."""
    op, source = state.program[stage], state.stages[stage].strands[strand].source
    if isinstance(op, HybridOp):
        return {name: AxisRange(*bounds) for name, bounds in sources(op)[source].hull.items()}
    return state.own_ranges(stage, strand)


def values(state: ScheduleState, stage: str, strand: str) -> dict[str, np.ndarray[Any, Any]]:
    """Every loop of a statement at all of its points."""
    relations = state.stages[stage].strands[strand].relations
    roots = reaches(state, stage, strand)
    ends = [(int(constant(r.lower) or 0), int(constant(r.upper) or 0)) for r in roots.values()]
    points = np.array(list(product(*(range(low, high) for low, high in ends))), dtype=np.int64).reshape(-1, len(roots))
    at: dict[str, Any] = {name: points[:, k] for k, name in enumerate(roots)}
    names = {"min": np.minimum, "max": np.maximum}
    made = made_values(relations, state.strand_ranges(stage, strand))
    at |= {name: eval(to_text(value), names, at) + 0 * points[:, 0] for name, value in made.items()}
    inside = np.ones(len(points), dtype=bool)
    for relation in relations:
        if isinstance(relation, ShiftRelation) and relation.cuts and relation.within is not None:
            low, high = constant(relation.within.lower), constant(relation.within.upper)
            inside &= (at[relation.shifted] >= low) & (at[relation.shifted] < high)
    return {name: found[inside] for name, found in at.items()}


def iterations(state: ScheduleState, stage: str, axis: str) -> int:
    """How far the values of a loop reach, over all its statements."""
    inside = list(order.statements(order.find(state.stages[stage].order, axis).body))
    found = np.concatenate([values(state, stage, strand)[axis] for strand in inside])
    return int(found.max() - found.min()) + 1 if len(found) else 0


def exact(state: ScheduleState, stage: str, axis: str) -> bool:
    """Whether a loop is made in ways in which the model counts all of its iterations one by one."""
    inside = list(order.statements(order.find(state.stages[stage].order, axis).body))
    return all(axis not in inexact(state, stage, strand) for strand in inside)


def inexact(state: ScheduleState, stage: str, strand: str) -> set[str]:
    """The axes of a statement that are tilted, cut out of several or not from 0 on, or in empty loops."""
    found: set[str] = set()
    fused: set[str] = set()
    known = state.strand_ranges(stage, strand)
    if any((constant(reach.extent) or 0) < 1 for reach in known.values()):  # ranges of empty loops tell nothing
        return set(known)
    for relation in state.stages[stage].strands[strand].relations:
        old, new = made_by(relation)
        if set(old) & found or isinstance(relation, TILTED):
            found |= {*new, *(old if isinstance(relation, BandRelation) else ())}
        if isinstance(relation, FuseRelation) or set(old) & fused:
            fused |= set(new)
        if isinstance(relation, SplitRelation | PartsRelation) and _is_rough(relation, known, fused):
            found |= set(new)
    return found


def _is_rough(relation: SplitRelation | PartsRelation, known: Mapping[str, AxisRange], fused: set[str]) -> bool:
    return relation.parent in fused or constant(known[relation.parent].lower) != 0


def check(schedule: Schedule) -> Iterator[str]:
    """Compare all stages; tell which loops were compared in number."""
    state, decided = schedule.state, {name: float(value) for name, value in schedule.state.decisions.items()}
    follower = followed(schedule.trace, schedule.original, decided)
    looped = {op.name for op in state.program.ops if isinstance(op, ComputeOp | HybridOp)}
    assert set(follower.stages) == looped
    for name in looped:
        stage = follower.stages[name]
        loops = stage.loops(stage.axes)
        assert set(state.stages[name].leaves) <= set(loops), name
        assert stage.copies == state.stages[name].storage.kept, name
        for axis in state.stages[name].leaves:
            if exact(state, name, axis):
                walked = math.prod(float(np.max(part.trips)) for part in loops[axis])
                declared = constant(state.axis_ranges(name)[axis].extent)
                assert iterations(state, name, axis) <= walked <= (declared or 0), f"{axis} of {name}"
                yield axis


@pytest.mark.parametrize("key", list(USES))
def test_loops_of_every_primitive(key: str) -> None:
    case = USES[key].program()
    exec(USES[key].steps, {"s": case.s, "te": te})
    try:
        list(check(case.s))
    except DefinitionError:
        assert case.s.state.sizes


KEEPING = {
    "double": "s[B].double_buffer()",
    "pipeline": "s[B].pipeline(3, ahead=1)",
    "rolling": "s[B].double_buffer(); s[B].rolling_buffer()",
    "another layout": "s[B].double_buffer(); s[B].transform_layout(lambda i: (i // 4, i % 4))",
    "a copy": "s[B].double_buffer(); s.cache_write(B, 'local')",
}


@pytest.mark.parametrize("steps", KEEPING.values(), ids=KEEPING)
def test_copies_of_tiles(steps: str) -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2, name="B")
    C = te.compute((64,), lambda i: B[i] + 1, name="C")
    s = te.create_schedule(C.op)
    outer, _ = s[C].split("i", factor=16)
    s[B].compute_at(s[C], outer)
    exec(steps, {"s": s, "B": B})
    assert list(check(s))


def trips(follower: Follower, candidate: int) -> dict[tuple[str, str], list[float]]:
    """How often all loops of all stages run in one candidate."""
    return {
        (stage.name, axis): [float(np.broadcast_to(part.trips, (2,))[candidate]) for part in parts]
        for stage in follower.stages.values()
        for axis, parts in stage.loops(stage.axes).items()
    }


@given(data=st.data())
def test_a_population_has_the_loops_of_each_candidate(data: st.DataObject) -> None:
    case = data.draw(programs(max_stages=2))
    schedule = data.draw(schedules(case.outputs, favoured=("split", "peel", "rfactor")))
    chosen = schedule.trace.decisions
    other = {name: data.draw(st.sampled_from((1, 2, 3, 4, 5))) for name in chosen}
    both = {name: np.array([float(chosen[name]), float(other[name])]) for name in chosen}
    alone = Trace(schedule.trace.with_decisions(other).steps)
    note(f"{case.program.text}{schedule.trace.to_python()}{other}")
    try:
        wanted = followed(alone, schedule.original, {name: float(value) for name, value in other.items()})
    except ScheduleError:
        return
    assert trips(followed(schedule.trace, schedule.original, both), 1) == trips(wanted, 1)


@given(data=st.data())
def test_loops_of_random_traces(data: st.DataObject) -> None:
    case = data.draw(programs())
    schedule = data.draw(schedules(case.outputs))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    list(check(schedule))


@given(data=st.data())
def test_loops_of_random_traces_of_ordered_programs(data: st.DataObject) -> None:
    case = data.draw(ordered_programs())
    schedule = data.draw(schedules(case.outputs, favoured=("peel", "partition", "fission", "fuse_with", "shift")))
    note(f"{case.program.text}{schedule.trace.to_python()}")
    try:
        list(check(schedule))
    except DefinitionError:
        assert schedule.state.sizes
