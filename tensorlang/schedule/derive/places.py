"""Where stages are computed: the loops of others around them, and the part of their points that belongs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Const, Expr
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.thread_tags import VIRTUAL, is_in_block
from tensorlang.polyhedral.footprint import Box, Reader, needed, placed
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.axis_range import AxisRange, constant, symbolic
from tensorlang.schedule.derive.carried import new_around
from tensorlang.schedule.derive.following import Placement, following_placement, own_placement, same_iteration
from tensorlang.schedule.derive.plans import LoopPlan, StagePlan, plan_all
from tensorlang.schedule.derive.threads import around_shared
from tensorlang.schedule.state import Attach, ScheduleState, StageState
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, Operation, buffers
from tensorlang.te.program import read_buffers


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The loops of other stages around one, the box of its points in one iteration, and which of these those are.

    `placement`: of a stage that follows its producer, the iteration that each of its points belongs to. `new`: when the
    tile around it has something new at all.
    """

    prefix: tuple[LoopPlan, ...]
    boxes: Sequence[Box | None]
    where: Sequence[Expr] = ()
    placement: Placement | None = None
    new: tuple[Expr, ...] = ()


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
    reading = _reading(op, counted, statements)
    boxes = _boxes(state, op, counted, stages, reading)
    new = () if stage.storage.is_carried else new_around({s.stage for s in reading}, counted, stages)
    return Surroundings(counted, boxes, new=new)


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


def _reading(op: Operation, prefix: tuple[LoopPlan, ...], statements: Sequence[Statement]) -> list[Statement]:
    """The statements inside some loops that read a stage."""
    names, written = {p.name for p in prefix}, {b.name for b in buffers(op)}
    return [s for s in statements if names <= set(s.loops) and any(r.array in written for r in s.reads)]


def _boxes(
    state: ScheduleState,
    op: Operation,
    prefix: tuple[LoopPlan, ...],
    stages: Mapping[str, StagePlan],
    reading: Sequence[Statement],
) -> list[Box | None]:
    """What one iteration of some loops needs of a stage, by the statements inside them that read it."""
    names, written = {p.name for p in prefix}, {b.name for b in buffers(op)}
    known = {loop.name: loop.range for plan in stages.values() for loop in plan_all(plan)}
    readers: list[Reader] = []
    for s in reading:
        inner = tuple(_iterations(n, known[n], s) for n in s.loops if n not in names)
        readers += [Reader(r.index, inner) for r in s.reads if r.array in written]
    if not readers:
        return [None] * len(op.shape)
    around = [(p.name, p.range.lower, p.range.upper) for p in prefix]
    found = needed(readers, around, len(op.shape), state.sizes)
    return [box and _cut(box, axis) for box, axis in zip(found, op.axis, strict=True)]


def _cut(box: Box, axis: Axis) -> Box:
    """A box that stays in place, without what lies outside of the axis: reads there do not happen."""
    base, size = constant(box.base), constant(box.size)
    low, extent = constant(symbolic(axis.lower)), constant(symbolic(axis.extent))
    if base is None or size is None or low is None:
        return box
    first = max(base, low)
    end = base + size if extent is None else min(base + size, low + extent)
    return Box(Const(first, INDEX), Const(end - first, INDEX)) if first < end else box


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
