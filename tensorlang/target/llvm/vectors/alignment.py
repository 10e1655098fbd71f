"""Where the rows that a long vector loop stores meet a cache line: an access across two lines costs twice."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Expr, Load, Var, substitute, walk
from tensorlang.ir.stmt import For, Store
from tensorlang.ir.stmt import walk as statements
from tensorlang.target.llvm.arithmetic import binary
from tensorlang.target.llvm.expressions import index, place
from tensorlang.target.llvm.scope import Lanes, Scope, has_loads
from tensorlang.target.llvm.text import INDEX, Function, Value, literal

LINE = 64
"""Bytes of a cache line. Narrower registers cross lines less often than a piece more costs."""


def row_of_lines(fn: Function, scope: Scope, loop: For, lanes: int, anywhere: bool) -> Store | None:
    """A store of the loop that writes a row, in pieces as wide as a line; None when there is none.

    Unless rows may begin `anywhere`, it is one to an array of ours whose rows begin at lines.
    """
    body = tuple(statements(loop.body))
    if any(isinstance(s, For) for s in body):
        return None
    inside = Scope(scope.values, scope.buffers, scope.varying, Lanes(loop.var.name, literal(0, INDEX), lanes))
    known = {loop.var.name, *scope.values}
    for stmt in body:
        if not isinstance(stmt, Store) or not _known(stmt.index, known):
            continue
        if dtypes.info(stmt.buffer.dtype).bytes * lanes != LINE:
            continue
        if not (anywhere or in_lines(scope, stmt.buffer.name, lanes)):
            continue
        step = place(fn, inside, Load(stmt.buffer, stmt.index)).step
        if step is not None and step.integer == 1:
            return stmt
    return None


def iterations_to_line(fn: Function, scope: Scope, loop: For, row: Store, lower: Value, lanes: int) -> Value:
    """How many iterations from `lower` on run before one that stores to the start of a line."""
    size = dtypes.info(row.buffer.dtype).bytes
    if in_lines(scope, row.buffer.name, lanes):
        form = affine(substitute(scope.expanded(row.index[-1]), {loop.var.name: loop.lower}))
        if form is not None and all(factor % lanes == 0 for name, factor in form.items() if name):
            return literal(-form.get("", 0) % lanes, INDEX)
        at = index(fn, scope.bind(loop.var.name, lower), row.index[-1])
    else:
        inside = Scope(scope.values, scope.buffers, scope.varying, Lanes(loop.var.name, lower, lanes))
        first = place(fn, inside, Load(row.buffer, row.index)).pointer
        at = binary(fn, "floordiv", fn.value(f"ptrtoint ptr {first} to i64", INDEX), literal(size, INDEX))
    return binary(fn, "floormod", binary(fn, "sub", literal(0, INDEX), at), literal(lanes, INDEX))


def in_lines(scope: Scope, name: str, lanes: int) -> bool:
    """Whether every row of an array begins at a line of our own memory, of which `lanes` elements fill one."""
    held = scope.buffers[name]
    outer = [stride.integer for stride in held.strides[:-1]]
    filled = dtypes.info(held.buffer.dtype).bytes * lanes == LINE
    dense = bool(held.strides) and held.strides[-1].integer == 1
    return held.aligned and filled and dense and all(s is not None and s % lanes == 0 for s in outer)


def _known(index: tuple[Expr, ...], names: set[str]) -> bool:
    """Whether an index can be evaluated in front of the loop."""
    variables = (node for i in index for node in walk(i) if isinstance(node, Var))
    return all(v.name in names for v in variables) and not any(map(has_loads, index))
