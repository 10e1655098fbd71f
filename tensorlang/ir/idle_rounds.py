"""Loops whose later rounds do nothing, by a condition on data: they end where the condition does.

An axis whose extent is data, as that of a row of a sparse matrix, is a long one of which a condition leaves the
beginning (te.limited). All its rounds have been proven and read back; a target spares those that do nothing, and asks
what data say once for all lanes of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Var, binary, cast, rewrite, same, walk
from tensorlang.ir.loops import reads_memory, uses
from tensorlang.ir.stmt import INDEX, AtomicUpdate, For, If, Let, LoopKind, Prefetch, Seq, Stmt, Store, map_children
from tensorlang.ir.stmt import walk as statements


@dataclass(frozen=True, slots=True)
class _Limit:
    """Nothing happens where `factor` times the variable of a loop has reached `bound`."""

    bound: Expr
    factor: int


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
    nodes = list(walk(expr))
    read = {node.buffer.name for node in nodes if isinstance(node, Load)}
    used = {node.name for node in nodes if isinstance(node, Var)}
    inside = list(statements(loop.body))
    made = {s.var.name for s in (loop, *inside) if isinstance(s, For | Let)}
    written = {s.buffer.name for s in inside if isinstance(s, Store | AtomicUpdate)}
    return not (used & made or read & written)


def _ended(loop: For) -> For:
    inner = {s.var.name: s for s in statements(loop.body) if isinstance(s, For)}
    limits = (limit for limit in _limits(loop.body, loop.var, inner) if _is_known(loop, limit.bound))
    found = next((limit for limit in limits if _is_idle(loop.body, loop.var, limit, inner)), None)
    if found is None:
        return loop
    rounds = cast(found.bound, INDEX)
    if found.factor > 1:
        rounds = binary("floordiv", rounds + (found.factor - 1), Const(found.factor, INDEX))
    return replace(loop, upper=binary("min", loop.upper, binary("max", loop.lower, rounds)))


def _is_known(loop: For, bound: Expr) -> bool:
    """Whether a bound is data that may be read before a loop."""
    plain = not any(reads_memory(place) for node in walk(bound) if isinstance(node, Load) for place in node.index)
    return plain and reads_memory(bound) and _is_steady(loop, bound)


def _limits(stmt: Stmt, var: Var, inner: Mapping[str, For]) -> Iterator[_Limit]:
    """What conditions on data ask the variable of a loop to be below, in a statement that it holds."""
    match stmt:
        case Seq(body=parts):
            for part in parts:
                yield from _limits(part, var, inner)
        case For(body=body):
            yield from _limits(body, var, inner)
        case If(cond=cond, then=then) if stmt.is_guard or reads_memory(cond):
            yield from (found for part in _parts(cond, "and") if (found := _below(part, var, inner)))
            yield from _limits(then, var, inner)


def _is_idle(stmt: Stmt, var: Var, limit: _Limit, inner: Mapping[str, For]) -> bool:
    """Whether a statement does nothing where the variable has reached a limit."""
    match stmt:
        case Seq(body=parts):
            return all(_is_idle(part, var, limit, inner) for part in parts)
        case For(body=body) | Let(body=body):
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
    return found is not None and found.factor >= limit.factor and same(_widened(found.bound), _widened(limit.bound))


def _parts(cond: Expr, op: str) -> list[Expr]:
    if isinstance(cond, Binary) and cond.op == op:
        return [*_parts(cond.a, op), *_parts(cond.b, op)]
    return [cond]


def _below(cond: Expr, var: Var, inner: Mapping[str, For]) -> _Limit | None:
    """The limit that a condition `place < bound` keeps."""
    return _limit(cond.a, cond.b, var, inner) if isinstance(cond, Binary) and cond.op == "lt" else None


def _reached(cond: Expr, var: Var, inner: Mapping[str, For]) -> _Limit | None:
    """The limit that a condition `bound <= place`, or `bound < place + 1`, has reached."""
    is_one = isinstance(cond, Binary) and cond.op in ("le", "lt")
    return _limit(cond.b, cond.a, var, inner, int(cond.op == "lt")) if is_one and isinstance(cond, Binary) else None


def _limit(place: Expr, bound: Expr, var: Var, inner: Mapping[str, For], less: int = 0) -> _Limit | None:
    """The limit of a place, `less` so many, that is a multiple of the variable and what is not negative."""
    form = affine(rewrite(place, lambda node: _widened(node) if isinstance(node, Cast) else None))
    if form is None or form.get(var.name, 0) < 1:
        return None
    rest = {name: factor for name, factor in form.items() if name != var.name} | {"": form.get("", 0) - less}
    fits = all(factor >= 0 and (not name or _is_counted(inner.get(name))) for name, factor in rest.items())
    return _Limit(bound, form[var.name]) if fits else None


def _is_counted(loop: For | None) -> bool:
    """Whether the variable of a loop is not negative."""
    return loop is not None and isinstance(loop.lower, Const) and loop.lower.value >= 0


def _widened(expr: Expr) -> Expr:
    """An integer as it was before it was taken as one of another width: an index fits into both."""
    while isinstance(expr, Cast) and expr.dtype in ("int32", INDEX) and expr.value.dtype in ("int32", INDEX):
        expr = expr.value
    return expr
