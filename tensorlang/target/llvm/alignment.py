"""Where the rows that a long vector loop stores meet a cache line: an access across two lines costs twice."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.stmt import For, Store
from tensorlang.ir.stmt import walk as statements
from tensorlang.target.llvm.arithmetic import binary, select
from tensorlang.target.llvm.expressions import place
from tensorlang.target.llvm.scope import Lanes, Scope, has_loads
from tensorlang.target.llvm.text import INDEX, Function, Value, literal

_LINE = 64
"""Bytes of a cache line. Narrower registers cross lines less often than a piece more costs."""


def iterations_to_line(
    fn: Function, scope: Scope, loop: For, lower: Value, count: Value, lanes: int, least: int
) -> Value | None:
    """How many of `count` iterations run before one that stores to the start of a line; none when there are few.

    `least`: so many iterations are worth it. None when the loop stores no row in pieces as wide as a line.
    """
    body = tuple(statements(loop.body))
    if any(isinstance(s, For) for s in body):
        return None
    inside = Scope(scope.values, scope.buffers, scope.varying, Lanes(loop.var.name, lower, lanes))
    known = {loop.var.name, *scope.values}
    for stmt in body:
        if not isinstance(stmt, Store) or not _known(stmt.index, known):
            continue
        size = dtypes.info(stmt.buffer.dtype).bytes
        if size * lanes != _LINE:
            continue
        row = place(fn, inside, Load(stmt.buffer, stmt.index))
        if row.step is not None and row.step.integer == 1:
            at = fn.value(f"ptrtoint ptr {row.pointer} to i64", INDEX)
            behind = binary(fn, "floordiv", binary(fn, "sub", literal(0, INDEX), at), literal(size, INDEX))
            missing = binary(fn, "floormod", behind, literal(lanes, INDEX))
            return select(fn, binary(fn, "ge", count, literal(least, INDEX)), missing, literal(0, INDEX))
    return None


def _known(index: tuple[Expr, ...], names: set[str]) -> bool:
    """Whether an index can be evaluated in front of the loop."""
    variables = (node for i in index for node in walk(i) if isinstance(node, Var))
    return all(v.name in names for v in variables) and not any(map(has_loads, index))
