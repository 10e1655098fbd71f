"""The oracle: verdicts by enumerating every pair of instances, without isl."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tensorlang.ir.expr import Binary, Const, Expr, Unary
from tensorlang.polyhedral.affine_text import evaluate
from tensorlang.polyhedral.nest import loops
from tensorlang.polyhedral.statement import Access, Role, Scop, Statement
from tensorlang.schedule.derive import Derived

Values = dict[str, int]
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


def events(derived: Derived) -> Iterator[Event]:
    """Every instance of every statement."""
    bounds = {loop.name: (evaluate(loop.lower, {}), evaluate(loop.upper, {})) for loop in loops(derived.tree)}
    for statement in derived.scop.statements:
        for point in product(*(range(*bounds[name]) for name in statement.loops)):
            values = dict(zip(statement.loops, point, strict=True))
            if all(holds(c, values) for c in statement.domain):
                yield statement, values


def element(access: Access, values: Values, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The elements that an access may touch, with the version of the array in front."""
    if not all(_maybe(c, values) for c in access.conditions):
        return []
    version = tuple(values.get(v, -1) for v in access.version)
    spans = []
    for k, extent in enumerate(shape):
        try:
            assert access.index is not None
            spans.append([evaluate(access.index[k], values)])
        except (KeyError, AssertionError):
            spans.append(list(range(extent)))
    return [(*version, *index) for index in product(*spans)]


def _maybe(condition: Expr, values: Values) -> bool:
    """True when a condition holds, or cannot be known because it reads memory."""
    try:
        return holds(condition, values)
    except KeyError:
        return True


def time_of(event: Event) -> list[tuple[int, str | None]]:
    """The time vector with the loop that made each entry; lanes moved last."""
    statement, values = event
    entries: list[tuple[int, str | None]] = []
    for part in statement.time:
        if isinstance(part, int):
            entries.append((part, None))
        else:
            entries.append((0, None) if part in statement.lanes else (values[part], part))
    return entries + [(values[lane], lane) for lane in statement.lanes]


def runs_before(a: Event, b: Event, unordered: frozenset[str]) -> bool:
    """True when `a` surely runs before `b`."""
    left, right = time_of(a), time_of(b)
    length = max(len(left), len(right))
    left += [(0, None)] * (length - len(left))
    right += [(0, None)] * (length - len(right))
    for (x, loop), (y, other) in zip(left, right, strict=True):
        if x != y:
            blocked = unordered | set(a[0].lanes) | set(b[0].lanes)
            return x < y and loop not in blocked and other not in blocked
    return False


def is_legal(derived: Derived) -> bool:
    """True when every read is covered, and every dependent pair is ordered."""
    scop = derived.scop
    shapes = {a.name: tuple(evaluate(e, {}) for e in a.shape) for a in scop.arrays}
    writes: dict[tuple[str, tuple[int, ...]], list[Event]] = {}
    reads: dict[tuple[str, tuple[int, ...]], list[Event]] = {}
    for event in events(derived):
        statement, values = event
        for access in statement.writes:
            for at in element(access, values, shapes[access.array]):
                writes.setdefault((access.array, at), []).append(event)
        for access in statement.reads:
            for at in element(access, values, shapes[access.array]):
                reads.setdefault((access.array, at), []).append(event)
    if any(not set(r.version) <= set(s.loops) for s in scop.statements for r in s.reads):
        return False  # outside the loop that owns the array, even if the read never runs
    inputs = {a.name for a in scop.arrays if a.is_input}
    if any(key not in writes for key in reads if key[0] not in inputs):
        return False
    return all(_ordered(writers, reads.get(key, []), scop) for key, writers in writes.items())


def _ordered(writers: list[Event], readers: list[Event], scop: Scop) -> bool:
    unordered = scop.unordered
    updates = [e for e in writers if e[0].role is Role.UPDATE]
    starts = [e for e in writers if e[0].role is Role.INIT]
    if any(not runs_before(w, r, unordered) for w in writers for r in readers):
        return False
    if any(not runs_before(s, u, unordered) for s in starts for u in updates):
        return False
    pairs = ((a, b) for k, a in enumerate(updates) for b in updates[k + 1 :])
    return all(runs_before(a, b, unordered) or runs_before(b, a, unordered) for a, b in pairs)
