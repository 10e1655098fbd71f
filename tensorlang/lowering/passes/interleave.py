"""Virtual threads step through a reduction together: their loops move inside the loops that sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.ir.expr import Expr, Load, Var, walk
from tensorlang.ir.loops import with_body
from tensorlang.ir.stmt import Allocate, AtomicUpdate, CallMachine, For, Kernel, LoopKind, Stmt, Store, map_children
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import VIRTUAL, is_thread


def interleave(kernel: Kernel) -> Kernel:
    """Run an iteration of all virtual threads before the next one of a reduction, so that they share what they load.

    The iterations of a loop bound to `vthread` are proven independent, so it may stand inside any loop whose bounds
    do not depend on it. That is done for loops over threads, and for loops all of whose iterations update the same
    elements.
    """
    return with_body(kernel, _visit(kernel.body))


def _visit(stmt: Stmt) -> Stmt:
    virtual: list[For] = []
    body = stmt
    while isinstance(body, For) and body.thread == VIRTUAL:
        virtual.append(body)
        body = body.body
    return _inside(virtual, body) if virtual else map_children(stmt, _visit)


def _inside(virtual: Sequence[For], stmt: Stmt) -> Stmt:
    """A statement with loops over virtual threads as far inside as they go."""
    if isinstance(stmt, For) and _crossed(stmt, {loop.var.name for loop in virtual}):
        return replace(stmt, body=_inside(virtual, stmt.body))
    for loop in reversed(virtual):
        stmt = replace(loop, body=stmt)
    return stmt


def _crossed(loop: For, virtual: set[str]) -> bool:
    bounds = [node for bound in (loop.lower, loop.upper) for node in walk(bound)]
    if any(isinstance(n, Load) or (isinstance(n, Var) and n.name in virtual) for n in bounds):
        return False
    return is_thread(loop.thread) or (not loop.thread and _sums(loop))


def _sums(loop: For) -> bool:
    """Whether all iterations of a loop update the same elements, beside arrays of their own."""
    inside = list(statements(loop.body))
    if loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED) or any(isinstance(s, CallMachine) for s in inside):
        return False
    own = {s.buffer.name for s in inside if isinstance(s, Allocate)}
    stores = [s for s in inside if isinstance(s, Store | AtomicUpdate) and s.buffer.name not in own]
    return bool(stores) and not any(_mentions(i, loop.var) for s in stores for i in s.index)


def _mentions(expr: Expr, var: Var) -> bool:
    return any(isinstance(node, Var) and node.name == var.name for node in walk(expr))
