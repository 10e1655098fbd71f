"""From a schedule state to what isl needs: statements in axis space, their tree, and the size of every buffer.

Consumers come first: the region that a tile of consumers needs decides the loops of a producer computed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Buffer, Const, Expr, Var, binary, substitute
from tensorlang.ir.loops import ASKED, THREAD_REDUCE
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.ir.thread_tags import VIRTUAL, is_in_block, is_thread
from tensorlang.polyhedral.footprint import Box, Reader, needed, placed
from tensorlang.polyhedral.nest import loops as loops_of
from tensorlang.polyhedral.nest import sequence
from tensorlang.polyhedral.ordered import sources, touching
from tensorlang.polyhedral.statement import Fold, Statement
from tensorlang.polyhedral.zeros import begins_as_zeros
from tensorlang.schedule.axis_range import ZERO, AxisRange, simple, symbolic
from tensorlang.schedule.derive.assembly import Assembly
from tensorlang.schedule.derive.carried import only_new, tiles_ahead, with_tile
from tensorlang.schedule.derive.following import (
    Placement,
    following_placement,
    own_placement,
    root_order,
    same_iteration,
)
from tensorlang.schedule.derive.peeling import point_loops
from tensorlang.schedule.derive.plans import BufferPlan, Derived, LoopPlan, StagePlan, plan_all, plan_loops
from tensorlang.schedule.derive.prefetching import PrefetchPlan, plan_prefetch
from tensorlang.schedule.derive.scopes import copies, loops_of_scope
from tensorlang.schedule.derive.statements import is_true, statements_of
from tensorlang.schedule.derive.strands import strand_statement
from tensorlang.schedule.derive.threads import around_shared, joined, meeting_loops, repeated, sunk, with_lanes
from tensorlang.schedule.index_text import names_lookup, parse_condition
from tensorlang.schedule.relation import backward, ranges
from tensorlang.schedule.state import Attach, ScheduleState, StageState
from tensorlang.schedule.storage import Storage
from tensorlang.te.axis import AxisKind
from tensorlang.te.operation import ComputeOp, HybridOp, Operation, PlaceholderOp, buffers
from tensorlang.te.program import local_arrays, read_buffers


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
    return _Derivation(asked.state).run()


def ranges_in_place(state: ScheduleState, stage: str) -> dict[str, AxisRange]:
    """The ranges of a stage's loops where it is computed: those of the region that its consumers need there."""
    return {loop.axis: loop.range for loop in _Derivation(state).own_loops(state.looped(stage))}


