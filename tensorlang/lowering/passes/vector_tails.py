"""Vectorized loops become legal, and fast where tiles are full: constant extent, no guard that varies over lanes.

A loop with a partial tail is versioned: a test that the tile is full, the loop of constant extent, and the loop as it
was for the rest, in vectors too, of which the last is masked. A loop that cannot run in lanes becomes serial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import affine
from tensorlang.ir.expr import Binary, Const, Expr, Load, Var, binary, substitute, walk
from tensorlang.ir.loops import iterations, uses, with_body, with_kind
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    For,
    If,
    Kernel,
    Let,
    LoopKind,
    Stmt,
    children,
    map_children,
)
from tensorlang.ir.stmt import walk as statements
from tensorlang.lowering.passes.full_tile import conjunction, full_tile, versioned

_ORDERED = ("lt", "le", "gt", "ge")
_ONE = Const(1, INDEX)


def vector_tails(kernel: Kernel, extents: Mapping[str, int] | None = None) -> Kernel:
    """Make every vectorized loop legal (see `stmt.For`).

    `extents` gives the full extent of schedule axes whose bounds do not show it. Run the simplifier before, so
    that bounds are in `min`/`max` form, and after, to drop tests that are decided.
    """
    return with_body(kernel, _visit(kernel.body, extents or {}))


def _visit(stmt: Stmt, extents: Mapping[str, int]) -> Stmt:
    stmt = map_children(stmt, lambda child: _visit(child, extents))
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
        return _vectorized(stmt, extents)
    return stmt


def _vectorized(loop: For, extents: Mapping[str, int]) -> Stmt:
    if not _fit_for_lanes(loop):
        return with_kind(loop, LoopKind.SERIAL)
    full = full_tile(loop, extents)
    if full is None:
        return loop
    if full.extent < 2:
        serial = with_kind(loop, LoopKind.SERIAL)
        first = iterations(replace(loop, lower=full.lower), full.extent)
        return versioned(full.tests, first, serial) if full.extent else first
    upper = binary("add", full.lower, Const(full.extent, INDEX))
    tests, body = _without_lane_guards(loop.body, _Lanes(loop.var.name, full.lower, binary("sub", upper, _ONE)))
    vector = replace(loop, lower=full.lower, upper=upper, body=body)
    return versioned((*full.tests, *tests), vector, loop)


def _fit_for_lanes(loop: For) -> bool:
    """Whether the lanes can run side by side: nothing inside but statements and uniform loops."""
    for inner in statements(loop.body):
        match inner:
            case Allocate():
                return False  # each iteration has its own
            case For():
                if inner.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
                    return False
                if uses(inner.lower, loop.var.name) or uses(inner.upper, loop.var.name):
                    return False
    return True


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lane variable, and its value in the first and the last lane."""

    name: str
    first: Expr
    last: Expr


def _without_lane_guards(body: Stmt, lanes: _Lanes) -> tuple[tuple[Expr, ...], Stmt]:
    """Tests under which no lane fails a guard of `body`, and the body for when they pass."""
    inner = {s.var.name for s in statements(body) if isinstance(s, For | Let)}
    tests: list[Expr] = []

    def visit(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, If) or not uses(stmt.cond, lanes.name):
            return map_children(stmt, visit) if children(stmt) else stmt
        kept: list[Expr] = []
        for part in _conjuncts(stmt.cond):
            test = _all_lanes(part, lanes, inner)
            if test is None:
                kept.append(part)
            else:
                tests.append(test)
        then = visit(stmt.then)
        if not kept:
            return then
        orelse = None if stmt.orelse is None else visit(stmt.orelse)
        return replace(stmt, cond=conjunction(tuple(kept)), then=then, orelse=orelse)

    unguarded = visit(body)
    return tuple(tests), unguarded


def _conjuncts(condition: Expr) -> Iterator[Expr]:
    if isinstance(condition, Binary) and condition.op == "and":
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    else:
        yield condition


def _all_lanes(condition: Expr, lanes: _Lanes, inner: set[str]) -> Expr | None:
    """A test, free of the lane variable, that every lane passes `condition`; None if there is none to be had.

    A comparison that is affine in the lane is monotone in it, so the lane that is worst off decides.
    """
    if not (isinstance(condition, Binary) and condition.op in _ORDERED and uses(condition, lanes.name)):
        return None
    if any(isinstance(n, Load) or (isinstance(n, Var) and n.name in inner) for n in walk(condition)):
        return None
    left, right = affine(condition.a), affine(condition.b)
    if left is None or right is None:
        return None
    slope = left.get(lanes.name, 0) - right.get(lanes.name, 0)
    grows = slope > 0
    worst = lanes.last if grows == (condition.op in ("lt", "le")) else lanes.first
    return substitute(condition, {lanes.name: worst})
