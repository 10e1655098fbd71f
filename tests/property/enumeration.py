"""The oracle: verdicts by enumerating every pair of instances, without isl."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import combinations, dropwhile, islice, product
from typing import Any

import numpy.typing as npt

from tensorlang.ir.expr import Binary, Const, Expr, Load, Unary, rewrite
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.nest import loops
from tensorlang.polyhedral.statement import Access, Role, Statement
from tensorlang.schedule.derive.plans import Derived

Values = dict[str, int]
Memory = Mapping[str, npt.NDArray[Any]]
Event = tuple[Statement, Values]


def holds(condition: Expr, values: Values) -> bool:
    """The truth of a condition over integers."""
    match condition:
        case Const():
            return bool(condition.value)
        case Unary():
            return not holds(condition.a, values)
        case Binary() if condition.op == "and":
            return holds(condition.a, values) and holds(condition.b, values)
        case Binary() if condition.op == "or":
            return holds(condition.a, values) or holds(condition.b, values)
        case Binary():
            a, b = evaluate(condition.a, values), evaluate(condition.b, values)
            return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[condition.op]
    raise AssertionError(condition)


def events(derived: Derived, sizes: Values | None = None, memory: Memory | None = None) -> Iterator[Event]:
    """Every instance of every statement."""
    for statement in derived.scop.statements:
        yield from _events_of(derived, statement, sizes or {}, memory, {})


def events_at(derived: Derived, name: str, time: tuple[int, ...], sizes: Values) -> Iterator[Event]:
    """The instances of a statement at an entry for each of its time vector."""
    for statement in derived.scop.statements:
        if statement.name == name and len(statement.time) == len(time):
            known = {part: now for part, now in zip(statement.time, time) if isinstance(part, str)}
            if all(part in (now, *known) for part, now in zip(statement.time, time)):
                yield from _events_of(derived, statement, sizes, None, known)


def _events_of(
    derived: Derived, statement: Statement, sizes: Values, memory: Memory | None, known: Values
) -> Iterator[Event]:
    """The instances of a statement, some of whose loops are at known values."""
    spans = {loop.name: range(evaluate(loop.lower, sizes), evaluate(loop.upper, sizes)) for loop in loops(derived.tree)}
    chosen = {name: span if name not in known else [known[name]] for name, span in spans.items()}
    if any(value not in spans[name] for name, value in known.items()):
        return
    for point in product(*(chosen[name] for name in statement.loops)):
        values = dict(zip(statement.loops, point, strict=True)) | sizes
        if all(_maybe(c, values, memory) for c in statement.domain):
            yield statement, values


def element(
    access: Access, values: Values, shape: tuple[int, ...], memory: Memory | None = None
) -> list[tuple[int, ...]]:
    """The elements that an access may touch, with the version of the array in front."""
    if not all(_maybe(c, values, memory) for c in access.conditions):
        return []
    version = tuple(values.get(v, -1) for v in access.version)
    spans = []
    for k, extent in enumerate(shape):
        try:
            assert access.index is not None
            spans.append([evaluate(_known(access.index[k], values, memory), values)])
        except (KeyError, AssertionError):
            spans.append(list(range(extent)))
    return [(*version, *index) for index in product(*spans)]


def _known(expr: Expr, values: Values, memory: Memory | None) -> Expr:
    """An expression with the elements of known arrays in place of their reads."""

    def rule(node: Expr) -> Expr | None:
        if memory is None or not isinstance(node, Load) or node.buffer.name not in memory:
            return None
        at = tuple(evaluate(i, values) for i in node.index)
        return Const(int(memory[node.buffer.name][at]), node.dtype)

    return rewrite(expr, rule)


def _maybe(condition: Expr, values: Values, memory: Memory | None = None) -> bool:
    """True when a condition holds, or cannot be known because it reads memory."""
    try:
        return holds(_known(condition, values, memory), values)
    except KeyError:
        return True


def time_of(event: Event) -> list[tuple[int, str | None]]:
    """The time vector with the loop that made each entry."""
    statement, values = event
    return [(part, None) if isinstance(part, int) else (values[part], part) for part in statement.time]


def in_time(a: Event, b: Event) -> Iterator[tuple[tuple[int, str | None], tuple[int, str | None]]]:
    """The entries of two time vectors, from the first in which they differ."""
    left, right = time_of(a), time_of(b)
    length = max(len(left), len(right))
    left += [(0, None)] * (length - len(left))
    right += [(0, None)] * (length - len(right))
    return dropwhile(lambda pair: pair[0][0] == pair[1][0], zip(left, right, strict=True))


def in_turn(a: Event, b: Event) -> int:
    """Below 0 if `a` stands before `b` in the body of the loop in which they differ first, above 0 if after it."""
    for (x, loop), (y, _) in islice(in_time(a, b), 1, None):
        if loop is not None:
            return 0
        if x != y:
            return x - y
    return 0


def runs_before(a: Event, b: Event, unordered: frozenset[str]) -> bool:
    """True when `a` surely runs before `b`.

    Lanes may run one after the other, or each statement that stands just inside the loop in all of them.
    """
    (x, loop), (y, _) = next(in_time(a, b), ((0, None), (0, None)))
    if loop in unordered or x >= y:
        return False
    return loop not in a[0].lanes or in_turn(a, b) < 0


def may_meet(a: Event, b: Event, unordered: frozenset[str]) -> bool:
    """True when `a` and `b` may run at the same time."""
    (_, loop), _ = next(in_time(a, b), ((0, None), (0, None)))
    return loop in unordered or (loop in a[0].lanes and in_turn(a, b) == 0)


@dataclass(frozen=True)
class Touch:
    """One access of one instance to one element."""

    event: Event
    access: Access
    writes: bool


class Order(Enum):
    """What the program demands of two touches of one element."""

    BEFORE = "before"
    AFTER = "after"
    EITHER = "either"
    NONE = "none"


def demanded(a: Touch, b: Touch) -> Order:
    """The order of two touches of one element in the program as declared."""
    if a.event == b.event or not (a.writes or b.writes):
        return Order.NONE
    if a.access.updates != b.access.updates:
        return _order(a.access.updates, b.access.updates)
    one, other = a.event[0], b.event[0]
    if one.stage != other.stage:
        assert a.writes != b.writes
        return Order.BEFORE if a.writes else Order.AFTER
    if one.role is Role.ORDERED or (one.role is other.role is Role.UPDATE and a.access.origin):
        if a.writes and b.writes and a.access.reducer and a.access.reducer == b.access.reducer:
            return Order.EITHER
        return _order(*([evaluate(o, t.event[1]) for o in t.access.origin] for t in (a, b)))
    if one.role is other.role:
        return Order.EITHER if one.role is Role.UPDATE else Order.NONE
    return Order.BEFORE if one.role is Role.INIT else Order.AFTER


def _order(a: Any, b: Any) -> Order:
    return Order.NONE if a == b else Order.BEFORE if a < b else Order.AFTER


def touches(
    derived: Derived, sizes: Values, memory: Memory | None = None, among: Iterable[Event] | None = None
) -> dict[tuple[str, tuple[int, ...]], list[Touch]]:
    """All accesses by the element that they touch, or those of some instances."""
    shapes = {a.name: tuple(evaluate(e, sizes) for e in a.shape) for a in derived.scop.arrays}
    found: dict[tuple[str, tuple[int, ...]], list[Touch]] = {}
    for event in events(derived, sizes, memory) if among is None else among:
        statement, values = event
        for accesses, writes in ((statement.writes, True), (statement.reads, False)):
            for access in accesses:
                for at in element(access, values, shapes[access.array], memory):
                    found.setdefault((access.array, at), []).append(Touch(event, access, writes))
    return found


def broken(
    derived: Derived,
    sizes: Values | None = None,
    memory: Memory | None = None,
    among: Iterable[Event] | None = None,
) -> Iterator[tuple[Event, Event]]:
    """The pairs of instances that a schedule gets wrong: the first must come first, or either, and neither does.

    `memory`: the contents of inputs; an element that is found through another array may be any. `among`: only some
    instances, where they are known; those of large sizes are many.
    """
    unordered = derived.scop.unordered
    for found in touches(derived, sizes or {}, memory, among).values():
        for a, b in combinations(found, 2):
            forward = runs_before(a.event, b.event, unordered)
            backward = runs_before(b.event, a.event, unordered)
            match demanded(a, b):
                case Order.BEFORE if not forward:
                    yield a.event, b.event
                case Order.AFTER if not backward:
                    yield b.event, a.event
                case Order.EITHER if may_meet(a.event, b.event, unordered - derived.scop.gathered):
                    yield a.event, b.event


def covered(derived: Derived, sizes: Values | None = None) -> bool:
    """True when every read of a tile-local array is inside its loop, and finds an element that is computed there."""
    if any(not set(r.version) <= set(s.loops) for s in derived.scop.statements for r in s.reads):
        return False  # even if the read never runs
    found = touches(derived, sizes or {}).values()
    return all(any(t.writes for t in group) for group in found if any(t.access.version for t in group))


def is_legal(derived: Derived, sizes: Values | None = None) -> bool:
    """True when every read is covered, and every dependent pair is ordered."""
    return covered(derived, sizes) and next(broken(derived, sizes), None) is None
