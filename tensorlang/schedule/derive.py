"""From a schedule state to what isl needs: statements in axis space, their tree, and the size of every buffer.

Consumers come first: the region that a tile of consumers needs decides the loops of a producer computed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tensorlang.ir.expr import Buffer, Expr, Var, binary
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.polyhedral.footprint import Box, Reader, needed
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, sequence, times
from tensorlang.polyhedral.statement import Array, Scop, Statement
from tensorlang.schedule.relation import (
    ZERO,
    AxisRange,
    PartsRelation,
    SplitRelation,
    backward,
    constant,
    ranges,
    simple,
    split_factor,
    symbolic,
)
from tensorlang.schedule.state import ScheduleState, StageState
from tensorlang.schedule.statements import is_true, statements_of
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import ComputeOp, Operation, PlaceholderOp, buffers


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """A loop of the tree before its body is known."""

    name: str
    axis: str
    range: AxisRange
    kind: LoopKind
    thread: str
    peel: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class BufferPlan:
    """Where an array lives: its local shape, the offset of its first element, and the loop that owns it."""

    buffer: Buffer
    base: tuple[Expr, ...]
    loop: str | None
    is_argument: bool


@dataclass(slots=True)
class StagePlan:
    """The loops of one stage: those around it, then its own; and the values of its axes."""

    stage: StageState
    prefix: tuple[LoopPlan, ...]
    own: tuple[LoopPlan, ...]
    init: tuple[LoopPlan, ...]
    first_reduce: int | None
    statements: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Derived:
    """A schedule state, ready for isl: the statements, their tree, the buffers by name."""

    scop: Scop
    tree: Tree
    plans: dict[str, BufferPlan]


def derive(state: ScheduleState) -> Derived:
    """Return statements, tree and buffers of a state."""
    return _Derivation(state).run()


def ranges_in_place(state: ScheduleState, stage: str) -> dict[str, AxisRange]:
    """The ranges of a stage's loops where it is computed: those of the region that its consumers need there."""
    derivation = _Derivation(state)
    derivation.run()
    return {loop.axis: loop.range for loop in derivation.stages[stage].own}


