"""Unrolled loops become copies of their bodies."""

from __future__ import annotations

from tensorlang.ir.expr import Const, binary
from tensorlang.ir.loops import constant_extent, with_body, with_kind, with_value
from tensorlang.ir.stmt import INDEX, For, Kernel, LoopKind, Seq, Stmt, Store, map_children, walk

MOST_STORES = 256


def unroll(kernel: Kernel, most_stores: int = MOST_STORES) -> Kernel:
    """Replace unrolled loops by copies, inner ones first, while a loop makes at most `most_stores` stores.

    Loops over that limit, or whose extent is not constant, become serial.
    """
    return with_body(kernel, _visit(kernel.body, most_stores))


def _visit(stmt: Stmt, most_stores: int) -> Stmt:
    stmt = map_children(stmt, lambda child: _visit(child, most_stores))
    if not (isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED):
        return stmt
    extent = constant_extent(stmt)
    if extent is None or extent * _stores(stmt.body) > most_stores:
        return with_kind(stmt, LoopKind.SERIAL)
    copies = [_copy(stmt, n) for n in range(extent)]
    return copies[0] if extent == 1 else Seq(tuple(copies))


def _copy(loop: For, iteration: int) -> Stmt:
    return with_value(loop.body, loop.var, binary("add", loop.lower, Const(iteration, INDEX)))


def _stores(stmt: Stmt) -> int:
    return max(1, sum(isinstance(s, Store) for s in walk(stmt)))
