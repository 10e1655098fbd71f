"""Loops that each thread runs: serial, unrolled, or over the lanes of a vector that devices have."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.expr import Const, Var, binary
from tensorlang.ir.loops import constant_extent, with_kind, with_value
from tensorlang.ir.stmt import INDEX, For, LoopKind, Stmt, map_children
from tensorlang.ir.thread_tags import VIRTUAL
from tensorlang.lowering.device.threads import ZERO, thread_tags

_LANES = (16, 8, 4, 2)
"""Elements of the vectors that CUDA C and OpenCL C have."""


def serial(loop: For, body: Stmt) -> For:
    """A loop that each thread runs, over its body for threads."""
    kind, pragmas = loop.kind, loop.pragmas
    if kind is LoopKind.BOUND:
        assert loop.thread == VIRTUAL, loop.thread
        kind = LoopKind.UNROLLED
    if kind is LoopKind.PARALLEL or (kind is LoopKind.VECTORIZED and thread_tags(loop.body)):
        kind = LoopKind.SERIAL
    if kind is LoopKind.UNROLLED and constant_extent(loop) is None:
        kind = LoopKind.SERIAL
    return For(loop.var, loop.lower, loop.upper, kind, body, loop.axis, "", pragmas)


def legal_kinds(stmt: Stmt) -> Stmt:
    """Cut vectorized loops into vectors that devices have; those of no constant extent become serial."""

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, visit)
        if not isinstance(s, For):
            return s
        extent = constant_extent(s)
        if s.kind is LoopKind.UNROLLED and extent is None:
            return with_kind(s, LoopKind.SERIAL)
        if s.kind is not LoopKind.VECTORIZED or extent in _LANES:
            return s
        lanes = next((n for n in _LANES if extent and extent % n == 0), 0)
        return _cut(s, extent or 0, lanes) if lanes else with_kind(s, LoopKind.SERIAL)

    return visit(stmt)


def _cut(loop: For, extent: int, lanes: int) -> Stmt:
    """A vectorized loop as an unrolled loop over shorter ones."""
    part = Var(f"{loop.var.name}.part", INDEX)
    lane = Var(f"{loop.var.name}.lane", INDEX)
    first = binary("add", loop.lower, binary("mul", part, Const(lanes, INDEX)))
    body = with_value(loop.body, loop.var, binary("add", first, lane))
    vector = replace(loop, var=lane, lower=ZERO, upper=Const(lanes, INDEX), body=body)
    return For(part, ZERO, Const(extent // lanes, INDEX), LoopKind.UNROLLED, vector, loop.axis)
