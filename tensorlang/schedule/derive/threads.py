"""Threads of a device in the tree of loops: what they share, and what each has for itself.

A stage in shared memory is computed once for a block, by all of its threads together: the loops over threads around
the place where it is computed do not count for it. They are moved inwards, around the parts of their bodies that each
thread runs for itself, so that what threads share stands between such regions. The iterations of a thread loop are
proven independent, so this changes no result; the order of the tree that comes out is what legality is asked of.

An array that a thread keeps from one region to another is allocated outside of both, one copy for each thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby, takewhile

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Const
from tensorlang.ir.loops import THREAD_REDUCE
from tensorlang.ir.stmt import INDEX, LoopKind
from tensorlang.ir.thread_tags import VIRTUAL, is_in_block
from tensorlang.polyhedral.nest import Loop, Tree, leaves, loops, paths, sequence
from tensorlang.polyhedral.nest import Sequence as Branches
from tensorlang.polyhedral.statement import Statement
from tensorlang.schedule.axis_range import constant
from tensorlang.schedule.derive.plans import BufferPlan, Lane, LoopPlan, StagePlan, plan_all

_WARP = 32
"""Threads that share the memory of a warp."""


def around_shared(scope: str, prefix: tuple[LoopPlan, ...], combined: Collection[str] = ()) -> tuple[LoopPlan, ...]:
    """The loops around a stage that count for it: threads do not, if they share what it computes.

    Memory of a warp is shared by the threads along x, and along y where those along x are fewer than a warp; the
    results of a reduction by those that it is `combined` over.
    """
    prefix = tuple(loop for loop in prefix if loop.thread not in combined)
    if scope == "shared":
        return tuple(loop for loop in prefix if not is_in_block(loop.thread))
    if scope == "warp":
        lanes = {"threadIdx.x", "threadIdx.y"} if _is_part_of_warp(prefix) else {"threadIdx.x"}
        return tuple(loop for loop in prefix if loop.thread not in lanes)
    return prefix


def _is_part_of_warp(loops: Sequence[LoopPlan]) -> bool:
    """Whether the threads along x are fewer than a warp, so that its others are along y."""
    extents = [constant(loop.range.extent) for loop in loops if loop.thread == "threadIdx.x"]
    return any(extent is not None and extent < _WARP for extent in extents)


def joined(plan: StagePlan, around: Sequence[LoopPlan]) -> dict[str, LoopPlan]:
    """Own loops of a stage of a warp over lanes, each with the loop `around` its place that goes over the same lanes.

    What each lane computes of such an array may then read what that lane alone has.
    """
    if plan.stage.storage.scope != "warp" or plan.stage.tensorized is not None or plan.first_reduce is not None:
        return {}
    counted = {loop.name for loop in plan.prefix}
    lanes = {loop.thread: loop for loop in around if loop.name not in counted}
    return {
        loop.name: lanes[loop.thread]
        for loop in plan.own
        if loop.thread in lanes and _fixed(loop) == _fixed(lanes[loop.thread]) is not None
    }


def _fixed(loop: LoopPlan) -> tuple[int, int] | None:
    """The first value and the number of iterations of a loop, if they are constant."""
    lower, extent = constant(loop.range.lower), constant(loop.range.extent)
    return None if lower is None or extent is None else (lower, extent)


def meeting_loops(statements: Sequence[Statement], stages: Mapping[str, StagePlan]) -> frozenset[str]:
    """The thread loops of one of two statements which use an array in common, inside of a thread loop around both.

    Others of its threads meet what those of the other do; an array that is each thread's own is none of these. Threads
    that put together what they have for a reduction leave it to the first to store.
    """
    known = {loop.name: loop for plan in stages.values() for loop in plan_all(plan)}
    own = {w.array for s in statements for w in s.writes if _is_own(stages[s.stage])}
    users: dict[str, set[tuple[frozenset[str], bool]]] = {}
    for statement in statements:
        tags = {name: known[name].thread for name in statement.loops if name in known}
        threads = {name for name, tag in tags.items() if is_in_block(tag) and tag != VIRTUAL}
        together = {name for name in threads if (THREAD_REDUCE, 1) in known[name].pragmas}
        stored = {access.array for access in statement.writes}
        for array in stored | {access.array for access in statement.reads}:
            if array not in own:
                found = threads - together if array in stored else threads
                users.setdefault(array, set()).add((frozenset(found), array in stored))
    return frozenset(
        name
        for uses in users.values()
        for (a, stores), (b, others) in combinations(uses, 2)
        if (stores or others) and a & b
        for name in a ^ b
    )


def _is_own(plan: StagePlan) -> bool:
    """Whether threads have the array of a stage for themselves: one that outlives a kernel is for all of them."""
    return plan.stage.storage.scope in ("local", "warp") and any(loop.thread for loop in plan.home)


def sunk(
    tree: Tree, statements: Sequence[Statement], meeting: Collection[str] = (), alone: Collection[int] = ()
) -> Tree:
    """The tree with thread loops moved inwards, past what is computed for all threads.

    In the loops `meeting` threads use what others do, or these what they do: both are regions of their own. So are
    statements `alone`, by number.
    """
    match tree:
        case Loop():
            body = sunk(tree.body, statements, meeting, alone)
            if tree.kind is LoopKind.BOUND and is_in_block(tree.thread):
                return _Sinking(tree, statements, meeting, alone).spread(body)
            return replace(tree, body=body)
        case Branches():
            return sequence([sunk(child, statements, meeting, alone) for child in tree.children])
        case _:
            return tree


@dataclass(frozen=True, slots=True)
class _Sinking:
    """A thread loop on its way inwards."""

    loop: Loop
    statements: Sequence[Statement]
    meeting: Collection[str]
    alone: Collection[int]

    def spread(self, body: Tree) -> Tree:
        """A body with the loop around each of its parts, where threads of others meet in one of them."""
        meets = any(inner.name in self.meeting for inner in loops(body))
        if not meets or (isinstance(body, Loop) and body.name in self.meeting):
            return self._pushed(body)
        if isinstance(body, Loop):
            return replace(body, body=self.spread(body.body))
        assert isinstance(body, Branches)
        return sequence([self.spread(child) for child in body.children])

    def _pushed(self, body: Tree) -> Tree:
        """A body with the loop around all that is inside it."""
        if self._is_region(body):
            return replace(self.loop, body=body)
        if not any(self._inside(k) for k in leaves(body)):
            return body
        if isinstance(body, Loop):
            return replace(body, body=self._pushed(body.body))
        assert isinstance(body, Branches)
        made: list[Tree] = []
        for own, group in groupby(body.children, self._key):
            children = list(group)
            parts = [replace(self.loop, body=sequence(children))] if own else [self._pushed(c) for c in children]
            made += parts
        return sequence(made)

    def _inside(self, number: int) -> bool:
        return self.loop.name in self.statements[number].loops

    def _is_region(self, tree: Tree) -> bool:
        """Whether the loop may stand around all of a tree."""
        numbers = list(leaves(tree))
        return all(map(self._inside, numbers)) and (len(numbers) == 1 or not set(numbers) & set(self.alone))

    def _key(self, child: Tree) -> tuple[int, ...]:
        """Children that follow each other in one region have the same key; () where the loop is not around a child."""
        if not self._is_region(child):
            return ()
        numbers = tuple(leaves(child))
        return numbers if set(numbers) & set(self.alone) else (-1,)


def repeated(tree: Tree) -> frozenset[str]:
    """The loops that stand in several places of a tree."""
    names = [loop.name for loop in loops(tree)]
    return frozenset(name for name in names if names.count(name) > 1)


def with_lanes(
    plans: Mapping[str, BufferPlan], tree: Tree, scop_statements: Sequence[Statement], known: Mapping[str, LoopPlan]
) -> dict[str, BufferPlan]:
    """The plans of buffers with those that outlive a region of threads kept once for each thread.

    `known` are all loops by name. Raises BadArgument where the number of threads is not constant.
    """
    places = dict(paths(tree))
    users: dict[str, list[int]] = {}
    for number, statement in enumerate(scop_statements):
        for access in (*statement.writes, *statement.reads):
            users.setdefault(access.array, []).append(number)
    return {name: _kept(name, plan, [places[k] for k in users.get(name, ())], known) for name, plan in plans.items()}


def _kept(name: str, plan: BufferPlan, paths: Sequence[tuple[Loop, ...]], known: Mapping[str, LoopPlan]) -> BufferPlan:
    if plan.is_argument or not plan.home or not paths:
        return plan
    common = [places[0] for places in zip(*paths, strict=False) if all(p is places[0] for p in places)]
    # Past loops in all of whose iterations the array lives, loops of threads were moved inwards.
    shared = list(takewhile(lambda loop: loop.name in plan.home or loop.kind is LoopKind.BOUND, common))
    missing = [n for n in plan.home if n not in {loop.name for loop in shared}]
    owner = next((loop.name for loop in reversed(shared) if loop.name in plan.home), None)
    if not missing:
        return replace(plan, loop=owner)
    lanes = tuple(_lane(name, known[n]) for n in sorted(missing, key=lambda n: known[n].thread == VIRTUAL))
    shape = (*(Const(lane.extent, INDEX) for lane in lanes), *plan.buffer.shape)
    return replace(plan, buffer=replace(plan.buffer, shape=shape), loop=owner, lanes=lanes)


def _lane(array: str, loop: LoopPlan) -> Lane:
    extent = constant(loop.range.extent)
    if extent is None:
        why = f"each thread of {loop.thread} keeps {array} for itself, and {loop.axis} has no constant extent"
        raise BadArgument("", why, suggested=[f"split {loop.axis} by a constant factor, and bind the inner axis"])
    return Lane(loop.name, loop.range.lower, extent, loop.thread)
