"""The loops that a stage has at its place, and what its own axes are in terms of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, binary, substitute
from tensorlang.ir.loops import ASKED, THREAD_REDUCE
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.ir.thread_tags import is_thread
from tensorlang.schedule.axis_range import ZERO, AxisRange, simple, symbolic
from tensorlang.schedule.derive.peeling import point_loops
from tensorlang.schedule.derive.places import Surroundings, reads_lanes
from tensorlang.schedule.derive.plans import LoopPlan, StagePlan
from tensorlang.schedule.derive.statements import is_true
from tensorlang.schedule.derive.threads import joined
from tensorlang.schedule.index_text import names_lookup, parse_condition
from tensorlang.schedule.relation import backward, ranges
from tensorlang.schedule.state import ScheduleState, StageState
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import ComputeOp, Operation


@dataclass(frozen=True, slots=True)
class Points:
    """The points of a stage: its own axes in terms of loops, and the conditions under which it is computed."""

    values: Mapping[str, Expr]
    guards: tuple[Expr, ...]

    def at(self, loops: Mapping[str, Expr]) -> Points:
        """The points where loops stand for something else."""
        values = {axis: substitute(value, loops) for axis, value in self.values.items()}
        return Points(values, tuple(substitute(guard, loops) for guard in self.guards))


def loops_and_points(state: ScheduleState, op: Operation, place: Surroundings) -> tuple[StagePlan, Points]:
    """The loops of a stage at a place, and its points."""
    stage, prefix = state.stages[op.name], place.prefix
    roots: dict[str, AxisRange] = {}
    offset: dict[str, Expr] = {}
    for axis, box in zip(op.axis, place.boxes, strict=isinstance(op, ComputeOp)):
        roots[axis.name] = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
        if box is not None:
            roots[axis.name], offset[axis.name] = AxisRange(ZERO, box.size), box.base
    for axis in op.reduce_axis:
        roots[axis.name] = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
    known = ranges(roots, stage.relations, tight=bool(offset))
    kinds = state.axis_kinds(stage.name)
    loops = own_loops(state, stage, stage.leaves, known)
    first = next((k for k, a in enumerate(stage.leaves) if kinds[a] is AxisKind.REDUCE), None)
    if first is not None and stage.init_at in stage.leaves:
        first = min(first, stage.leaves.index(stage.init_at))
    inside = stage.leaves[first:] if first is not None else ()
    init = own_loops(state, stage, [a for a in inside if kinds[a] is not AxisKind.REDUCE], known, ".init")
    value, guards = backward(stage.relations, known, {a: Var(f"{stage.name}.{a}", INDEX) for a in stage.leaves})
    for axis in op.axis:
        if axis.name in offset:
            value[axis.name] = simple(binary("add", offset[axis.name], value[axis.name]))
            guards += [binary("ge", value[axis.name], 0), binary("lt", value[axis.name], symbolic(axis.extent))]
    known_names = names_lookup({**value, **{p.name: Var(p.name, INDEX) for p in prefix}}, {}, state.sizes)
    guards += [parse_condition(text, known_names) for text in stage.predicates]
    guards += [substitute(c, value) for c in place.where]
    limits = limits_of((*prefix, *loops))
    axes = {a.name: simplify(value[a.name], limits) for a in (*op.axis, *op.reduce_axis)}
    needed = tuple(g for g in (simplify(g, limits) for g in guards) if not is_true(g))
    return StagePlan(stage, prefix, loops, init, first), Points(axes, needed)


def own_loops(
    state: ScheduleState, stage: StageState, axes: Collection[str], known: Mapping[str, AxisRange], suffix: str = ""
) -> tuple[LoopPlan, ...]:
    """The loops over some axes of a stage."""
    return tuple(_loop(state, stage, axis, known, suffix) for axis in axes)


def _loop(state: ScheduleState, stage: StageState, axis: str, known: Mapping[str, AxisRange], suffix: str) -> LoopPlan:
    note = stage.annotations.get(axis)
    kind, thread = (note.kind, note.thread) if note else (LoopKind.SERIAL, "")
    peel = point_loops(stage, axis, known)
    pragmas = tuple((word, value) for word, value in stage.pragmas.get(axis, ()) if word in ASKED)
    shared = is_thread(thread) and state.axis_kinds(stage.name)[axis] is AxisKind.REDUCE
    if shared and not stage.updates_atomically:
        pragmas = (*pragmas, (THREAD_REDUCE, 1))
    return LoopPlan(f"{stage.name}.{axis}{suffix}", axis, known[axis], kind, thread, peel, pragmas)


def with_lanes_around(
    state: ScheduleState, stages: Mapping[str, StagePlan], plan: StagePlan, points: Points
) -> tuple[StagePlan, Points]:
    """A stage whose own loops over lanes are those around its place, where these go over the same ones."""
    attach = plan.stage.attach
    if attach is None or attach.after or not reads_lanes(state, plan.stage):
        return plan, points
    around = stages[attach.stage].path(attach.axis)
    same = joined(plan, around)
    if not same:
        return plan, points
    lanes = frozenset(loop.name for loop in same.values())
    counted = {loop.name for loop in plan.prefix} | lanes
    prefix = tuple(loop for loop in around if loop.name in counted)
    own = tuple(loop for loop in plan.own if loop.name not in same)
    meant: dict[str, Expr] = {name: Var(loop.name, INDEX) for name, loop in same.items()}
    return replace(plan, prefix=prefix, own=own, lanes=lanes), points.at(meant)


def limits_of(loops: Sequence[LoopPlan]) -> dict[str, tuple[int | None, int | None]]:
    """Inclusive constant bounds of loops, as far as known."""
    return {loop.name: loop.range.ends for loop in loops}
