"""Where stages are computed: the loops of others around them, and the part of their points that belongs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr
from tensorlang.ir.thread_tags import VIRTUAL, is_in_block
from tensorlang.polyhedral.footprint import Box, Reader, needed, placed
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.axis_range import AxisRange
from tensorlang.schedule.derive.following import Placement, following_placement, own_placement, same_iteration
from tensorlang.schedule.derive.plans import LoopPlan, StagePlan, plan_all
from tensorlang.schedule.derive.threads import around_shared
from tensorlang.schedule.state import Attach, ScheduleState, StageState
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import ComputeOp, Operation, buffers
from tensorlang.te.program import read_buffers


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The loops of other stages around one, the box of its points in one iteration, and which of these those are.

    `placement`: of a stage that follows its producer, the iteration that each of its points belongs to.
    """

    prefix: tuple[LoopPlan, ...]
    boxes: Sequence[Box | None]
    where: Sequence[Expr] = ()
    placement: Placement | None = None


def earlier(state: ScheduleState, op: Operation) -> Iterator[str]:
    """The stages that decide where one is computed which follows them: the loops around it, and its other inputs."""
    attach = state.stages[op.name].attach
    if attach is None or not attach.after:
        return
    host = state.stages[attach.stage]
    if host.attach is not None or not isinstance(state.program[host.name], ComputeOp) or not isinstance(op, ComputeOp):
        why = f"{op.name} is computed after tiles of {host.name}, which has to be a te.compute stage at the root"
        raise BadArgument("", why, suggested=[f"s[{op.name!r}].compute_root(); ..."])
    yield host.name
    for name in dict.fromkeys(state.program.producer[b] for b in read_buffers(op)):
        before = state.stages.get(name)
        if before is not None and before.attach is not None and before.attach.after:
            yield name


def surroundings(
    state: ScheduleState,
    op: Operation,
    stages: Mapping[str, StagePlan],
    statements: Sequence[Statement],
    placements: Mapping[str, Placement],
) -> Surroundings:
    """Where a stage is computed, by the plans of those that decide this."""
    stage = state.stages[op.name]
    if stage.attach is None:
        return Surroundings((), [None] * len(op.shape))
    prefix = stages[stage.attach.stage].path(stage.attach.axis)
    if stage.attach.after:
        assert isinstance(op, ComputeOp)
        return _following(state, op, stage.attach, prefix, placements)
    kinds, notes = state.axis_kinds(stage.name), stage.annotations.items()
    combined = {n.thread for a, n in notes if is_in_block(n.thread) and kinds[a] is AxisKind.REDUCE} - {VIRTUAL}
    counted = around_shared(stage.storage.scope, prefix, combined)
    return Surroundings(counted, _boxes(state, op, counted, stages, statements))


def _following(
    state: ScheduleState,
    op: ComputeOp,
    attach: Attach,
    prefix: tuple[LoopPlan, ...],
    placements: Mapping[str, Placement],
) -> Surroundings:
    program, host = state.program, state.stages[attach.stage]
    own = own_placement(host, state.axis_ranges(host.name), state.axis_kinds(host.name))
    known = {**placements, host.name: own}
    made = {b: (program[maker].axis, known[maker]) for b, maker in program.producer.items() if maker in known}
    placement = following_placement(op, [loop.name for loop in prefix], made)
    around = [(p.name, p.range.lower, p.range.upper) for p in prefix]
    boxes = placed([a.name for a in op.axes], list(placement.items()), around, state.sizes)
    return Surroundings(prefix, boxes, same_iteration(placement), placement)


def _boxes(
    state: ScheduleState,
    op: Operation,
    prefix: tuple[LoopPlan, ...],
    stages: Mapping[str, StagePlan],
    statements: Sequence[Statement],
) -> list[Box | None]:
    """What one iteration of some loops needs of a stage, by the statements inside them that read it."""
    names = {p.name for p in prefix}
    known = {loop.name: loop.range for plan in stages.values() for loop in plan_all(plan)}
    readers: list[Reader] = []
    written = {b.name for b in buffers(op)}
    for s in statements:
        if names <= set(s.loops):
            inner = tuple(_iterations(n, known[n], s) for n in s.loops if n not in names)
            readers += [Reader(r.index, inner) for r in s.reads if r.array in written]
    if not readers:
        return [None] * len(op.shape)
    around = [(p.name, p.range.lower, p.range.upper) for p in prefix]
    return needed(readers, around, len(op.shape), state.sizes)


def _iterations(name: str, loop: AxisRange, statement: Statement) -> tuple[str, Expr, Expr]:
    """The iterations of a loop in which a statement runs: earlier ones, where it makes the tiles of later ones."""
    own = loop.earlier(statement.ahead_by) if statement.ahead == name else loop
    return name, own.lower, own.upper


def reads_lanes(state: ScheduleState, stage: StageState) -> bool:
    """Whether a stage reads what each thread has for itself, where it is computed."""
    program = state.program
    read = (state.stages.get(program.producer[b]) for b in read_buffers(program[stage.name]))
    return any(
        s.attach is not None and s.attach.stage != stage.name and not s.storage.is_shared for s in read if s is not None
    )
