"""The immutable state of a schedule: a program, and how each of its stages is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tensorlang.errors import BadArgument
from tensorlang.ir.stmt import LoopKind
from tensorlang.schedule.names import nearest
from tensorlang.schedule.relation import AxisRange, FuseRelation, Relation, SkewRelation, ranges, symbolic
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, ExternOp, Operation
from tensorlang.te.program import Program


@dataclass(frozen=True, slots=True)
class Annotation:
    """How the iterations of a leaf axis run; `thread` is the tag of a bound one."""

    kind: LoopKind
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """Computed inside the loop `axis` of `stage`."""

    stage: str
    axis: str


@dataclass(frozen=True)
class StageState:
    """The loops of one operation: `leaves` outermost first, made from the operation's axes by `relations`."""

    name: str
    leaves: tuple[str, ...]
    relations: tuple[Relation, ...] = ()
    annotations: Mapping[str, Annotation] = field(default_factory=dict)
    attach: Attach | None = None
    scope: str = "global"

    def kind(self, axis: str) -> LoopKind:
        """How the iterations of a leaf run."""
        found = self.annotations.get(axis)
        return found.kind if found else LoopKind.SERIAL


def initial_stage(op: Operation) -> StageState:
    """The default loops of an operation: its axes, then its reduce axes."""
    return StageState(op.name, tuple(a.name for a in (*op.axis, *op.reduce_axis)))


@dataclass(frozen=True)
class ScheduleState:
    """A program and its stages by name, in program order; `decisions` are the values of sampled choices."""

    program: Program
    stages: Mapping[str, StageState]
    decisions: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def sizes(self) -> frozenset[str]:
        """Names of the symbolic sizes."""
        return frozenset(v.name for v in self.program.sizes)

    def stage(self, name: str) -> StageState:
        """Return a stage by name; BadArgument with the nearest name when there is none."""
        if name not in self.stages:
            raise BadArgument("", f"no stage {name!r}; {nearest(name, self.stages)}")
        return self.stages[name]

    def compute_op(self, name: str) -> ComputeOp:
        """Return the operation of a stage that has loops."""
        if name not in self.program.by_name:
            self.stage(name)
        op = self.program[name]
        if not isinstance(op, ComputeOp):
            kind = "an extern stage" if isinstance(op, ExternOp) else "an input"
            raise BadArgument("", f"{name} is {kind}: it has no loops to schedule")
        return op

    def leaf(self, stage: str, axis: str) -> str:
        """Return a leaf axis by name; BadArgument when it is unknown, or was split or fused already."""
        leaves = self.stage(stage).leaves
        if axis in leaves:
            return axis
        if axis in self.axis_ranges(stage):
            raise BadArgument("", f"axis {axis} of {stage} was already transformed; its loops are {', '.join(leaves)}")
        raise BadArgument("", f"no axis {axis!r} in {stage}; {nearest(axis, leaves)}")

    def axis_ranges(self, stage: str) -> dict[str, AxisRange]:
        """Ranges of all axes of a stage, computed whole (not tile-local)."""
        op = self.program[stage]
        roots = {a.name: AxisRange(symbolic(a.lower), symbolic(a.extent)) for a in (*op.axis, *op.reduce_axis)}
        return ranges(roots, self.stages[stage].relations)

    def axis_kinds(self, stage: str) -> dict[str, AxisKind]:
        """Spatial or reduce, for all axes of a stage."""
        op = self.program[stage]
        kinds = {a.name: a.kind for a in (*op.axis, *op.reduce_axis)}
        for relation in self.stages[stage].relations:
            kinds.update(relation_kinds(relation, kinds))
        return kinds

    def axis(self, stage: str, name: str) -> Axis:
        """Return an axis of a stage as users hold it."""
        found = self.axis_ranges(stage)[name]
        return Axis(name, found.extent, self.axis_kinds(stage)[name], found.lower)

    def with_stage(self, stage: StageState) -> ScheduleState:
        """Return the state with one stage replaced."""
        return replace(self, stages={**self.stages, stage.name: stage})

    def attached_to(self, stage: str) -> list[StageState]:
        """Stages computed inside loops of a stage, in program order."""
        return [s for s in self.stages.values() if s.attach is not None and s.attach.stage == stage]


def relation_kinds(relation: Relation, kinds: Mapping[str, AxisKind]) -> dict[str, AxisKind]:
    """The kinds of the axes that a relation makes."""
    match relation:
        case FuseRelation():
            return {relation.fused: kinds[relation.outer]}
        case SkewRelation():
            return {relation.skewed: kinds[relation.axis]}
        case _:
            return {relation.outer: kinds[relation.parent], relation.inner: kinds[relation.parent]}


def initial_state(program: Program) -> ScheduleState:
    """The unscheduled program: every stage at root, its loops as declared."""
    return ScheduleState(program, {op.name: initial_stage(op) for op in program.ops if not _is_input(op)})


def _is_input(op: Operation) -> bool:
    return not isinstance(op, ComputeOp | ExternOp)
