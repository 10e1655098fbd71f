"""Barriers of a derived schedule: which accesses threads share, and the statements that make them wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Buffer, Expr, Var, binary, substitute
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, AsyncCommit, AsyncWait, Barrier, LoopKind, MachineCommit, MachineWait, Stmt
from tensorlang.ir.thread_tags import THREADS, is_block, is_thread
from tensorlang.lowering.asynchronous import Pipeline, pipelines
from tensorlang.lowering.machine_groups import Groups, groups_under_way
from tensorlang.polyhedral.barriers import Address, Cells, Join, Joins, Place, chosen, inserted, items, iterations
from tensorlang.polyhedral.nest import Leaf, Loop, Tree, leaves, times
from tensorlang.polyhedral.nest import Sequence as Branches
from tensorlang.polyhedral.numbered import first_thread
from tensorlang.polyhedral.statement import Access, Role, Scop, Statement
from tensorlang.schedule.axis_range import ZERO, constant
from tensorlang.schedule.derive.carried import tiles_ahead
from tensorlang.schedule.derive.plans import BufferPlan, Derived


@dataclass(frozen=True, slots=True)
class Placed:
    """A barrier: where it stands, in which loops, before which stage ("": at the end), and the pairs that it orders."""

    place: Address
    loops: tuple[str, ...]
    before: str
    joins: tuple[Join, ...]


def with_barriers(
    derived: Derived,
    candidates: Mapping[str, int],
    together: frozenset[str] = frozenset(),
    later: Mapping[str, str] | None = None,
    bulk: frozenset[str] = frozenset(),
) -> tuple[Derived, tuple[Placed, ...]]:
    """The schedule with a barrier wherever a dependence joins two threads of a block, and these barriers.

    `candidates` are the arrays that may be filled by asynchronous copies, with the number of tiles kept at once;
    `together` the stages whose statements the threads along the axes that they are not bound to run together, and
    `later` the loops of tiles whose machine code goes on after its call, with the name of its groups; `bulk` the arrays
    that the first thread of a block copies, whatever their loops are bound to.
    """
    kernels = list(_kernels(derived.tree, (), ()))
    if not kernels:
        return derived, ()
    statements = list(derived.scop.statements)
    waits: dict[int, Stmt] = {}
    added: dict[Address, list[int]] = {}
    found: list[Placed] = []
    filled: dict[str, Buffer | None] = {}
    under_way: set[int] = set()

    def insert(place: Address, stmt: Stmt, around: Sequence[Loop], early: Mapping[str, int]) -> None:
        number = len(statements)
        waits[number] = stmt
        added.setdefault(place, []).append(number)
        statements.append(_wait(f"wait{len(waits)}", around, early))

    for kernel in kernels:
        survey = _Survey(derived.scop, derived.plans, together, bulk)
        survey.visit(kernel.loop.body, kernel.address, (*kernel.around, kernel.loop))
        joins = list(Joins(derived.scop.sizes).all(survey.places, survey.levels))
        barriers = chosen(joins, survey.costs)
        copies = pipelines(survey.places, joins, barriers, candidates, bulk)
        filled |= {name: pipeline.barriers for pipeline in copies for name in pipeline.arrays}
        groups = list(
            groups_under_way(kernel.loop, kernel.address, kernel.around, derived, joins, barriers, later or {})
        )
        under_way |= {number for group in groups for number in group.begun}
        early = {place: _begin_early(place, survey.loops[place[:-1]], joins, derived.scop) for place in barriers}
        for pipeline in copies:
            _count_early(pipeline, survey.loops[pipeline.commit[:-1]][len(kernel.around) :], early)
        for place, stmt, also in _stops(barriers, copies, groups, survey.loops, early):
            insert(place, stmt, survey.loops[place[:-1]], also)
        found += [_placed(place, survey, derived, joins) for place in barriers]
    if not added:
        return derived, ()
    tree = inserted(derived.tree, added)
    scop = replace(derived.scop, statements=_timed(statements, tree))
    counted = {name: barriers for name, barriers in filled.items() if barriers is not None}
    done = replace(derived, scop=scop, tree=tree, waits=waits, asynchronous=frozenset(filled), barriers=counted)
    return replace(done, under_way=frozenset(under_way)), tuple(found)


def _stops(
    barriers: Sequence[Address],
    copies: Sequence[Pipeline],
    groups: Sequence[Groups],
    loops: Mapping[Address, Sequence[Loop]],
    early: Mapping[Address, Mapping[str, int]],
) -> Iterator[tuple[Address, Stmt, Mapping[str, int]]]:
    """Where threads close groups and wait, in the order of one place, and in which early iterations of loops, too."""
    for group in groups:
        for place in group.commits:
            yield place, MachineCommit(group.name), {}
    for pipeline in copies:
        filling = loops[pipeline.commit[:-1]][-1].name
        yield pipeline.commit, AsyncCommit(pipeline.barriers), {filling: pipeline.ahead}
        for place, pending in pipeline.waits:
            yield place, AsyncWait(pending, pipeline.barriers), early[place]
    for group in groups:
        for place, pending in group.waits:
            yield place, MachineWait(group.name, pending), {}
    for place in barriers:
        yield place, Barrier(), early[place]


def _placed(place: Address, survey: _Survey, derived: Derived, joins: Sequence[Join]) -> Placed:
    serial = tuple(loop.name for loop in survey.loops[place[:-1]] if loop.kind is not LoopKind.BOUND)
    tree: Tree = derived.tree
    for k in place[:-1]:
        inner = items(tree)[k]
        assert isinstance(inner, Loop)
        tree = inner.body
    following = items(tree)[place[-1] :]
    before = derived.scop.statements[next(iter(leaves(following[0])))].stage if following else ""
    return Placed(place, serial, before, tuple(join for join in joins if place in join.places))


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A nest that runs on the device: its outermost bound loop, where that is, and the loops of the host around it."""

    loop: Loop
    address: Address
    around: tuple[Loop, ...]


