"""The immutable state of a schedule: a program, and how each of its stages is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from itertools import count
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr
from tensorlang.ir.stmt import For, LoopKind, Stmt, Store, children
from tensorlang.polyhedral.facts import Fact
from tensorlang.polyhedral.ordered import first_inside, sources
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import AxisRange, hull, symbolic
from tensorlang.schedule.names import nearest
from tensorlang.schedule.order import Order
from tensorlang.schedule.relation import Relation, made_by, ranges
from tensorlang.schedule.storage import Storage
from tensorlang.te.axis import Axis, AxisKind
from tensorlang.te.operation import ComputeOp, ExternOp, HybridOp, Operation
from tensorlang.te.program import Program


@dataclass(frozen=True, slots=True)
class Annotation:
    """How the iterations of a leaf axis run; `thread` is the tag of a bound one."""

    kind: LoopKind
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Attach:
    """Computed inside the loop `axis` of `stage`: what an iteration needs, or (`after`) what its values allow."""

    stage: str
    axis: str
    after: bool = False


@dataclass(frozen=True, slots=True)
class Strand:
    """A statement of a stage: which of the operation's, how its axes are made, and a part of its domain.

    `where` are conditions over the statement's own axes and the sizes.
    """

    source: str
    relations: tuple[Relation, ...] = ()
    where: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensorized:
    """The loop at and below which a stage runs as an intrinsic, given by its name and the hash of its declaration."""

    axis: str
    intrinsic: str
    key: str


@dataclass(frozen=True, slots=True)
class Prefetched:
    """In each iteration of the loop `axis`, what is read of `tensor` there `offset` iterations of `along` later.

    The iterations of the loop `shared`, if any, each prefetch a part of it. `level`: into which cache.
    """

    tensor: str
    axis: str
    offset: int
    along: str
    shared: str
    level: int = 1

    def renamed(self, names: Mapping[str, str]) -> Prefetched:
        """With other names of loops."""
        axis, along, shared = (names.get(loop, loop) for loop in (self.axis, self.along, self.shared))
        return replace(self, axis=axis, along=along, shared=shared)


Pragmas: TypeAlias = tuple[tuple[str, int | str], ...]
PARTITION_HINT = "loop_partition_hint"
IMPORT_LLVM = "import_llvm"
NONTEMPORAL = "nontemporal"
"""Pragmas: generate full tiles of a split apart, texts of LLVM IR for the kernel, and write past the caches."""


@dataclass(frozen=True)
class StageState:
    """The loops of one operation, as a tree; its statements by name, and what is asked of loops and memory.

    The stage of a compute operation is a chain of loops around one strand of its name; the initialisation of a
    reduction is derived, just outside the first reduce loop, or outside the loop `init_at`. `launched` are the threads
    that all loops of a scan share. `pragmas` are wishes about the code of a loop, `predicates` the conditions (as text)
    under which elements are stored. `atomic`: updates of one element may meet in a parallel loop. `wished`: where the
    stage is to be computed once its readers are computed there.
    """

    name: str
    order: Order
    strands: Mapping[str, Strand]
    annotations: Mapping[str, Annotation] = field(default_factory=dict)
    attach: Attach | None = None
    storage: Storage = field(default_factory=Storage)
    init_at: str | None = None
    tensorized: Tensorized | None = None
    launched: tuple[str, ...] = ()
    pragmas: Mapping[str, Pragmas] = field(default_factory=dict)
    prefetched: tuple[Prefetched, ...] = ()
    predicates: tuple[str, ...] = ()
    atomic: bool = False
    wished: Attach | None = None

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """The axes of all loops, outer ones first."""
        return order.axes(self.order)

    @cached_property
    def places(self) -> Mapping[str, tuple[str, ...]]:
        """The axes of the loops around every statement, outermost first."""
        return order.places(self.order)

    @property
    def relations(self) -> tuple[Relation, ...]:
        """How the axes of a compute stage are made."""
        (strand,) = self.strands.values()
        return strand.relations

    @property
    def all_relations(self) -> tuple[Relation, ...]:
        """The relations of all statements, those that several share once."""
        return tuple({id(r): r for s in self.strands.values() for r in s.relations}.values())

    @property
    def updates_atomically(self) -> bool:
        """Whether updates of one element may meet: an intrinsic updates its tile with ordinary stores."""
        return self.atomic and self.tensorized is None

    def kind(self, axis: str) -> LoopKind:
        """How the iterations of a leaf run."""
        found = self.annotations.get(axis)
        return found.kind if found else LoopKind.SERIAL

    def chained(self, leaves: tuple[str, ...], relations: tuple[Relation, ...] | None = None) -> StageState:
        """Return a compute stage with other loops."""
        ((name, strand),) = self.strands.items()
        kept = strand if relations is None else replace(strand, relations=relations)
        pragmas = {axis: asked for axis, asked in self.pragmas.items() if axis in leaves}
        prefetched = tuple(asked for asked in self.prefetched if asked.axis in leaves)
        made = replace(self, order=order.chain(leaves, (name,)), strands={name: kept})
        return replace(made, pragmas=pragmas, prefetched=prefetched)

    def related(self, below: Iterable[str], relation: Relation) -> StageState:
        """Return the stage with a relation added to some of its statements."""
        chosen = set(below)
        strands = {
            name: replace(s, relations=(*s.relations, relation)) if name in chosen else s
            for name, s in self.strands.items()
        }
        return replace(self, strands=strands)


def initial_stage(op: Operation) -> StageState:
    """The default loops of an operation: its axes, then its reduce axes; a hybrid operation's own."""
    if isinstance(op, HybridOp):
        return _hybrid_stage(op)
    axes = tuple(a.name for a in (*op.axis, *op.reduce_axis))
    return StageState(op.name, order.chain(axes, (op.name,)), {op.name: Strand(op.name)})


