"""Machine code in the device interpreter: the threads that run it together do what it means, in plain loops.

The elements that a loop nest makes are shared out among the threads; what they read counts as read by others of them,
too, since a device may let any of them read it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tensorlang.ir.device.clock import WARP, Array
from tensorlang.ir.device.lanes import Mask, narrowed
from tensorlang.ir.device.statements import Block, Run, StatementCompiler
from tensorlang.ir.expr import Const
from tensorlang.ir.loops import constant_extent, uses
from tensorlang.ir.stmt import CallMachine, For, If, Seq, Stmt, Store


def compile_machine(compiler: StatementCompiler, stmt: CallMachine) -> Run:
    """The function of a call of machine code."""
    site, count = compiler.sites.add(stmt), stmt.code.lanes or WARP
    parts = stmt.meaning.body if isinstance(stmt.meaning, Seq) else (stmt.meaning,)
    runs = [_part(compiler, part, count, bool(stmt.code.lanes), site) for part in parts]

    def call(b: Block, mask: Mask) -> None:
        if mask is not None and (~mask & groups_of(mask, count)).any():
            what = "warp" if count == WARP else f"group of {count} threads"
            compiler.sites.fault(f"a part of a {what} calls {stmt.code.name}", site)
        b.clock.together = True
        b.clock.touched = [] if stmt.code.group and b.check else None
        for run in runs:
            run(b, mask)
        b.clock.together = False
        touched, b.clock.touched = b.clock.touched, None
        if touched:
            b.groups_of(stmt.code.group).begin(touched, count, site)

    return call


def _part(compiler: StatementCompiler, stmt: Stmt, count: int, together: bool, site: int) -> Run:
    """A part of the meaning; one under a condition is shared out where that holds."""
    if not isinstance(stmt, If) or stmt.orelse is not None:
        return (_shared_out(compiler, stmt, count) if together else None) or _by_first(compiler, stmt, count)
    cond, inside = compiler.exprs.expr(stmt.cond, site), _part(compiler, stmt.then, count, together, site)

    def run(b: Block, mask: Mask) -> None:
        anyone, active = narrowed(np.broadcast_to(cond(b, mask), b.clock.count), mask)
        if anyone:
            inside(b, active)

    return run


def groups_of(mask: Array, count: int) -> Array:
    """All threads of the groups of `count` neighbours that some threads are in."""
    present = np.add.reduceat(mask, np.arange(0, len(mask), count)) > 0
    return np.repeat(present, count)[: len(mask)]


def _by_first(compiler: StatementCompiler, stmt: Stmt, count: int) -> Run:
    """The first thread of each group does it all."""
    whole = compiler.stmt(stmt)

    def run(b: Block, mask: Mask) -> None:
        anyone, active = narrowed(b.clock.lanes % count == 0, mask)
        if anyone:
            whole(b, active)

    return run


def _shared_out(compiler: StatementCompiler, stmt: Stmt, count: int) -> Run | None:
    """A nest of loops around one store, each of whose elements one thread makes; None for anything else."""
    nest: list[For] = []
    body = stmt
    while isinstance(body, For) and isinstance(body.lower, Const) and constant_extent(body) is not None:
        nest.append(body)
        body = body.body
    if not nest or not isinstance(body, Store):
        return None
    own = [loop for loop in nest if any(uses(i, loop.var.name) for i in body.index)]
    inner: Stmt = body
    for loop in reversed([loop for loop in nest if loop not in own]):
        inner = For(loop.var, loop.lower, loop.upper, loop.kind, inner, loop.axis)
    made, extents = compiler.stmt(inner), [constant_extent(loop) or 0 for loop in own]
    total, starts = prod(extents), [int(loop.lower.value) for loop in own if isinstance(loop.lower, Const)]

    def run(b: Block, mask: Mask) -> None:
        for first in range(0, total, count):
            number = first + b.clock.lanes % count
            anyone, active = narrowed(number < total, mask)
            for loop, extent, start in zip(reversed(own), reversed(extents), reversed(starts), strict=True):
                b.values[loop.var.name] = number % extent + start
                b.shares[loop.var.name] = first
                number = number // extent
            if anyone:
                made(b, active)
        for loop in own:
            b.values.pop(loop.var.name, None)
            b.shares.pop(loop.var.name, None)

    return run
