"""From a schedule state to what isl needs: statements in axis space, their tree, and the size of every buffer.

A fold over the stages, consumers first: the region that a tile of consumers needs decides the loops of a producer
computed there. Every step takes what is known so far, and returns it with one stage more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import lru_cache

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.stmt import LoopKind
from tensorlang.ir.thread_tags import VIRTUAL
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.nest import sequence
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.axis_range import AxisRange
from tensorlang.schedule.derive.assembly import Assembly
from tensorlang.schedule.derive.carried import only_new, tiles_ahead, with_tile
from tensorlang.schedule.derive.following import Placement, root_order
from tensorlang.schedule.derive.memory import Memory, rolled, tiled, with_arrays, with_local, with_updates
from tensorlang.schedule.derive.places import Surroundings, earlier, surroundings
from tensorlang.schedule.derive.plans import BufferPlan, Derived, StagePlan, plan_all, plan_loops
from tensorlang.schedule.derive.prefetching import Prefetching, prefetches
from tensorlang.schedule.derive.stage_loops import Points, limits_of, loops_and_points, own_loops, with_lanes_around
from tensorlang.schedule.derive.statements import statements_of
from tensorlang.schedule.derive.strands import strand_statement
from tensorlang.schedule.derive.threads import meeting_loops, repeated, sunk, with_lanes
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, PlaceholderOp, buffers
from tensorlang.te.program import local_arrays
from tensorlang.te.tensor_intrin import find_intrin


def derive(state: ScheduleState) -> Derived:
    """Return statements, tree and buffers of a state."""
    return _derived(This(state))


@dataclass(frozen=True, slots=True, eq=False)
class This:
    """A state by its identity."""

    state: ScheduleState

    def __eq__(self, other: object) -> bool:
        return isinstance(other, This) and self.state is other.state

    def __hash__(self) -> int:
        return id(self.state)


@lru_cache(maxsize=4)
def _derived(asked: This) -> Derived:
    """What was derived for a proof serves the lowering of the same state."""
    state, known = asked.state, _Known()
    for op in reversed(state.program.ops):
        if not isinstance(op, PlaceholderOp):
            known = _with(state, known, op)
    memory = known.memory
    for op in state.program.ops:
        if isinstance(op, PlaceholderOp):
            memory = with_arrays(memory, state, op)
    brought = prefetches(state, known.stages, known.statements)
    return _assembled(state, known, memory, brought)


def ranges_in_place(state: ScheduleState, stage: str) -> dict[str, AxisRange]:
    """The ranges of a stage's loops where it is computed: those of the region that its consumers need there."""
    last, known = state.looped(stage), _Known()
    for op in reversed(state.program.ops):
        if op.name == stage:
            break
        if not isinstance(op, PlaceholderOp):
            known = _with(state, known, op)
    if isinstance(last, ComputeOp) and stage not in known.stages:
        known = _with_earlier(state, known, last)
        plan, _ = loops_and_points(state, last, _place(state, known, last))
    else:
        plan = _with(state, known, last).stages[stage]
    return {loop.axis: loop.range for loop in plan.own}


