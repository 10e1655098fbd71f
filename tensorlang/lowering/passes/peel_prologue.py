"""Loops that begin before zero, as those do which fill tiles ahead: their first iterations become a loop of their own.

What waits for the tiles does not run there, and the rest of the loop counts from zero.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Const, Var
from tensorlang.ir.loops import with_body
from tensorlang.ir.stmt import INDEX, For, Kernel, LoopKind, Seq, Stmt, map_children

_ZERO = Const(0, INDEX)


def peel_prologue(kernel: Kernel) -> Kernel:
    """Return the kernel with serial loops from below zero cut there; they end at zero or later."""
    sizes = {size.name for size in kernel.sizes}

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, visit)
        if isinstance(stmt, For) and stmt.kind is LoopKind.SERIAL and _begins_below(stmt, sizes):
            return Seq((replace(stmt, upper=_ZERO), replace(stmt, lower=_ZERO)))
        return stmt

    return with_body(kernel, visit(kernel.body))


def _begins_below(loop: For, sizes: set[str]) -> bool:
    """Whether a loop surely runs on both sides of zero, or not at all from there on."""
    if not isinstance(loop.lower, Const) or loop.lower.value >= 0:
        return False
    match loop.upper:
        case Const(value):
            return value > 0
        case Var(name):
            return name in sizes
    return False
