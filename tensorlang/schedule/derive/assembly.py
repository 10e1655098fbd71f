"""From the plans of all stages to one tree of loops, and to the statements as the analysis wants them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Expr, Var, binary
from tensorlang.ir.loops import THREAD_REDUCE
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.ir.thread_tags import is_block, is_thread
from tensorlang.polyhedral.declared import Declared, declared
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, sequence, times
from tensorlang.polyhedral.ordered import sources
from tensorlang.polyhedral.statement import Access, Array, Fold, Role, Scop, Statement
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import symbolic
from tensorlang.schedule.derive.plans import LoopPlan, StagePlan, plan_all
from tensorlang.schedule.state import Attach, ScheduleState
from tensorlang.te.operation import HybridOp, buffers
from tensorlang.te.program import local_arrays


@dataclass(frozen=True, slots=True)
class Assembly:
    """The planned stages of a state, their statements by number, and which of these prefetch, by stage and axis."""

    state: ScheduleState
    stages: Mapping[str, StagePlan]
    statements: Sequence[Statement]
    folds: Sequence[Fold]
    prefetches: Mapping[tuple[str, str], Sequence[int]]

    def nest(self, name: str) -> Tree:
        """The tree of a stage below the loops around it."""
        plan = self.stages[name]
        if plan.by_strand:
            return sequence(self._body(plan, plan.stage.order))
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
            inside = [*self._attached(plan, loop.axis), body, *self._placed_at(plan, loop.axis, after=True)]
            body = _wrap(loop, plan.stage.name, sequence(inside))
        return body

    def _body(self, plan: StagePlan, nodes: order.Order) -> list[Tree]:
        """The loops and statements of a hybrid stage, each loop with the producers that are computed inside it."""
        loops = {loop.axis: loop for loop in plan.own}
        made: list[Tree] = []
        for node in nodes:
            if isinstance(node, order.LoopNode):
                inside = [*self._attached(plan, node.axis), *self._body(plan, node.body)]
                made.append(_wrap(loops[node.axis], plan.stage.name, sequence(inside)))
            else:
                made.append(Leaf(plan.by_strand[node]))
        return made

    def _attached(self, plan: StagePlan, axis: str) -> list[Tree]:
        """What runs at the start of each iteration of a loop."""
        prefetches: list[Tree] = [Leaf(number) for number in self.prefetches.get((plan.stage.name, axis), ())]
        return [*prefetches, *self._placed_at(plan, axis, after=False)]

    def _placed_at(self, plan: StagePlan, axis: str, after: bool) -> list[Tree]:
        place = Attach(plan.stage.name, axis, after)
        found = [op.name for op in self.state.program.ops if op.name in self.stages]
        return [self.nest(name) for name in found if self.stages[name].stage.attach == place]

    def scop(self, tree: Tree) -> Scop:
        """The statements with their domains, times and memory."""
        time = dict(times(tree))
        loops = {loop.name: loop for plan in self.stages.values() for loop in plan_all(plan)}
        storage = self.state.program.storage
        version = {
            storage[b.name][0]: tuple(p.name for p in self.stages[op.name].home)
            for op in self.state.program.ops
            if op.name in self.stages and self.stages[op.name].prefix
            for b in buffers(op)
        }

        def placed(access: Access) -> Access:
            root, updates = storage.get(access.array, (access.array, 0))
            if root == access.array and not updates and root not in version:
                return access
            return replace(access, array=root, updates=updates, version=version.get(root, ()))

        done = []
        for number, s in enumerate(self.statements):
            lanes = tuple(n for n in s.loops if loops[n].kind is LoopKind.VECTORIZED)
            known = s.role is Role.ORDERED
            bounds = () if known else tuple(c for n in s.loops for c in _bounds(loops[n], s))
            writes, reads = tuple(map(placed, s.writes)), tuple(map(placed, s.reads))
            domain = (*bounds, *s.domain) if bounds else s.domain
            path = tuple(p for p in time[number] if isinstance(p, str))
            done.append(
                replace(s, loops=path, domain=domain, writes=writes, reads=reads, time=time[number], lanes=lanes)
            )
        unordered = frozenset(n for n, p in loops.items() if p.kind in (LoopKind.PARALLEL, LoopKind.BOUND))
        arrays, declared = tuple(self._arrays()), tuple(self._declared())
        atomic = frozenset(s.name for s in self.state.stages.values() if s.updates_atomically)
        folds = tuple(self.folds)
        return Scop(tuple(done), arrays, self.state.sizes, unordered, declared, folds, atomic, self.gathered)

    @property
    def gathered(self) -> frozenset[str]:
        """The loops whose threads combine what they find for a reduction."""
        loops = (loop for plan in self.stages.values() for loop in plan.own)
        return frozenset(loop.name for loop in loops if (THREAD_REDUCE, 1) in loop.pragmas)

    def _declared(self) -> Iterator[tuple[str, Declared]]:
        """The dependences of hybrid operations; an array updated in place has the name of the one it was."""
        storage = self.state.program.storage
        for op in self.state.program.ops:
            if isinstance(op, HybridOp):
                found = declared(op, self.state.sizes, self.state.strict, self.state.facts)
                families = (replace(f, array=storage.get(f.array, (f.array, 0))[0]) for f in found.families)
                yield op.name, replace(found, families=tuple(families))

    def _arrays(self) -> Iterator[Array]:
        """The arrays as the analysis sees them: a local array of a hybrid operation has one copy per iteration."""
        for op in self.state.program.ops:
            for b in buffers(op):
                shape = tuple(symbolic(e) for e in b.shape)
                plan = self.stages.get(op.name)
                tiles = (plan.prefix[-1].range.extent,) if plan is not None and plan.is_ahead else ()
                partial = plan is not None and bool(plan.prefix or plan.stage.predicates)
                yield Array(b.name, (*tiles, *shape), partial)
            if isinstance(op, HybridOp):
                scopes = {n: (s, scope) for s in sources(op).values() for n, scope in s.scopes.items()}
                for b in local_arrays(op):
                    source, scope = scopes.get(b.name, (None, ()))
                    copies = tuple(source.hull[n][1] for n in scope) if source else ()
                    yield Array(b.name, (*copies, *(symbolic(e) for e in b.shape)))


def _bounds(loop: LoopPlan, statement: Statement) -> tuple[Expr, Expr]:
    ahead = statement.ahead_by if loop.name == statement.ahead else 0
    return loop.range.holds(binary("add", Var(loop.name, INDEX), ahead))


def _wrap(loop: LoopPlan, stage: str, body: Tree) -> Loop:
    bounds = loop.range
    limits = bounds.lower, bounds.upper
    numbers = is_block(loop.thread) or is_thread(loop.thread)  # parts of such a loop would be loops beside each other
    peel = () if numbers else loop.peel
    return Loop(loop.name, loop.axis, stage, *limits, loop.kind, loop.thread, peel, body, loop.pragmas)