class _Derivation:
    def __init__(self, state: ScheduleState) -> None:
        self.state = state
        self.stages: dict[str, StagePlan] = {}
        self.statements: list[Statement] = []
        self.buffers: dict[str, BufferPlan] = {}
        self.folds: list[Fold] = []
        self.prefetches: dict[int, PrefetchPlan] = {}
        self.placements: dict[str, Placement] = {}

    def run(self) -> Derived:
        program = self.state.program
        for op in reversed(program.ops):
            if not isinstance(op, PlaceholderOp) and op.name not in self.stages:
                self._stage(op, self.state.stages[op.name])
        for op in program.ops:
            if isinstance(op, PlaceholderOp):
                self._plan_buffers(op)
        for plan in self.stages.values():
            self._prefetch(plan)
        assembly = Assembly(self.state, self.stages, self.statements, self.folds)
        nests = sequence([assembly.nest(name) for name in root_order(self.state)])
        tree = sunk(nests, self.statements, meeting_loops(self.statements, self.stages))
        scop, copied = assembly.scop(tree), repeated(tree)
        plans = self._with_updates()
        if any(loop.kind is LoopKind.BOUND for loop in loops_of(tree)):
            loops = {loop.name: loop for plan in self.stages.values() for loop in plan_all(plan)}
            plans = with_lanes(plans, tree, scop.statements, loops)
        return Derived(scop, tree, plans, self.prefetches, copied)

    def own_loops(self, last: ComputeOp | HybridOp) -> tuple[LoopPlan, ...]:
        """The loops of one stage, by the stages that decide where it is computed."""
        stages = self.state.stages
        for op in reversed(self.state.program.ops):
            if op.name == last.name:
                break
            if not isinstance(op, PlaceholderOp) and op.name not in self.stages:
                self._stage(op, stages[op.name])
        if isinstance(last, ComputeOp) and last.name not in self.stages:
            plan, _, _ = self._loops(last, stages[last.name], *self._place(last, stages[last.name]))
            return plan.own
        if last.name not in self.stages:
            self._stage(last, stages[last.name])
        return self.stages[last.name].own

    def _prefetch(self, plan: StagePlan) -> None:
        """Put the prefetches that are asked for in the loops of a stage."""
        stage = plan.stage
        for asked in stage.prefetched:
            if asked.axis not in stage.leaves:
                raise BadArgument("", f"{stage.name} prefetches in its loop {asked.axis}, which would be gone")
            if asked.tensor not in self.state.program.buffers:
                raise BadArgument("", f"{stage.name} prefetches {asked.tensor}, which would be no array any more")
            loops = plan.path(asked.axis)
            names = {loop.axis: loop.name for loop in loops}
            for axis in (asked.along, asked.shared):
                if axis and axis not in names:
                    raise BadArgument(
                        "", f"{stage.name} prefetches in its loop {asked.axis}, which is not inside {axis}"
                    )
            wish = replace(asked.renamed(names), axis=asked.axis)
            maker = self.stages.get(self.state.program.producer[asked.tensor])
            if maker is not None and any(loop.name == wish.along for loop in maker.prefix):
                where = f"inside the loop {asked.along} of {stage.name}"
                raise BadArgument("", f"{asked.tensor} is computed {where}: there is nothing to prefetch yet")
            numbers = [*plan.statements, *plan.by_strand.values()]
            around = [(loop.name, loop.range) for loop in loops]
            known = {loop.name: loop.range for p in self.stages.values() for loop in plan_all(p)}
            rank = len(self.state.program.buffers[asked.tensor].shape)
            own = [self.statements[k] for k in numbers]
            made, what = plan_prefetch(stage.name, wish, around, own, known, rank, self.state.sizes)
            number = len(self.statements)
            made = replace(made, name=f"{made.name}{len(self.prefetches)}")
            self.statements.append(made)
            self.prefetches[number] = what
            plan.prefetches.setdefault(asked.axis, []).append(number)

    def _with_updates(self) -> dict[str, BufferPlan]:
        """An array updated in place lives where it did before; an output, or an input, in the caller's array."""
        plans, holder = dict(self.buffers), dict[str, BufferPlan]()
        for name, (root, _) in self.state.program.storage.items():
            if root not in holder or (plans[name].is_argument and not holder[root].is_argument):
                holder[root] = plans[name]
        return plans | {name: holder[root] for name, (root, _) in self.state.program.storage.items()}

    def _stage(self, op: Operation, stage: StageState) -> None:
        if isinstance(op, HybridOp):
            self._hybrid(op, stage)
            return
        prefix, boxes, where = self._place(op, stage)
        plan, values, guards = self._loops(op, stage, prefix, boxes, where)
        self.stages[op.name] = plan
        if plan.is_whole:
            self._plan_buffers(op)
        else:
            self._plan_buffers(op, tuple(_base(b) for b in boxes), plan.home, boxes)
        values, guards = self._join(plan, values, guards)
        limits = _limits((*plan.prefix, *plan.own, *plan.init))
        if plan.is_carried:
            values, guards = self._carried(op, plan, boxes, values, guards)
        if plan.is_ahead:
            _check_sequential(plan)
            limits[prefix[-1].name] = prefix[-1].range.earlier(stage.storage.ahead).ends
        for statement in statements_of(op, plan_loops(plan), values, guards, limits, self.state.strict):
            plan.statements.append(len(self.statements))
            if plan.is_ahead:
                statement = replace(statement, ahead=prefix[-1].name, ahead_by=stage.storage.ahead)
            self.statements.append(statement)
        if plan.is_ahead:
            self._number_tiles(op, plan)

    def _place(self, op: Operation, stage: StageState) -> tuple[tuple[LoopPlan, ...], list[Box | None], Sequence[Expr]]:
        """The loops of other stages around one, the box of its points in one iteration, and which those are."""
        if stage.attach is None:
            return (), [None] * len(op.shape), ()
        if stage.attach.after:
            return self._following(op, stage.attach)
        kinds, notes = self.state.axis_kinds(stage.name), stage.annotations.items()
        combined = {n.thread for a, n in notes if is_in_block(n.thread) and kinds[a] is AxisKind.REDUCE} - {VIRTUAL}
        prefix = around_shared(stage.storage.scope, self.stages[stage.attach.stage].path(stage.attach.axis), combined)
        return prefix, self._boxes(op, prefix), ()

    def _join(self, plan: StagePlan, values: dict[str, Expr], guards: list[Expr]) -> tuple[dict[str, Expr], list[Expr]]:
        """Let the loops over lanes around the place of a stage be its own ones."""
        attach = plan.stage.attach
        if attach is None or attach.after or not self._reads_lanes(plan.stage):
            return values, guards
        around = self.stages[attach.stage].path(attach.axis)
        same = joined(plan, around)
        if not same:
            return values, guards
        own = {name: Var(loop.name, INDEX) for name, loop in same.items()}
        plan.lanes = frozenset(loop.name for loop in same.values())
        counted = {loop.name for loop in plan.prefix} | plan.lanes
        plan.prefix = tuple(loop for loop in around if loop.name in counted)
        plan.own = tuple(loop for loop in plan.own if loop.name not in same)
        return {a: substitute(v, own) for a, v in values.items()}, [substitute(g, own) for g in guards]

    def _reads_lanes(self, stage: StageState) -> bool:
        """Whether a stage reads what each thread has for itself, where it is computed."""
        program = self.state.program
        read = (self.state.stages.get(program.producer[b]) for b in read_buffers(program[stage.name]))
        return any(
            s.attach is not None and s.attach.stage != stage.name and not s.storage.is_shared
            for s in read
            if s is not None
        )

    def _following(self, op: Operation, attach: Attach) -> tuple[tuple[LoopPlan, ...], list[Box | None], list[Expr]]:
        """The loops of a producer around a consumer, the box of its points in one iteration, and which those are."""
        program, host = self.state.program, self.state.stages[attach.stage]
        maker = program[host.name]
        if host.attach is not None or not isinstance(maker, ComputeOp) or not isinstance(op, ComputeOp):
            why = f"{op.name} is computed after tiles of {host.name}, which has to be a te.compute stage at the root"
            raise BadArgument("", why, suggested=[f"s[{op.name!r}].compute_root(); ..."])
        if host.name not in self.stages:
            self._stage(maker, host)
            kinds, known = self.state.axis_kinds(host.name), self.state.axis_ranges(host.name)
            self.placements[host.name] = own_placement(host, known, kinds)
        for name in dict.fromkeys(program.producer[b] for b in read_buffers(op)):
            before = self.state.stages.get(name)
            if before is not None and before.attach is not None and before.attach.after and name not in self.stages:
                self._stage(program[name], before)  # its place decides where this one is ready
        prefix = self.stages[host.name].path(attach.axis)
        made = {
            b: (program[producer].axis, self.placements[producer])
            for b, producer in program.producer.items()
            if producer in self.placements
        }
        placement = following_placement(op, [loop.name for loop in prefix], made)
        self.placements[op.name] = placement
        around = [(p.name, p.range.lower, p.range.upper) for p in prefix]
        boxes = placed([a.name for a in op.axes], list(placement.items()), around, self.state.sizes)
        return prefix, boxes, same_iteration(placement)

    def _carried(
        self,
        op: Operation,
        plan: StagePlan,
        boxes: list[Box | None],
        values: dict[str, Expr],
        guards: list[Expr],
    ) -> tuple[dict[str, Expr], list[Expr]]:
        """What a stage computes whose array outlives an iteration: the new part of a tile, or the next tile."""
        loop = plan.prefix[-1]
        if plan.is_ahead:
            ahead = tiles_ahead(loop.name, plan.stage.storage.ahead)
            return {a: substitute(v, ahead) for a, v in values.items()}, [substitute(g, ahead) for g in guards]
        elements = [values[a.name] for a in op.axis]
        new, rolling = only_new(op.name, loop.name, loop.range, boxes, elements)
        for b in buffers(op):
            held = self.buffers[b.name]
            moduli = tuple(asked or turn for asked, turn in zip(held.moduli or rolling, rolling, strict=True))
            base = tuple(ZERO if m else old for m, old in zip(moduli, held.base, strict=True))
            self.buffers[b.name] = replace(held, base=base, moduli=moduli)
            self.folds.append(Fold(b.name, moduli))
        return values, [*guards, *new]

    def _number_tiles(self, op: Operation, plan: StagePlan) -> None:
        """Give a double buffer its parts, two or more, and all accesses to it the number of the tile."""
        loop, names = plan.prefix[-1], [b.name for b in buffers(op)]
        ahead, kept = plan.stage.storage.ahead, plan.stage.storage.kept
        for k, statement in enumerate(self.statements):
            own = k in plan.statements
            self.statements[k] = with_tile(statement, loop.name, loop.range, names, ahead if own else 0)
        for name in names:
            held = self.buffers[name]
            tile = binary("sub", Var(loop.name, INDEX), loop.range.lower)
            shape = (Const(kept, INDEX), *held.buffer.shape)
            rest = (0,) * len(held.buffer.shape)
            moduli = (kept, *(held.moduli or rest))
            self.buffers[name] = replace(held, buffer=replace(held.buffer, shape=shape), tile=tile, moduli=moduli)
            self.folds.append(Fold(name, (kept, *rest), anywhere=True))

    def _hybrid(self, op: HybridOp, stage: StageState) -> None:
        """Every statement by its own relations, over loops that some of them share."""
        known = self.state.axis_ranges(stage.name)
        own = tuple(self._loop(stage, axis, known, "") for axis in stage.leaves)
        plan = self.stages[stage.name] = StagePlan(stage, (), own, (), None)
        for name, strand in stage.strands.items():
            around = stage.places[name]
            plan.by_strand[name] = len(self.statements)
            self.statements.append(strand_statement(op, stage.name, name, strand, around, self.state.strict))
        self._plan_buffers(op)
        for local in local_arrays(op):
            self._plan_local(op, local, plan)

    def _plan_local(self, op: HybridOp, local: Buffer, plan: StagePlan) -> None:
        """Allocate an array of the operation inside the innermost loop of which one iteration holds all its uses.

        Copies for the iterations that this loop does not tell apart are kept side by side.
        """
        found = sources(op)
        touch = touching(op).get(local.name, frozenset())
        users = [n for n, s in plan.stage.strands.items() if s.source in touch]
        first = found[plan.stage.strands[users[0]].source] if users else None
        scope = first.scopes[local.name] if first else ()
        shared = loops_of_scope(op, self.state, plan.stage, users, scope)
        hulls = {name: first.hull[name] for name in scope} if first else {}
        known = {loop.name: loop.range for loop in plan.own}
        around = [f"{plan.stage.name}.{a}" for a in shared]
        runs = [self.statements[plan.by_strand[n]] for n in users]
        kept = copies(runs, around, hulls, known, self.state.sizes)
        shape = (*(extent for _, extent in kept.values()), *(symbolic(e) for e in local.shape))
        owner = around[-1] if around else None
        base = (ZERO,) * len(local.shape)
        firsts = tuple((name, low) for name, (low, _) in kept.items())
        made = BufferPlan(replace(local, shape=shape), base, owner, False, firsts, self._is_zeroed(op, local.name))
        self.buffers[local.name] = self._folded(plan.stage.storage, made, len(scope))

    def _is_zeroed(self, op: HybridOp, array: str) -> bool:
        return array in begins_as_zeros(op, self.state.sizes)

    def _boxes(self, op: Operation, prefix: tuple[LoopPlan, ...]) -> list[Box | None]:
        names = {p.name for p in prefix}
        known = {loop.name: loop.range for plan in self.stages.values() for loop in plan_all(plan)}
        readers: list[Reader] = []
        written = {b.name for b in buffers(op)}
        for s in self.statements:
            if names <= set(s.loops):
                inner = tuple(_iterations(n, known[n], s) for n in s.loops if n not in names)
                readers += [Reader(r.index, inner) for r in s.reads if r.array in written]
        if not readers:
            return [None] * len(op.shape)
        around = [(p.name, p.range.lower, p.range.upper) for p in prefix]
        return needed(readers, around, len(op.shape), self.state.sizes)

    def _loops(
        self,
        op: Operation,
        stage: StageState,
        prefix: tuple[LoopPlan, ...],
        boxes: list[Box | None],
        where: Sequence[Expr],
    ) -> tuple[StagePlan, dict[str, Expr], list[Expr]]:
        """The loop plans of a stage, the value of each of its own axes, and its guards.

        `where`: conditions over its own axes.
        """
        roots: dict[str, AxisRange] = {}
        offset: dict[str, Expr] = {}
        for axis, box in zip(op.axis, boxes, strict=isinstance(op, ComputeOp)):
            roots[axis.name] = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
            if box is not None:
                roots[axis.name], offset[axis.name] = AxisRange(ZERO, box.size), box.base
        for axis in op.reduce_axis:
            roots[axis.name] = AxisRange(symbolic(axis.lower), symbolic(axis.extent))
        known = ranges(roots, stage.relations, tight=bool(offset))
        kinds = self.state.axis_kinds(stage.name)
        loops = tuple(self._loop(stage, axis, known, "") for axis in stage.leaves)
        first = next((k for k, a in enumerate(stage.leaves) if kinds[a] is AxisKind.REDUCE), None)
        if first is not None and stage.init_at in stage.leaves:
            first = min(first, stage.leaves.index(stage.init_at))
        inside = stage.leaves[first:] if first is not None else ()
        init = tuple(self._loop(stage, a, known, ".init") for a in inside if kinds[a] is not AxisKind.REDUCE)
        value, guards = backward(stage.relations, known, {a: Var(f"{stage.name}.{a}", INDEX) for a in stage.leaves})
        for axis in op.axis:
            if axis.name in offset:
                value[axis.name] = simple(binary("add", offset[axis.name], value[axis.name]))
                guards += [binary("ge", value[axis.name], 0), binary("lt", value[axis.name], symbolic(axis.extent))]
        known_names = names_lookup({**value, **{p.name: Var(p.name, INDEX) for p in prefix}}, {}, self.state.sizes)
        guards += [parse_condition(text, known_names) for text in stage.predicates]
        guards += [substitute(c, value) for c in where]
        limits = _limits((*prefix, *loops))
        axes = {a.name: simplify(value[a.name], limits) for a in (*op.axis, *op.reduce_axis)}
        guards = [g for g in (simplify(g, limits) for g in guards) if not is_true(g)]
        return StagePlan(stage, prefix, loops, init, first), axes, guards

    def _loop(self, stage: StageState, axis: str, known: dict[str, AxisRange], suffix: str) -> LoopPlan:
        note = stage.annotations.get(axis)
        kind, thread = (note.kind, note.thread) if note else (LoopKind.SERIAL, "")
        peel = point_loops(stage, axis, known)
        pragmas = tuple((word, value) for word, value in stage.pragmas.get(axis, ()) if word in ASKED)
        shared = is_thread(thread) and self.state.axis_kinds(stage.name)[axis] is AxisKind.REDUCE
        if shared and not stage.updates_atomically:
            pragmas = (*pragmas, (THREAD_REDUCE, 1))
        return LoopPlan(f"{stage.name}.{axis}{suffix}", axis, known[axis], kind, thread, peel, pragmas)

    def _plan_buffers(
        self,
        op: Operation,
        base: tuple[Expr, ...] = (),
        around: Sequence[LoopPlan] = (),
        boxes: list[Box | None] | None = None,
    ) -> None:
        program = self.state.program
        stage = self.state.stages.get(op.name)
        storage = Storage() if stage is None else stage.storage
        for buffer in buffers(op):
            is_argument = isinstance(op, PlaceholderOp) or program.is_output(buffer.name)
            shape = tuple(symbolic(e) for e in buffer.shape)
            if boxes is not None and not is_argument:
                shape = tuple(s if b is None else b.size for s, b in zip(shape, boxes, strict=True))
            planned = storage.holding(replace(buffer, shape=shape))
            zeroed = not is_argument and isinstance(op, HybridOp) and self._is_zeroed(op, buffer.name)
            home = tuple(loop.name for loop in around)
            owner = home[-1] if home else None
            made = BufferPlan(planned, base or (ZERO,) * len(shape), owner, is_argument, is_zeroed=zeroed, home=home)
            plan = self.stages.get(op.name)
            apart = 1 if plan is not None and plan.is_ahead else 0
            self.buffers[buffer.name] = self._folded(storage, made, apart)

    def _folded(self, storage: Storage, plan: BufferPlan, apart: int) -> BufferPlan:
        """The plan with the folds and the padding asked for.

        `apart`: how many numbers in front of its index tell copies of the array apart: iterations of loops, tiles.
        """
        name, buffer = plan.buffer.name, plan.buffer
        if name in storage.folds:
            moduli = storage.folds[name]
            self.folds.append(Fold(name, (*(0 for _ in range(apart)), *moduli)))
            lead = len(buffer.shape) - len(moduli)
            own = [Const(m, INDEX) if m else e for m, e in zip(moduli, buffer.shape[lead:], strict=True)]
            base = tuple(ZERO if m else b for m, b in zip(moduli, plan.base, strict=True))
            buffer = replace(buffer, shape=(*buffer.shape[:lead], *own))
            plan = replace(plan, buffer=buffer, base=base, moduli=(*(0 for _ in range(lead)), *moduli))
        return replace(plan, buffer=replace(buffer, shape=storage.padded(name, buffer.shape)))


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


def _iterations(name: str, loop: AxisRange, statement: Statement) -> tuple[str, Expr, Expr]:
    """The iterations of a loop in which a statement runs: earlier ones, where it makes the tiles of later ones."""
    own = loop.earlier(statement.ahead_by) if statement.ahead == name else loop
    return name, own.lower, own.upper


def _base(box: Box | None) -> Expr:
    return ZERO if box is None else box.base


def _limits(loops: Sequence[LoopPlan]) -> dict[str, tuple[int | None, int | None]]:
    """Inclusive constant bounds of loops, as far as known."""
    return {loop.name: loop.range.ends for loop in loops}
