"""Parts of a loop as loops of their own: peel, partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise

from tensorlang.dataclass import dataclass
from tensorlang.errors import BadArgument
from tensorlang.ir.expr import Expr, Var, binary, variables
from tensorlang.ir.index import to_index
from tensorlang.ir.simplify import proves, simplify
from tensorlang.ir.stmt import INDEX, For
from tensorlang.polyhedral.ordered import sources
from tensorlang.schedule import order
from tensorlang.schedule.axis_range import ZERO, AxisRange, constant
from tensorlang.schedule.primitive import Outputs, Primitive, StageName, argument_text, primitive, value_of
from tensorlang.schedule.primitives.loops import require_plain
from tensorlang.schedule.primitives.shift import size_expr
from tensorlang.schedule.relation import ShiftRelation, made_by
from tensorlang.schedule.rewrites.explicit import explicit
from tensorlang.schedule.state import ScheduleState
from tensorlang.te.operation import HybridOp
from tensorlang.te.program import unique


@dataclass(frozen=True, slots=True)
class Part:
    """Some iterations of a loop: the wish for its axis, the ranges that they lie in, and further conditions."""

    wish: str
    reaches: tuple[AxisRange, ...] = ()
    where: tuple[Expr, ...] = ()


def cut(
    state: ScheduleState, stage: str, axis: str, parts: Sequence[Part], kept: int
) -> tuple[ScheduleState, tuple[str, ...]]:
    """Return the state in which a loop of a hybrid stage stands in parts, one after the other, and their axes.

    The part numbered `kept` keeps its statements and inner loops; those of the others are copies.
    """
    current = state.stages[stage]
    loop = order.find(current.order, axis)
    below = tuple(order.statements(loop.body))
    strands = {n: s for n, s in current.strands.items() if n not in below}
    taken, used = {*state.axis_ranges(stage), *state.sizes}, set(current.strands)
    notes, pragmas = dict(current.annotations), dict(current.pragmas)
    nodes, made = list[order.Node](), list[str]()

    def name_axis(wish: str) -> str:
        name = unique(wish, taken)
        taken.add(name)
        return name

    for number, part in enumerate(parts):
        copy = number != kept
        axes = {a: name_axis(a) for a in order.axes(loop.body)} if copy else {}
        names = {n: _statement_name(current.strands[n].source, used) for n in below} if copy else {}
        last = name_axis(part.wish)
        on_the_way = [axis, *(name_axis(part.wish) for _ in part.reaches[1:]), last]
        reaches = part.reaches or (None,)
        steps = [
            ShiftRelation(a, ZERO, b, r, cuts=r is not None)
            for (a, b), r in zip(pairwise(on_the_way), reaches, strict=True)
        ]
        for n in below:
            inner = (ShiftRelation(a, ZERO, axes[a]) for a in order.around(loop.body, n) if copy)
            old = current.strands[n]
            relations, where = (*old.relations, *inner, *steps), (*old.where, *part.where)
            strands[names.get(n, n)] = replace(old, relations=relations, where=where)
        notes |= {axes[a]: notes[a] for a in axes if a in notes}
        pragmas |= {axes[a]: pragmas[a] for a in axes if a in pragmas}
        body = order.with_statements(order.renamed(loop.body, axes), names)
        nodes.append(order.LoopNode(last, body))
        made.append(last)
    tree = order.rebuild(current.order, axis, lambda _: tuple(nodes))
    parted = replace(current, order=tree, strands=strands, annotations=notes, pragmas=pragmas)
    return state.with_stage(parted), tuple(made)


def _statement_name(source: str, used: set[str]) -> str:
    name = next(name for k in count(1) if (name := f"{source}.{k}") not in used)
    used.add(name)
    return name


def _prepared(state: ScheduleState, stage: str, axis: str) -> ScheduleState:
    """The state with explicit statements, after checking that a loop and those inside it can be doubled."""
    state.looped(stage)
    state.leaf(stage, axis)
    require_plain(state, stage, [axis])
    state = explicit(state, stage)
    inside = set(order.axes(order.find(state.stages[stage].order, axis).body))
    for other in state.attached_to(stage):
        if other.attach is not None and other.attach.axis in inside:
            raise BadArgument(
                "",
                f"{other.name} is computed at axis {other.attach.axis} of {stage}, which would be there twice",
                suggested=[f"s[{other.name!r}].compute_root(); ..."],
            )
    return state


def _as_declared(state: ScheduleState, stage: str, axis: str) -> For | None:
    """The loop of the operation that a loop still is, shifted or renamed perhaps, if its bounds depend on others."""
    op, current = state.program[stage], state.stages[stage]
    assert isinstance(op, HybridOp)
    found: dict[str, For] = {}
    for name in order.statements(order.find(current.order, axis).body):
        strand, own = current.strands[name], axis
        for relation in reversed(strand.relations):
            if own in made_by(relation)[1]:
                if not isinstance(relation, ShiftRelation) or relation.within is not None:
                    return None
                own = relation.axis
        found[own] = next(loop for loop in sources(op)[strand.source].loops if loop.var.name == own)
    (loop, *others) = found.values()
    fixed = (variables(loop.lower) | variables(loop.upper)) <= state.sizes
    return None if others or fixed else loop


def _range(low: Expr, end: Expr) -> AxisRange:
    return AxisRange(low, simplify(binary("sub", end, low)))


@primitive("peel")
@dataclass(frozen=True, slots=True)
class Peel(Primitive):
    """Run the first and the last iterations of a loop in loops of their own, before and after the rest.

    Rewrite: `for i in range(n): S(i)` -> `for i_first in range(first): S(i_first)`,
    `for i_main in range(first, n - last): S(i_main)`, `for i_last in range(n - last, n): S(i_last)`.
    The rest keeps the names of statements and inner loops; the copies are S0.1, S0.2, ... A stage of te.compute becomes
    a hybrid one. Of a loop with bounds that depend on loops around it, the iterations of each of its runs are peeled;
    once it is split, fused, skewed or reversed, those of its whole range.
    Legal when: always: the order stays.
    Example:
        >>> from tensorlang import te
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> [str(a) for a in s[B].peel("i", first=1, last=2)]
        ['i_first', 'i_main', 'i_last']
    """

    stage: StageName
    axis: str
    first: int = 0
    last: int = 0

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        for word, n in (("first", self.first), ("last", self.last)):
            if isinstance(n, bool) or not isinstance(n, int) or value_of(n, state) < 0:
                raise BadArgument("", f"{word} must be a whole number of at least 0, got {argument_text(n)}")
        first, last = value_of(self.first, state), value_of(self.last, state)
        if first + last == 0:
            raise BadArgument("", "peel needs first or last, or both")
        state = _prepared(state, self.stage, self.axis)
        declared = _as_declared(state, self.stage, self.axis)
        if declared is None:
            parts = self._of_range(state.axis_ranges(self.stage)[self.axis], first, last)
        else:
            parts = self._of_each_run(declared, first, last)
        kept = 1 if first else 0
        return cut(state, self.stage, self.axis, parts, kept)

    def _of_range(self, reach: AxisRange, first: int, last: int) -> list[Part]:
        extent = constant(reach.extent)
        if extent is not None and first + last >= extent:
            raise BadArgument("", f"axis {self.axis} has {extent} iterations: peel fewer than that")
        low, end = simplify(binary("add", reach.lower, first)), simplify(binary("sub", reach.upper, last))
        parts = [Part(f"{self.axis}_main", (_range(low, end),))]
        if first:
            parts.insert(0, Part(f"{self.axis}_first", (_range(reach.lower, low),)))
        if last:
            tail = _range(end, reach.upper)
            short = first and extent is None  # a short loop has no iteration in two parts
            parts.append(Part(f"{self.axis}_last", (_range(low, reach.upper), tail) if short else (tail,)))
        return parts

    def _of_each_run(self, loop: For, first: int, last: int) -> list[Part]:
        at = Var(loop.var.name, INDEX)
        low, end = binary("add", to_index(loop.lower), first), binary("sub", to_index(loop.upper), last)
        from_low, until_end = binary("ge", at, low), binary("lt", at, end)
        parts = [Part(f"{self.axis}_main", where=(from_low, until_end))]
        if first:
            parts.insert(0, Part(f"{self.axis}_first", where=(binary("lt", at, low),)))
        if last:
            parts.append(Part(f"{self.axis}_last", where=(from_low, binary("ge", at, end))))
        return parts


@primitive("partition")
@dataclass(frozen=True, slots=True)
class Partition(Primitive):
    """Cut the range of a loop at some points, whole numbers or expressions of the sizes, into loops of their own.

    Rewrite: `for i in range(n): S(i)` -> `for i_0 in range(p): S(i_0)`, `for i_1 in range(p, n): S(i_1)`.
    The first part keeps the names of statements and inner loops; the copies are S0.1, S0.2, ... A stage of te.compute
    becomes a hybrid one.
    Legal when: always: the order stays. Constant points of a constant range rise and lie inside it.
    Example:
        >>> from tensorlang import te
        >>> n = te.var("n")
        >>> A = te.placeholder((n,), name="A")
        >>> B = te.compute((n,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> [str(a) for a in s[B].partition("i", [n // 2])]
        ['i_0', 'i_1']
    """

    stage: StageName
    axis: str
    at: tuple[str, ...]

    def apply(self, state: ScheduleState) -> tuple[ScheduleState, Outputs]:
        if not self.at:
            raise BadArgument("", "partition needs at least one point")
        points = [size_expr(text, state) for text in self.at]
        state = _prepared(state, self.stage, self.axis)
        reach = state.axis_ranges(self.stage)[self.axis]
        known = [constant(e) for e in (reach.lower, *points, reach.upper)]
        for low, high in pairwise(known):
            if low is not None and high is not None and low >= high:
                inside = f"between {reach.lower} and {reach.upper}"
                raise BadArgument("", f"the points must rise, {inside}, got {', '.join(self.at)}")
        ends = [reach.lower, points[0]]
        for point in points[1:]:
            rising = proves(binary("ge", point, ends[-1]))
            ends.append(point if rising else simplify(binary("max", point, ends[-1])))
        ends.append(reach.upper)
        parts = [Part(f"{self.axis}_{k}", (_range(low, end),)) for k, (low, end) in enumerate(pairwise(ends))]
        return cut(state, self.stage, self.axis, parts, 0)
