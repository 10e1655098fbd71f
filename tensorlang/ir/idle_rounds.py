"""Loops whose later rounds do nothing, by a condition on data: they end where the condition does.

An axis whose extent is data, as that of a row of a sparse matrix, is a long one of which a condition leaves the
beginning (te.reductions). All its rounds have been proven and read back; a target spares those that do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorlang.ir.expr import Binary, Cast, Expr, Load, Var, binary, cast, same, walk
from tensorlang.ir.loops import reads_memory, uses
from tensorlang.ir.stmt import INDEX, AtomicUpdate, For, If, Let, LoopKind, Prefetch, Seq, Stmt, Store, map_children
from tensorlang.ir.stmt import walk as statements


def without_idle_rounds(stmt: Stmt) -> Stmt:
    """The statement with serial loops that end where data say so.

    A vector loop that holds one which ends elsewhere for each lane runs one iteration after the other.
    """
    stmt = map_children(stmt, without_idle_rounds)
    if not isinstance(stmt, For):
        return stmt
    if stmt.kind is LoopKind.VECTORIZED and any(_ends_by(inner, stmt.var) for inner in statements(stmt.body)):
        return replace(stmt, kind=LoopKind.SERIAL)
    if stmt.kind is not LoopKind.SERIAL:
        return stmt
    limit = next((bound for bound in _bounds(stmt.body, stmt.var) if _is_limit(stmt, bound)), None)
    if limit is None:
        return stmt
    end = binary("max", stmt.lower, cast(limit, INDEX))
    return replace(stmt, upper=binary("min", stmt.upper, end))


def _ends_by(stmt: Stmt, var: Var) -> bool:
    return isinstance(stmt, For) and reads_memory(stmt.upper) and uses(stmt.upper, var.name)


def _bounds(stmt: Stmt, var: Var) -> Iterator[Expr]:
    """What conditions on data ask the variable of a loop to be below, in a statement that it holds."""
    match stmt:
        case Seq(body=parts):
            for part in parts:
                yield from _bounds(part, var)
        case If(cond=cond, then=then) if stmt.is_guard or reads_memory(cond):
            yield from (b for b in (_above(part, var) for part in _parts(cond, "and")) if b is not None)
            yield from _bounds(then, var)


def _is_limit(loop: For, bound: Expr) -> bool:
    """Whether a bound is known before a loop, and nothing happens in it from there on."""
    nodes = list(walk(bound))
    read = {node.buffer.name for node in nodes if isinstance(node, Load)}
    used = {node.name for node in nodes if isinstance(node, Var)}
    inside = list(statements(loop.body))
    made = {s.var.name for s in (loop, *inside) if isinstance(s, For | Let)}
    written = {s.buffer.name for s in inside if isinstance(s, Store | AtomicUpdate)}
    plain = not any(reads_memory(place) for node in nodes if isinstance(node, Load) for place in node.index)
    return bool(read) and plain and not (used & made or read & written) and _is_idle(loop.body, loop.var, bound)


def _is_idle(stmt: Stmt, var: Var, bound: Expr) -> bool:
    """Whether a statement does nothing where the variable has reached the bound."""
    match stmt:
        case Seq(body=parts):
            return all(_is_idle(part, var, bound) for part in parts)
        case For(body=body) | Let(body=body):
            return _is_idle(body, var, bound)
        case Prefetch():
            return True
        case If(cond=cond, then=then, orelse=orelse):
            never = any(_meets(_above(part, var), bound) for part in _parts(cond, "and"))
            surely = any(_meets(_below(part, var), bound) for part in _parts(cond, "or"))
            return (never or _is_idle(then, var, bound)) and (surely or orelse is None or _is_idle(orelse, var, bound))
    return False


def _meets(found: Expr | None, bound: Expr) -> bool:
    return found is not None and same(_widened(found), _widened(bound))


def _parts(cond: Expr, op: str) -> list[Expr]:
    if isinstance(cond, Binary) and cond.op == op:
        return [*_parts(cond.a, op), *_parts(cond.b, op)]
    return [cond]


def _above(cond: Expr, var: Var) -> Expr | None:
    """What a condition says that the variable is less than."""
    is_own = isinstance(cond, Binary) and cond.op == "lt" and same(_widened(cond.a), var)
    return cond.b if is_own and isinstance(cond, Binary) else None


def _below(cond: Expr, var: Var) -> Expr | None:
    """What a condition says that the variable is at least."""
    is_own = isinstance(cond, Binary) and cond.op == "le" and same(_widened(cond.b), var)
    return cond.a if is_own and isinstance(cond, Binary) else None


def _widened(expr: Expr) -> Expr:
    """An integer as it was before it was taken as one of another width: an index fits into both."""
    while isinstance(expr, Cast) and expr.dtype in ("int32", INDEX) and expr.value.dtype in ("int32", INDEX):
        expr = expr.value
    return expr
