"""Loops whose later rounds do nothing, by a condition on data: they end where the condition does.

An axis whose extent is data, as that of a row of a sparse matrix, is a long one of which a condition leaves the
beginning (te.limited), and so is a loop of a script over as many elements as there may be. All its rounds have been
proven and read back; a target spares those that do nothing, and asks what data say once for all lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Var, binary, cast, rewrite, walk
from tensorlang.ir.loops import reads_memory, uses
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    For,
    If,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    Store,
    map_children,
    map_exprs,
)
from tensorlang.ir.stmt import walk as statements

_Terms: TypeAlias = Mapping[Expr, int]
"""A sum: integers that are no sums themselves, with their factors; the constant is that of 1."""
_ONE = Const(1, INDEX)


@dataclass(frozen=True, slots=True)
class _Limit:
    """Nothing happens where `factor` times the variable of a loop has reached `bound`; and something, if it `is_exact`,
    wherever it has not."""

    bound: _Terms
    factor: int
    is_exact: bool


def without_idle_rounds(stmt: Stmt) -> Stmt:
    """The statement with serial loops that end where data say so.

    A vector loop that holds one which ends elsewhere for each lane runs one iteration after the other.
    """
    stmt = map_children(stmt, without_idle_rounds)
    if not isinstance(stmt, For):
        return stmt
    if stmt.kind is LoopKind.VECTORIZED:
        if any(_ends_by(inner, stmt.var) for inner in statements(stmt.body)):
            return replace(stmt, kind=LoopKind.SERIAL)
        return _asked_once(stmt)
    return _ended(stmt) if stmt.kind is LoopKind.SERIAL else stmt


def _ends_by(stmt: Stmt, var: Var) -> bool:
    return isinstance(stmt, For) and reads_memory(stmt.upper) and uses(stmt.upper, var.name)


def _asked_once(loop: For) -> Stmt:
    """A vector loop of tests of data that are the same for all lanes: the tests, and a loop for what each decides."""
    parts = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    if not any(isinstance(part, If) and reads_memory(part.cond) and _is_steady(loop, part.cond) for part in parts):
        return loop
    if len(parts) > 1:
        return Seq(tuple(_asked_once(replace(loop, body=part)) for part in parts))
    (test,) = parts
    assert isinstance(test, If)
    then = _asked_once(replace(loop, body=test.then))
    return replace(test, then=then, orelse=None if test.orelse is None else replace(loop, body=test.orelse))


def _is_steady(loop: For, expr: Expr) -> bool:
    """Whether an expression has one value in all iterations of a loop."""
    read = _loads(expr)
    used = {node.name for node in walk(expr) if isinstance(node, Var)}
    inside = list(statements(loop.body))
    made = {s.var.name for s in (loop, *inside) if isinstance(s, For | Let)}
    written = {s.buffer.name for s in inside if isinstance(s, Store | AtomicUpdate)}
    return not (used & made or read & written)


def _ended(loop: For) -> For:
    body = _without_flags(loop)
    inner = {s.var.name: s for s in statements(body) if isinstance(s, For)}
    limits = (limit for limit in _limits(body, loop.var, inner) if _is_known(loop, limit.bound))
    found = next((limit for limit in limits if _is_idle(body, loop.var, limit, inner)), None)
    if found is None:
        return loop
    rounds = _sum(found.bound)
    if found.factor > 1:
        rounds = binary("floordiv", rounds + (found.factor - 1), Const(found.factor, INDEX))
    elif found.is_exact:
        body = _untested(body, loop.var, found, inner)
    return replace(loop, upper=binary("min", loop.upper, binary("max", loop.lower, rounds)), body=body)


def _without_flags(loop: For) -> Stmt:
    """The body of a loop with tests of steady data in place of the flags that hold them for one round."""
    inside = list(statements(loop.body))
    flags = {s.buffer.name for s in inside if isinstance(s, Allocate) and not s.buffer.shape}
    changed = [s.buffer.name for s in inside if isinstance(s, Store | AtomicUpdate)]
    tests = {
        s.buffer.name: s.value
        for s in inside
        if isinstance(s, Store) and s.buffer.name in flags and changed.count(s.buffer.name) == 1
        if isinstance(s.value, Binary) and s.value.op == "lt" and _loads(s.value).isdisjoint(changed)
    }
    if not tests:
        return loop.body

    def spelled(expr: Expr) -> Expr:
        return rewrite(expr, lambda node: tests.get(node.buffer.name) if isinstance(node, Load) else None)

    def without(stmt: Stmt) -> Stmt:
        match stmt:
            case Allocate(buffer=buffer, body=body) if buffer.name in tests:
                return without(body)
            case Store(buffer=buffer) if buffer.name in tests:
                return Seq(())
        return _joined(map_children(stmt, without))

    return map_exprs(without(loop.body), spelled)


def _untested(stmt: Stmt, var: Var, limit: _Limit, inner: Mapping[str, For]) -> Stmt:
    """A statement without the tests whether a variable is below what now ends its loop."""
    match stmt:
        case If(cond=cond, then=then) if _below(cond, var, inner) == limit:
            return _untested(then, var, limit, inner)
    return _joined(map_children(stmt, lambda part: _untested(part, var, limit, inner)))


def _joined(stmt: Stmt) -> Stmt:
    """A sequence without sequences in it, or what it is made of alone."""
    if not isinstance(stmt, Seq):
        return stmt
    flat = [part for made in stmt.body for part in (made.body if isinstance(made, Seq) else (made,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def _loads(expr: Expr) -> set[str]:
    return {node.buffer.name for node in walk(expr) if isinstance(node, Load)}


def _is_known(loop: For, bound: _Terms) -> bool:
    """Whether a bound is data that may be read before a loop."""
    loads = [node for term in bound for node in walk(term) if isinstance(node, Load)]
    plain = not any(reads_memory(place) for load in loads for place in load.index)
    return plain and bool(loads) and all(_is_steady(loop, term) for term in bound)


def _limits(stmt: Stmt, var: Var, inner: Mapping[str, For]) -> Iterator[_Limit]:
    """What conditions on data ask the variable of a loop to be below, in a statement that it holds."""
    match stmt:
        case Seq(body=parts):
            for part in parts:
                yield from _limits(part, var, inner)
        case For(body=body) | Allocate(body=body):
            yield from _limits(body, var, inner)
        case If(cond=cond, then=then) if stmt.is_guard or reads_memory(cond):
            yield from (found for part in _parts(cond, "and") if (found := _below(part, var, inner)))
            yield from _limits(then, var, inner)


def _is_idle(stmt: Stmt, var: Var, limit: _Limit, inner: Mapping[str, For]) -> bool:
    """Whether a statement does nothing where the variable has reached a limit."""
    match stmt:
        case Seq(body=parts):
            return all(_is_idle(part, var, limit, inner) for part in parts)
        case For(body=body) | Let(body=body) | Allocate(body=body):
            return _is_idle(body, var, limit, inner)
        case Prefetch():
            return True
        case If(cond=cond, then=then, orelse=orelse):
            never = any(_holds(_below(part, var, inner), limit) for part in _parts(cond, "and"))
            surely = any(_holds(_reached(part, var, inner), limit) for part in _parts(cond, "or"))
            return (never or _is_idle(then, var, limit, inner)) and (
                surely or orelse is None or _is_idle(orelse, var, limit, inner)
            )
    return False


def _holds(found: _Limit | None, limit: _Limit) -> bool:
    """Whether one limit is reached where another one is."""
    if found is None or found.factor < limit.factor:
        return False
    first, then = ({term: n for term, n in one.bound.items() if term != _ONE} for one in (found, limit))
    return first == then and found.bound.get(_ONE, 0) <= limit.bound.get(_ONE, 0)


def _parts(cond: Expr, op: str) -> list[Expr]:
    if isinstance(cond, Binary) and cond.op == op:
        return [*_parts(cond.a, op), *_parts(cond.b, op)]
    return [cond]


def _below(cond: Expr, var: Var, inner: Mapping[str, For]) -> _Limit | None:
    """The limit that a condition `place < bound` keeps."""
    return _limit(cond.a, cond.b, var, inner) if isinstance(cond, Binary) and cond.op == "lt" else None


def _reached(cond: Expr, var: Var, inner: Mapping[str, For]) -> _Limit | None:
    """The limit that a condition `bound <= place`, or `bound < place`, has reached."""
    is_one = isinstance(cond, Binary) and cond.op in ("le", "lt")
    return _limit(cond.b, cond.a, var, inner, int(cond.op == "lt")) if is_one and isinstance(cond, Binary) else None


def _limit(place: Expr, bound: Expr, var: Var, inner: Mapping[str, For], more: int = 0) -> _Limit | None:
    """The limit of a place, a multiple of the variable and what is not negative; it is reached `more` above a bound.

    What else is added on one side is taken from the other.
    """
    terms: dict[Expr, int] = {_ONE: more}
    for expr, sign in ((bound, 1), (place, -1)):
        for term, factor in _terms(expr).items():
            terms[term] = terms.get(term, 0) + sign * factor
    factor = -terms.pop(var, 0)
    counted = {term: times for term, times in terms.items() if isinstance(term, Var) and term.name in inner and times}
    if factor < 1 or any(times > 0 or not _is_counted(inner[term.name]) for term, times in counted.items()):
        return None
    return _Limit({t: n for t, n in terms.items() if n and t not in counted}, factor, not counted)


def _is_counted(loop: For) -> bool:
    """Whether the variable of a loop is not negative."""
    return isinstance(loop.lower, Const) and loop.lower.value >= 0


def _terms(expr: Expr) -> dict[Expr, int]:
    """An integer as a sum: what is no sum of indices, or of 64 bits, is one term; those of 32 bits may wrap."""
    match expr:
        case Const(value=value):
            return {_ONE: int(value)}
        case Cast(value=value, dtype="int32" | "int64") if value.dtype in ("int32", INDEX):
            if expr.dtype == INDEX or not reads_memory(value):  # an index fits into both
                return _terms(value)
        case Binary(op="add" | "sub" as op, a=a, b=b) if expr.dtype == INDEX or not reads_memory(expr):
            found = _terms(a)
            for term, factor in _terms(b).items():
                found[term] = found.get(term, 0) + (factor if op == "add" else -factor)
            return found
        case Binary(op="mul", a=one, b=Const(value=n)) | Binary(op="mul", a=Const(value=n), b=one) if (
            expr.dtype == INDEX or not reads_memory(one)
        ):
            return {term: factor * int(n) for term, factor in _terms(one).items()}
    return {expr: 1}


def _sum(terms: _Terms) -> Expr:
    """A sum in 64 bits."""
    total: Expr = Const(0, INDEX)
    for term, factor in terms.items():
        total = total + cast(term, INDEX) * factor
    return simplify(total)
