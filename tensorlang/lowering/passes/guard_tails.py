"""Unrolled loops that may be cut short, on a device: whole, with a test of each iteration.

A thread keeps an array in registers as long as every index into it is a constant, so that a loop over part of a tile
must not run to a bound that is known at run time only.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Const, Expr, binary
from tensorlang.ir.loops import constant_difference, constant_extent, uses, with_body
from tensorlang.ir.stmt import INDEX, AtomicUpdate, For, If, Kernel, LoopKind, Stmt, Store, map_children, walk
from tensorlang.lowering.device.ranges import Ranges, inside, range_of
from tensorlang.lowering.passes.full_tile import conjunction, full_tile, operands, versioned

MOST_STORES = 128


def guard_tails(kernel: Kernel, most_stores: int = MOST_STORES) -> Kernel:
    """Give unrolled loops with a partial tail their full extent, and each iteration the test that it is there.

    A test that the tile is full comes before, and the full loop, as long as all copies make at most `most_stores`
    stores. Loops right inside of each other are all full, or all tested. Run the simplifier before, so that bounds are
    in `min`/`max` form, and after.
    """
    versions: dict[int, If] = {}

    def visit(stmt: Stmt, ranges: Ranges) -> Stmt:
        within = inside(stmt, ranges) if isinstance(stmt, For) else ranges
        stmt = map_children(stmt, lambda child: visit(child, within))
        if not (isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED) or constant_extent(stmt) is not None:
            return stmt
        tile = full_tile(stmt, {})
        if tile is None or not tile.tests:
            return _between(stmt, ranges, most_stores)
        full = replace(stmt, lower=tile.lower, upper=binary("add", tile.lower, Const(tile.extent, INDEX)))
        present = conjunction(_present(stmt, full))
        if 2 * tile.extent * _stores(stmt.body) > most_stores:
            return replace(full, body=If(present, stmt.body))
        inner = versions.get(id(stmt.body))
        if inner is None or inner.orelse is None or uses(inner.cond, stmt.var.name):
            made = versioned(tile.tests, full, replace(full, body=If(present, stmt.body)))
        else:
            slow = replace(full, body=If(present, inner.orelse))
            made = versioned((*tile.tests, inner.cond), replace(full, body=inner.then), slow)
        if isinstance(made, If):
            versions[id(made)] = made
        return made

    return with_body(kernel, visit(kernel.body, {}))


def _between(loop: For, ranges: Ranges, most_stores: int) -> Stmt:
    """A loop from the least to the greatest value of its variable, if these are few."""
    low, high = range_of(loop.lower, ranges)[0], range_of(loop.upper, ranges)[1]
    if low is None or high is None or (high - low) * _stores(loop.body) > most_stores:
        return loop
    full = replace(loop, lower=Const(low, INDEX), upper=Const(high, INDEX))
    tests = _present(loop, full)
    return replace(full, body=If(conjunction(tests), loop.body)) if tests else full


def _present(loop: For, full: For) -> tuple[Expr, ...]:
    """The tests that an iteration of the full loop is one of the loop's own."""
    lowers = [e for e in operands("max", loop.lower) if constant_difference(e, full.lower) != 0]
    uppers = [e for e in operands("min", loop.upper) if constant_difference(e, full.upper) != 0]
    tests = [binary("le", e, loop.var) for e in lowers]
    return (*tests, *(binary("lt", loop.var, e) for e in uppers))


def _stores(stmt: Stmt) -> int:
    """The stores of a statement when its own unrolled loops are copied."""
    inner = sum(isinstance(s, Store | AtomicUpdate) for s in walk(stmt))
    return max(1, inner)