class _Derivation:
    def __init__(self, state: ScheduleState) -> None:
        self.state = state
        self.stages: dict[str, StagePlan] = {}
        self.statements: list[Statement] = []
        self.buffers: dict[str, BufferPlan] = {}

    def run(self) -> Derived:
        program = self.state.program
        for op in reversed(program.ops):
            if not isinstance(op, PlaceholderOp):
                self._stage(op, self.state.stages[op.name])
        for op in program.ops:
            if isinstance(op, PlaceholderOp):
                self._plan_buffers(op, (), None, True)
        roots = [op.name for op in program.ops if op.name in self.stages and self.stages[op.name].stage.attach is None]
        tree = sequence([self._nest(name) for name in roots])
        return Derived(self._scop(tree), tree, self.buffers)

    def _stage(self, op: Operation, stage: StageState) -> None:
        prefix = self._prefix(stage)
        boxes: list[Box | None] = self._boxes(op, prefix) if stage.attach else [None] * len(op.shape)
        plan, values, guards = self._loops(op, stage, prefix, boxes)
        self.stages[op.name] = plan
        bases = tuple(_base(b) for b in boxes)
        owner = prefix[-1].name if prefix else None
        self._plan_buffers(op, bases, owner, op.name in self.state.program.outputs, boxes)
        limits = _limits((*plan.prefix, *plan.own, *plan.init))
        for statement in statements_of(op, plan_loops(plan), values, guards, limits):
            plan.statements.append(len(self.statements))
            self.statements.append(statement)

    def _prefix(self, stage: StageState) -> tuple[LoopPlan, ...]:
        if stage.attach is None:
            return ()
        host = self.stages[stage.attach.stage]
        path = (*host.prefix, *host.own)
        last = next(k for k, loop in enumerate(host.own) if loop.axis == stage.attach.axis)
        return path[: len(host.prefix) + last + 1]

    def _boxes(self, op: Operation, prefix: tuple[LoopPlan, ...]) -> list[Box | None]:
        names = tuple(p.name for p in prefix)
        known = {loop.name: loop.range for plan in self.stages.values() for loop in plan_all(plan)}
        readers: list[Reader] = []
        written = {b.name for b in buffers(op)}
        for s in self.statements:
            if s.loops[: len(names)] == names:
                inner = tuple((n, known[n].lower, known[n].upper) for n in s.loops[len(names) :])
                readers += [Reader(r.index, inner) for r in s.reads if r.array in written]
        if not readers:
            return [None] * len(op.shape)
        around = [(p.name, p.range.lower, p.range.upper) for p in prefix]
        return needed(readers, around, len(op.shape), self.state.sizes)

    def _loops(
        self, op: Operation, stage: StageState, prefix: tuple[LoopPlan, ...], boxes: list[Box | None]
    ) -> tuple[StagePlan, dict[str, Expr], list[Expr]]:
        """The loop plans of a stage, the value of each of its own axes, and its guards."""
        roots: dict[str, AxisRange] = {}
        offset: dict[str, Expr] = {}
        for axis, box in zip(op.axis, boxes, strict=isinstance(op, ComputeOp)):
            roots[axis.name] = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
            if box is not None:
                roots[axis.name], offset[axis.name] = AxisRange(ZERO, box.size), box.base
        for axis in op.reduce_axis:
            roots[axis.name] = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
        known = ranges(roots, stage.relations)
        kinds = self.state.axis_kinds(stage.name)
        loops = tuple(self._loop(stage, axis, known, "") for axis in stage.leaves)
        first = next((k for k, a in enumerate(stage.leaves) if kinds[a] is AxisKind.REDUCE), None)
        inside = stage.leaves[first:] if first is not None else ()
        init = tuple(self._loop(stage, a, known, ".init") for a in inside if kinds[a] is not AxisKind.REDUCE)
        value, guards = backward(stage.relations, known, {a: Var(f"{stage.name}.{a}", INDEX) for a in stage.leaves})
        for axis in op.axis:
            if axis.name in offset:
                value[axis.name] = simple(binary("add", offset[axis.name], value[axis.name]))
                guards += [binary("ge", value[axis.name], 0), binary("lt", value[axis.name], symbolic(axis.extent))]
        limits = _limits((*prefix, *loops))
        axes = {a.name: simplify(value[a.name], limits) for a in (*op.axis, *op.reduce_axis)}
        guards = [g for g in (simplify(g, limits) for g in guards) if not is_true(g)]
        return StagePlan(stage, prefix, loops, init, first), axes, guards

    def _loop(self, stage: StageState, axis: str, known: dict[str, AxisRange], suffix: str) -> LoopPlan:
        note = stage.annotations.get(axis)
        kind, thread = (note.kind, note.thread) if note else (LoopKind.SERIAL, "")
        peel = _points(stage, axis, known)
        return LoopPlan(f"{stage.name}.{axis}{suffix}", axis, known[axis], kind, thread, peel)

    def _plan_buffers(
        self,
        op: Operation,
        base: tuple[Expr, ...],
        loop: str | None,
        is_argument: bool,
        boxes: list[Box | None] | None = None,
    ) -> None:
        scope = self.state.stages[op.name].scope if op.name in self.state.stages else "global"
        for buffer in buffers(op):
            shape = tuple(symbolic(e) for e in buffer.shape)
            if boxes is not None and not is_argument:
                shape = tuple(s if b is None else b.size for s, b in zip(shape, boxes, strict=True))
            planned = replace(buffer, shape=shape, scope=scope)
            self.buffers[buffer.name] = BufferPlan(planned, base or (ZERO,) * len(shape), loop, is_argument)

    def _nest(self, name: str) -> Tree:
        """The tree of a stage below the loops around it."""
        plan = self.stages[name]
        init, *rest = plan.statements
        if plan.first_reduce is None:
            return self._chain(plan, 0, len(plan.own), Leaf(init))
        update = self._chain(plan, plan.first_reduce, len(plan.own), Leaf(rest[0]))
        start: Tree = Leaf(init)
        for loop in reversed(plan.init):
            start = _wrap(loop, plan.stage.name, start)
        return self._chain(plan, 0, plan.first_reduce, sequence([start, update]))

    def _chain(self, plan: StagePlan, begin: int, end: int, body: Tree) -> Tree:
        """Own loops `begin..end` around a body, each with the producers that are computed inside it."""
        for loop in reversed(plan.own[begin:end]):
            inside = [
                self._nest(op.name)
                for op in self.state.program.ops
                if op.name in self.stages and self._is_inside(self.stages[op.name].stage, plan.stage.name, loop.axis)
            ]
            body = _wrap(loop, plan.stage.name, sequence([*inside, body]))
        return body

    def _is_inside(self, stage: StageState, host: str, axis: str) -> bool:
        return stage.attach is not None and (stage.attach.stage, stage.attach.axis) == (host, axis)

    def _scop(self, tree: Tree) -> Scop:
        time = dict(times(tree))
        loops = {loop.name: loop for plan in self.stages.values() for loop in plan_all(plan)}
        version = {
            b.name: tuple(p.name for p in self.stages[op.name].prefix)
            for op in self.state.program.ops
            if op.name in self.stages
            for b in buffers(op)
        }
        done = []
        for number, s in enumerate(self.statements):
            lanes = tuple(n for n in s.loops if loops[n].kind is LoopKind.VECTORIZED)
            writes = tuple(replace(w, version=version.get(w.array, ())) for w in s.writes)
            reads = tuple(replace(r, version=version.get(r.array, ())) for r in s.reads)
            bounds = tuple(c for n in s.loops for c in _bounds(loops[n]))
            domain = (*bounds, *s.domain)
            done.append(replace(s, domain=domain, writes=writes, reads=reads, time=time[number], lanes=lanes))
        unordered = frozenset(n for n, p in loops.items() if p.kind in (LoopKind.PARALLEL, LoopKind.BOUND))
        inputs = {b.name for op in self.state.program.ops if isinstance(op, PlaceholderOp) for b in buffers(op)}
        arrays = tuple(
            Array(b.name, tuple(symbolic(e) for e in b.shape), b.name in inputs)
            for op in self.state.program.ops
            for b in buffers(op)
        )
        return Scop(tuple(done), arrays, self.state.sizes, unordered)


