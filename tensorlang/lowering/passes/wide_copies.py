"""Wide asynchronous copies: the lanes of a vectorised loop that copies neighbouring elements become one copy."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Const, Expr, Var, binary, substitute, substitution
from tensorlang.ir.loops import constant_extent, uses, with_body, with_kind
from tensorlang.ir.simplify import simplify
from tensorlang.ir.stmt import INDEX, AsyncCopy, For, If, Kernel, LoopKind, Seq, Stmt, map_children, walk


def wide_copies(kernel: Kernel) -> Kernel:
    """Return the kernel with the asynchronous copies of neighbouring elements joined, and no other in vectors."""
    return with_body(kernel, _visit(kernel.body))


def _visit(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED and any(isinstance(s, AsyncCopy) for s in walk(stmt)):
        extent = constant_extent(stmt)
        wide = None if extent is None else _joined(stmt.body, stmt, extent)
        return with_kind(stmt, LoopKind.UNROLLED if extent is not None else LoopKind.SERIAL) if wide is None else wide
    return map_children(stmt, _visit)


def _joined(stmt: Stmt, loop: For, extent: int) -> Stmt | None:
    """All lanes of a statement at once, if they are neighbours."""
    name = loop.var.name
    match stmt:
        case If(orelse=None) if not uses(stmt.cond, name):
            inside = _joined(stmt.then, loop, extent)
            return None if inside is None else If(stmt.cond, inside)
        case Seq():
            parts = [_joined(s, loop, extent) for s in stmt.body]
            whole = [part for part in parts if part is not None]
            return Seq(tuple(whole)) if len(whole) == len(parts) else None
        case AsyncCopy() if stmt.elements == 1 and (stmt.valid is None or not uses(stmt.valid, name)):
            if _is_run(stmt.index, name) and _is_run(stmt.source_index, name):
                first = substitution({name: loop.lower})
                at, source = (tuple(map(first, index)) for index in (stmt.index, stmt.source_index))
                return replace(stmt, index=at, source_index=source, elements=extent)
    return None


def _is_run(index: tuple[Expr, ...], name: str) -> bool:
    """Whether a variable moves an access along a row, element by element."""
    if any(uses(i, name) for i in index[:-1]):
        return False
    var = Var(name, INDEX)
    step = simplify(binary("sub", substitute(index[-1], {name: binary("add", var, 1)}), index[-1]))
    return isinstance(step, Const) and step.value == 1