def _hybrid_stage(op: HybridOp) -> StageState:
    numbers = count()
    notes: dict[str, Annotation] = {}

    def nodes(stmt: Stmt) -> Order:
        match stmt:
            case For():
                if stmt.kind is not LoopKind.SERIAL:
                    notes[stmt.var.name] = Annotation(stmt.kind, stmt.thread)
                body = nodes(stmt.body)
                return (order.LoopNode(stmt.var.name, body),) if body else ()
            case Store():
                return (f"S{next(numbers)}",)
            case _:
                return tuple(n for child in children(stmt) for n in nodes(child))

    tree = nodes(op.body)
    return StageState(op.name, tree, {name: Strand(name) for name in order.statements(tree)}, notes)


@dataclass(frozen=True)
class ScheduleState:
    """A program and its stages by name, in program order; `decisions` are the values of sampled choices.

    `strict`: floating-point reductions keep the order in which they were declared. `reassociated` names the stages
    whose floating-point updates rfactor has put in another order. `facts`: what the user stated about index arrays.
    """

    program: Program
    stages: Mapping[str, StageState]
    decisions: Mapping[str, int] = field(default_factory=dict)
    strict: bool = False
    reassociated: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()

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
        """Return the operation of a stage of te.compute."""
        op = self.looped(name)
        if not isinstance(op, ComputeOp):
            raise BadArgument("", f"{name} {_kind(op)}")
        return op

    def looped(self, name: str) -> ComputeOp | HybridOp:
        """Return the operation of a stage that has loops."""
        if name not in self.program.by_name:
            self.stage(name)
        op = self.program[name]
        if not isinstance(op, ComputeOp | HybridOp):
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
        """Ranges of all axes of a stage, computed whole (not tile-local); the hull, where statements differ."""
        found: dict[str, AxisRange] = {}
        for name in self.stages[stage].strands:
            for axis, reach in self.strand_ranges(stage, name).items():
                found[axis] = hull(found[axis], reach) if axis in found else reach
        return found

    def strand_ranges(self, stage: str, strand: str) -> dict[str, AxisRange]:
        """Ranges of all axes of one statement."""
        chosen, op = self.stages[stage].strands[strand], self.program[stage]
        if isinstance(op, HybridOp):
            return hybrid_ranges(op, chosen.source, chosen.relations)
        return ranges(self.own_ranges(stage, strand), chosen.relations)

    def own_ranges(self, stage: str, strand: str) -> dict[str, AxisRange]:
        """Ranges of the axes that a statement has in the operation: boxes over the sizes."""
        op = self.program[stage]
        if isinstance(op, HybridOp):
            return hybrid_ranges(op, self.stages[stage].strands[strand].source, ())
        return {a.name: AxisRange(symbolic(a.lower), symbolic(a.extent)) for a in (*op.axis, *op.reduce_axis)}

    def axis_kinds(self, stage: str) -> dict[str, AxisKind]:
        """Spatial or reduce, for all axes of a stage; those of a hybrid one are all spatial."""
        op = self.program[stage]
        if isinstance(op, HybridOp):
            return dict.fromkeys(self.axis_ranges(stage), AxisKind.SPATIAL)
        kinds = {a.name: a.kind for a in (*op.axis, *op.reduce_axis)}
        for relation in self.stages[stage].relations if self.stages[stage].strands else ():
            old, new = made_by(relation)
            kinds.update(dict.fromkeys(new, kinds[old[0]] if old else AxisKind.SPATIAL))
        return kinds

    def axis(self, stage: str, name: str) -> Axis:
        """Return an axis of a stage as users hold it."""
        found = self.axis_ranges(stage)[name]
        return Axis(name, found.extent, self.axis_kinds(stage)[name], found.lower)

    def with_stage(self, stage: StageState) -> ScheduleState:
        """Return the state with one stage replaced."""
        return replace(self, stages={**self.stages, stage.name: stage})

    def stored(self, stage: str, storage: Storage) -> ScheduleState:
        """Return the state with a stage stored in another way."""
        return self.with_stage(replace(self.stage(stage), storage=storage))

    def attached_to(self, stage: str) -> list[StageState]:
        """Stages computed inside loops of a stage, in program order."""
        return [s for s in self.stages.values() if s.attach is not None and s.attach.stage == stage]


def hybrid_ranges(op: HybridOp, source: str, relations: tuple[Relation, ...]) -> dict[str, AxisRange]:
    """Ranges of all axes of a statement of a hybrid operation."""
    return _ranges(op, first_inside(op)[source], relations)


@lru_cache(maxsize=4096)
def _ranges(op: HybridOp, source: str, relations: tuple[Relation, ...]) -> dict[str, AxisRange]:
    return ranges({name: AxisRange(*bounds) for name, bounds in sources(op)[source].hull.items()}, relations)


def initial_state(program: Program) -> ScheduleState:
    """The unscheduled program: every stage at root, its loops as declared."""
    return ScheduleState(program, {op.name: initial_stage(op) for op in program.ops if not _is_input(op)})


def _kind(op: HybridOp) -> str:
    """Why a step for stages of te.compute is none for an operation of statements, and what to do."""
    if op.time is None:
        return "is a hybrid stage: this step is for stages of te.compute"
    inside = "declare what it would make, partial sums or a result and its copy, as a te.compute inside the scan"
    return f"is a scan, whose statements run in order, and this step is for stages of te.compute: {inside}"


def _is_input(op: Operation) -> bool:
    return not isinstance(op, ComputeOp | ExternOp | HybridOp)