def _base(box: Box | None) -> Expr:
    return ZERO if box is None else box.base


def _limits(loops: Sequence[LoopPlan]) -> dict[str, tuple[int | None, int | None]]:
    """Inclusive constant bounds of loops, as far as known."""
    found = {}
    for loop in loops:
        low, end = constant(loop.range.lower), constant(loop.range.upper)
        found[loop.name] = low, None if end is None else end - 1
    return found


def _bounds(loop: LoopPlan) -> tuple[Expr, Expr]:
    var = Var(loop.name, INDEX)
    return binary("ge", var, loop.range.lower), binary("lt", var, loop.range.upper)


def _wrap(loop: LoopPlan, stage: str, body: Tree) -> Loop:
    bounds = loop.range
    return Loop(loop.name, loop.axis, stage, bounds.lower, bounds.upper, loop.kind, loop.thread, loop.peel, body)


def plan_all(plan: StagePlan) -> tuple[LoopPlan, ...]:
    """All loops that a stage owns, those of its initialisation included."""
    return (*plan.own, *plan.init)


def plan_loops(plan: StagePlan) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Expr]]:
    """Loop names around the main statement, around the initialisation, and the renaming between the two."""
    prefix = tuple(p.name for p in plan.prefix)
    outer = plan.own[: plan.first_reduce] if plan.first_reduce is not None else ()
    init = (*prefix, *(p.name for p in outer), *(p.name for p in plan.init))
    renamed: dict[str, Expr] = {p.name.removesuffix(".init"): Var(p.name, INDEX) for p in plan.init}
    return (*prefix, *(p.name for p in plan.own)), init, renamed


def _points(stage: StageState, axis: str, known: dict[str, AxisRange]) -> tuple[tuple[str, int], ...]:
    """The point loops of a peeled split whose outer axis is `axis`: full when all of them run whole."""
    for relation in stage.relations:
        if isinstance(relation, SplitRelation | PartsRelation) and relation.outer == axis and relation.tail == "peel":
            factor = constant(split_factor(relation, known[relation.parent]))
            low, extent = constant(known[relation.parent].lower), constant(known[relation.parent].extent)
            below = _leaves_of(stage, relation.inner)
            sizes = [(leaf, constant(known[leaf].extent)) for leaf in below]
            if factor and low == 0 and extent is not None and extent % factor == 0 and not _guarded_above(stage, axis):
                return ()
            found = [(f"{stage.name}.{leaf}{s}", n) for leaf, n in sizes if n is not None for s in ("", ".init")]
            return tuple(found)
    return ()


def _guarded_above(stage: StageState, axis: str) -> bool:
    """True when the split axis is itself part of another split, whose guard may cut this one."""
    made = {r.outer for r in stage.relations if isinstance(r, SplitRelation | PartsRelation)}
    parents = {r.parent for r in stage.relations if isinstance(r, SplitRelation | PartsRelation) and r.outer == axis}
    inner = {r.inner for r in stage.relations if isinstance(r, SplitRelation | PartsRelation)}
    return bool(parents & (made | inner))


def _leaves_of(stage: StageState, axis: str) -> list[str]:
    if axis in stage.leaves:
        return [axis]
    found: list[str] = []
    for r in stage.relations:
        match r:
            case SplitRelation() | PartsRelation() if r.parent == axis:
                found += _leaves_of(stage, r.outer) + _leaves_of(stage, r.inner)
    return found