def _kernels(tree: Tree, address: Address, around: tuple[Loop, ...]) -> Iterator[_Kernel]:
    for k, item in enumerate(items(tree)):
        here = (*address, k)
        if isinstance(item, Loop) and item.kind is LoopKind.BOUND:
            if is_block(item.thread):
                yield _Kernel(item, here, around)
        elif isinstance(item, Loop):
            yield from _kernels(item.body, here, (*around, item))


@dataclass(slots=True)
class _Survey:
    """The bodies of a kernel outside of its regions of threads, and what the regions touch of shared memory."""

    scop: Scop
    plans: Mapping[str, BufferPlan]
    together: frozenset[str]
    bulk: frozenset[str]
    places: list[Place] = field(default_factory=list)
    levels: dict[Address, int] = field(default_factory=dict)
    loops: dict[Address, tuple[Loop, ...]] = field(default_factory=dict)
    costs: dict[Address, int] = field(default_factory=dict)

    def visit(self, body: Tree, address: Address, uniform: tuple[Loop, ...]) -> None:
        """Note a body, and those inside it."""
        parts = items(body)
        self.levels[address], self.loops[address] = len(parts), uniform
        serial = [loop for loop in uniform if loop.kind is not LoopKind.BOUND]
        cost = iterations([constant(binary("sub", loop.upper, loop.lower)) for loop in serial])
        self.costs |= {(*address, k): cost for k in range(len(parts) + 1)}
        for k, part in enumerate(parts):
            if isinstance(part, Loop) and not is_thread(part.thread):
                self.visit(part.body, (*address, k), (*uniform, part))
            else:
                touched = tuple(self._accesses(part, uniform, {}))
                if touched:
                    self.places.append(Place((*address, k), uniform, touched))

    def _accesses(self, tree: Tree, uniform: tuple[Loop, ...], threads: Mapping[str, Loop]) -> Iterator[Cells]:
        match tree:
            case Leaf():
                statement = self.scop.statements[tree.statement]
                if any(access.array in self.bulk for access in statement.writes):
                    threads = {}
                for access in statement.writes:
                    yield from self._cells(statement, access, uniform, threads, True)
                for access in statement.reads:
                    yield from self._cells(statement, access, uniform, threads, False)
            case Loop():
                bound = {**threads, tree.thread: tree} if is_thread(tree.thread) else threads
                yield from self._accesses(tree.body, uniform, bound)
            case Branches():
                for child in tree.children:
                    yield from self._accesses(child, uniform, threads)

    def _cells(
        self, statement: Statement, access: Access, uniform: tuple[Loop, ...], threads: Mapping[str, Loop], write: bool
    ) -> Iterator[Cells]:
        plan = self.plans[access.array]
        tags = {thread.loop for thread in plan.lanes}
        inside = {loop.name for loop in threads.values()} & set(plan.home)
        in_kernel = any(loop.kind is LoopKind.BOUND and loop.name in plan.home for loop in uniform)
        if tags or inside or (plan.buffer.scope == "warp" and in_kernel):
            return  # each thread has an array of its own, or registers of it
        blocks = tuple(loop.name for loop in uniform if is_block(loop.thread))
        cell = _cell(plan, statement, access)
        combined = self.scop.gathered if write else frozenset()
        anyone = statement.stage in self.together
        who = tuple(
            None if anyone and tag not in threads else _coordinate(threads.get(tag), combined) for tag in THREADS
        )
        # Copies of a hybrid operation's array that the loops around tell apart have no dimension in memory.
        shape = ((ZERO,) * (len(cell) - len(plan.buffer.shape))) + plan.buffer.shape
        yield Cells(statement, access.array, cell, shape, access.conditions, who, blocks, write)


