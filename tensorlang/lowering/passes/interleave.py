"""Virtual threads step through a reduction together: their loops move inside the loops that sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorlang.ir.expr import Expr, Var, variables, walk
from tensorlang.ir.loops import constant_difference, constant_extent, reads_memory, with_body
from tensorlang.ir.stmt import Allocate, AtomicUpdate, CallMachine, For, If, Kernel, LoopKind, Stmt, Store, map_children
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import VIRTUAL, is_thread
from tensorlang.lowering.passes.full_tile import conjunction, operands


def interleave(kernel: Kernel) -> Kernel:
    """Run an iteration of all virtual threads before the next one of a reduction, so that they share what they load.

    The iterations of a loop bound to `vthread` are proven independent, so it may stand inside any loop whose bounds
    do not depend on it. That is done for loops over threads, and for loops all of whose iterations update the same
    elements. Tests move inwards with it; bounds that cut its last tile, or that of threads inside, become such tests,
    so that it has a constant number of iterations.
    """
    return with_body(kernel, _visit(kernel.body))


def _visit(stmt: Stmt) -> Stmt:
    virtual: list[For] = []
    tests: list[Expr] = []
    body = stmt
    while isinstance(body, For) and body.thread == VIRTUAL:
        whole, cut = _whole(body)
        virtual.append(whole)
        tests += cut
        body = body.body
    return _inside(virtual, tests, body) if virtual else map_children(stmt, _visit)


def _inside(virtual: Sequence[For], tests: Sequence[Expr], stmt: Stmt) -> Stmt:
    """A statement with loops over virtual threads as far inside as they go, and the tests of what is to run in them."""
    names = {loop.var.name for loop in virtual}
    match stmt:
        case For():
            whole, cut = _whole(stmt) if is_thread(stmt.thread) else (stmt, [])
            if _crossed(whole, names):
                return replace(whole, body=_inside(virtual, [*tests, *cut], stmt.body))
        case If(orelse=None) if not reads_memory(stmt.cond) and _sums_inside(stmt.then, names):
            return _inside(virtual, [*tests, stmt.cond], stmt.then)
    if tests:
        stmt = If(conjunction(tuple(tests)), stmt)
    for loop in reversed(virtual):
        stmt = replace(loop, body=stmt)
    return stmt


def _whole(loop: For) -> tuple[For, list[Expr]]:
    """A loop of constant extent, and the tests that an iteration of it is one of a given loop, from a `min` of bounds.

    The loop itself where no constant bounds it.
    """
    if constant_extent(loop) is not None:
        return loop, []
    spans = [(constant_difference(upper, loop.lower), upper) for upper in operands("min", loop.upper)]
    known = [span for span in spans if span[0] is not None]
    if not known:
        return loop, []
    _, end = min(known, key=lambda span: span[0] or 0)
    cut = [loop.var < upper for _, upper in spans if upper is not end]
    return (loop, []) if any(map(reads_memory, cut)) else (replace(loop, upper=end), cut)


def _sums_inside(stmt: Stmt, virtual: set[str]) -> bool:
    """Whether there is, behind tests and loops over threads, a loop that virtual loops may stand inside of."""
    while isinstance(stmt, If) or (isinstance(stmt, For) and is_thread(stmt.thread)):
        if isinstance(stmt, If) and (stmt.orelse is not None or reads_memory(stmt.cond)):
            return False
        stmt = stmt.then if isinstance(stmt, If) else stmt.body
    return isinstance(stmt, For) and _crossed(stmt, virtual)


def _crossed(loop: For, virtual: set[str]) -> bool:
    bounds = (loop.lower, loop.upper)
    if any(reads_memory(bound) or not virtual.isdisjoint(variables(bound)) for bound in bounds):
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