def memory_of(state: ScheduleState, op: Operation) -> Mapping[str, BufferPlan]:
    """The plans of arrays, those of one operation among them: at the root these are whole, whatever else there is."""
    stage = state.stages[op.name]
    return derive(state).plans if stage.attach is not None else with_arrays(Memory(), state, op).plans


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of some stages: their loops, their statements, their arrays, and where those are that follow."""

    stages: Mapping[str, StagePlan] = field(default_factory=dict)
    statements: tuple[Statement, ...] = ()
    memory: Memory = field(default_factory=Memory)
    placements: Mapping[str, Placement] = field(default_factory=dict)


def _with(state: ScheduleState, known: _Known, op: Operation) -> _Known:
    """What is known with one stage more."""
    if op.name in known.stages:
        return known
    if isinstance(op, HybridOp):
        return _with_hybrid(state, known, op)
    known = _with_earlier(state, known, op)
    place = _place(state, known, op)
    plan, points = loops_and_points(state, op, place)
    boxes = None if plan.is_whole else place.boxes
    memory = with_arrays(known.memory, state, op, plan, boxes)
    plan, points = with_lanes_around(state, known.stages, plan, points)
    plan = replace(plan, new=place.new)
    if plan.is_carried and not plan.is_ahead:
        plan, memory = _rolling(op, plan, place, points, memory)
    points = replace(points, guards=(*points.guards, *plan.new))
    made = _statements(state, op, plan, place, points)
    first = len(known.statements)
    plan = replace(plan, statements=tuple(range(first, first + len(made))))
    statements = (*known.statements, *made)
    if plan.is_ahead:
        statements, memory = _numbered(op, plan, statements), tiled(memory, op, plan)
    placements = known.placements if place.placement is None else {**known.placements, op.name: place.placement}
    return _Known({**known.stages, op.name: plan}, statements, memory, placements)


def _with_earlier(state: ScheduleState, known: _Known, op: Operation) -> _Known:
    """What is known with the stages that decide where one is."""
    for name in earlier(state, op):
        known = _with(state, known, state.program[name])
    return known


def _place(state: ScheduleState, known: _Known, op: Operation) -> Surroundings:
    return surroundings(state, op, known.stages, known.statements, known.placements)


def _with_hybrid(state: ScheduleState, known: _Known, op: HybridOp) -> _Known:
    """Every statement by its own relations, over loops that some of them share."""
    stage, first = state.stages[op.name], len(known.statements)
    own = own_loops(state, stage, stage.leaves, state.axis_ranges(op.name))
    numbers = {name: first + k for k, name in enumerate(stage.strands)}
    plan = StagePlan(stage, (), own, (), None, by_strand=numbers)
    made = (
        strand_statement(op, op.name, name, strand, stage.places[name], state.strict)
        for name, strand in stage.strands.items()
    )
    statements = (*known.statements, *made)
    memory = with_arrays(known.memory, state, op, plan)
    for local in local_arrays(op):
        memory = with_local(memory, state, op, local, plan, statements)
    return _Known({**known.stages, op.name: plan}, statements, memory, known.placements)


def _rolling(
    op: Operation, plan: StagePlan, place: Surroundings, points: Points, memory: Memory
) -> tuple[StagePlan, Memory]:
    """The new part of a tile, in memory that keeps the rest."""
    loop = plan.prefix[-1]
    elements = [points.values[a.name] for a in op.axis]
    new, moduli = only_new(op.name, loop.name, loop.range, place.boxes, elements)
    return replace(plan, new=tuple(new)), rolled(memory, op, moduli)


def _statements(
    state: ScheduleState, op: Operation, plan: StagePlan, place: Surroundings, points: Points
) -> list[Statement]:
    """The statements of a stage; those of tiles that are made ahead stand some iterations before their points."""
    limits = limits_of((*plan.prefix, *plan.own, *plan.init))
    loops, ahead = plan_loops(plan), plan.stage.storage.ahead
    if not plan.is_ahead:
        return statements_of(op, loops, points.values, points.guards, limits, state.strict)
    later = points.at(tiles_ahead(plan.prefix[-1].name, ahead))
    _check_sequential(plan)
    around = place.prefix[-1]
    limits[around.name] = around.range.earlier(ahead).ends
    made = statements_of(op, loops, later.values, later.guards, limits, state.strict)
    return [replace(statement, ahead=around.name, ahead_by=ahead) for statement in made]


def _numbered(op: Operation, plan: StagePlan, statements: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements with the number of the tile in all accesses to a stage that is computed ahead."""
    loop, names, own = plan.prefix[-1], [b.name for b in buffers(op)], set(plan.statements)
    ahead = plan.stage.storage.ahead
    return tuple(
        with_tile(statement, loop.name, loop.range, names, ahead if k in own else 0)
        for k, statement in enumerate(statements)
    )


def _check_sequential(plan: StagePlan) -> None:
    """Refuse tiles that are computed some iterations early in a loop whose iterations threads run at once."""
    loop, stage = plan.prefix[-1], plan.stage
    if loop.kind is LoopKind.BOUND and loop.thread != VIRTUAL:
        assert stage.attach is not None
        raise BadArgument(
            "",
            f"{stage.name} is computed iterations before it is read, in a loop that runs one after the other, but "
            f"{loop.axis} of {stage.attach.stage} is bound to {loop.thread}",
            suggested=[f"leave {loop.axis} unbound, or {stage.name} without a pipeline"],
        )


def _finished_later(known: _Known) -> frozenset[int]:
    """The statements of stages whose machine code only begins its work, by number."""
    asked = {name: plan.stage.tensorized for name, plan in known.stages.items()}
    found = {name: find_intrin(t.intrinsic, t.key) for name, t in asked.items() if t is not None}
    later = {name for name, intrin in found.items() if intrin is not None and intrin.group}
    return frozenset(number for number, statement in enumerate(known.statements) if statement.stage in later)


def _assembled(state: ScheduleState, known: _Known, memory: Memory, brought: Prefetching) -> Derived:
    """All stages in one tree, with the loops of threads where these have work of their own."""
    statements = (*known.statements, *brought.statements)
    assembly = Assembly(state, known.stages, statements, memory.folds, brought.places)
    nests = sequence([assembly.nest(name) for name in root_order(state)])
    tree = sunk(nests, statements, meeting_loops(statements, known.stages), _finished_later(known))
    scop, copied = assembly.scop(tree), repeated(tree)
    plans = with_updates(memory.plans, state)
    if any(loop.kind is LoopKind.BOUND for loop in loops_of(tree)):
        loops = {loop.name: loop for plan in known.stages.values() for loop in plan_all(plan)}
        plans = with_lanes(plans, tree, scop.statements, loops)
    return Derived(scop, tree, plans, brought.plans, copied)