def _coordinate(loop: Loop | None, combined: frozenset[str]) -> Expr | None:
    """The number of a thread along an axis: 0, if no loop uses the axis, or one that combines values over it.

    None where any thread may run an iteration.
    """
    if loop is None or loop.name in combined:
        return ZERO
    first = first_thread(loop)
    return None if first is None else binary("sub", Var(loop.name, INDEX), first)


def _cell(plan: BufferPlan, statement: Statement, access: Access) -> tuple[Expr | None, ...]:
    """The place of an access in the memory of its array."""
    if access.index is None:
        return (None,) * len(plan.buffer.shape)
    ahead = tiles_ahead(statement.ahead, statement.ahead_by) if statement.ahead else {}
    lead = len(access.index) - len(plan.base)
    local: list[Expr] = [*access.index[:lead]]
    for index, base in zip(access.index[lead:], plan.base, strict=True):
        local.append(simplify(binary("sub", index, substitute(base, ahead)), {}))
    moduli = plan.moduli or (0,) * len(local)
    return tuple(binary("floormod", i, m) if m else i for i, m in zip(local, moduli, strict=True))


def _begin_early(place: Address, around: Sequence[Loop], joins: Sequence[Join], scop: Scop) -> dict[str, int]:
    """The loops in whose iterations before the first one, which only fill tiles of later ones, a barrier is needed.

    With how many of them there are.
    """
    here = [join for join in joins if place in join.places]
    needed = [loop.name for loop in around if any(join.needs(place, loop) for join in here)]
    return {name: max((s.ahead_by for s in scop.statements if s.ahead == name), default=0) for name in needed}


def _count_early(pipeline: Pipeline, around: Sequence[Loop], early: Mapping[Address, dict[str, int]]) -> None:
    """Wait in all iterations that close groups of bulk copies, where those of an earlier run of the loop may be left.

    A memory barrier is in use again after as many groups as there are, and threads have to have waited for its last.
    """
    *outer, filling = around
    if pipeline.barriers is not None and any(loop.kind is not LoopKind.BOUND for loop in outer):
        for place, _ in pipeline.waits:
            early[place][filling.name] = max(pipeline.ahead, early[place].get(filling.name, 0))


def _wait(name: str, around: Sequence[Loop], early: Mapping[str, int]) -> Statement:
    """A statement that runs in each iteration of some loops; of those `early`, also in so many that only fill tiles."""
    domain: list[Expr] = []
    for loop in around:
        var = Var(loop.name, INDEX)
        domain += [
            binary("ge", binary("add", var, early.get(loop.name, 0)), loop.lower),
            binary("lt", var, loop.upper),
        ]
    return Statement(name, name, Role.BARRIER, tuple(loop.name for loop in around), tuple(domain), (), (), ())


def _timed(statements: Sequence[Statement], tree: Tree) -> tuple[Statement, ...]:
    """The statements with their times in a tree."""
    time = dict(times(tree))
    return tuple(replace(s, time=time[number]) for number, s in enumerate(statements))
