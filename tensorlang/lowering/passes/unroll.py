"""Unrolled loops become copies of their bodies."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Const, binary
from tensorlang.ir.loops import constant_extent, iterations, uses, with_body, with_kind
from tensorlang.ir.stmt import INDEX, AtomicUpdate, For, If, Kernel, LoopKind, Stmt, Store, map_children, walk
from tensorlang.lowering.passes.full_tile import full_tile

MOST_STORES = 256


def unroll_bounds(kernel: Kernel, most_stores: int = MOST_STORES) -> Kernel:
    """Copy unrolled loops, outer ones first, on which bounds inside depend: in a copy, these may be constant."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED and _bounds_use(stmt.body, stmt.var.name):
            extent = constant_extent(stmt)
            if extent is not None and extent * _stores(stmt.body) <= most_stores:
                stmt = iterations(stmt, extent)
        return map_children(stmt, visit)

    return with_body(kernel, visit(kernel.body))


def unroll_tails(kernel: Kernel, most_stores: int = MOST_STORES) -> Kernel:
    """Version unrolled loops with a partial tail: a test that the tile is full, the full loop, and the loop as it was.

    Run the simplifier before, so that bounds are in `min`/`max` form; and after, since the failed test may make the
    extent of the rest constant, too; and `unroll` then.
    """

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, visit)
        if not (isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED):
            return stmt
        tile = full_tile(stmt, {})
        if tile is None or not tile.tests or tile.extent * _stores(stmt.body) > most_stores:
            return stmt
        upper = binary("add", tile.lower, Const(tile.extent, INDEX))
        full = replace(stmt, lower=tile.lower, upper=upper)
        done: Stmt = full
        for test in reversed(tile.tests):  # where only one of them fails, the rest may have a constant extent, too
            done = If(test, done, stmt)
        return done

    return with_body(kernel, visit(kernel.body))


def unroll(kernel: Kernel, most_stores: int = MOST_STORES) -> Kernel:
    """Replace unrolled loops by copies, inner ones first, while a loop makes at most `most_stores` stores.

    Loops over that limit, or whose extent is not constant, become serial.
    """

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, visit)
        if not (isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED):
            return stmt
        extent = constant_extent(stmt)
        if extent is None or extent * _stores(stmt.body) > most_stores:
            return with_kind(stmt, LoopKind.SERIAL)
        return iterations(stmt, extent)

    return with_body(kernel, visit(kernel.body))


def _bounds_use(stmt: Stmt, name: str) -> bool:
    return any(isinstance(s, For) and (uses(s.lower, name) or uses(s.upper, name)) for s in walk(stmt))


def _stores(stmt: Stmt) -> int:
    return max(1, sum(isinstance(s, Store | AtomicUpdate) for s in walk(stmt)))
