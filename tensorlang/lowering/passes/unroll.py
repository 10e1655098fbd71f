"""Unrolled loops become copies of their bodies."""

from __future__ import annotations

from tensorlang.ir.loops import constant_extent, iterations, with_body, with_kind
from tensorlang.ir.stmt import For, Kernel, LoopKind, Stmt, Store, map_children, walk

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
    return iterations(stmt, extent)


def _stores(stmt: Stmt) -> int:
    return max(1, sum(isinstance(s, Store) for s in walk(stmt)))
