"""Loops in which nothing is to be run for some sizes: a test around them spares hours of empty iterations."""

from __future__ import annotations

from functools import reduce

from tensorlang.ir.expr import Expr, Load, Var, binary, same, walk
from tensorlang.ir.loops import constant_extent
from tensorlang.ir.stmt import Allocate, For, If, Let, LoopKind, Seq, Stmt, map_children

_QUICK = 2**16
"""So many empty iterations are not worth a test."""


def skipping_empty_rounds(stmt: Stmt, sizes: frozenset[str]) -> Stmt:
    """The statement with a test around each outermost loop that may be long, and inside of which no loop may run.

    The tests are of sizes alone. Loops over blocks and threads stay as they are: no processor runs them one by one.
    """
    if not isinstance(stmt, For):
        return map_children(stmt, lambda s: skipping_empty_rounds(s, sizes))
    extent = constant_extent(stmt)
    if not sizes or stmt.kind is LoopKind.BOUND or (extent is not None and extent <= _QUICK):
        return stmt
    test = _something_runs(stmt.body, sizes)
    return stmt if test is None else If(test, stmt)


def _something_runs(stmt: Stmt, sizes: frozenset[str]) -> Expr | None:
    """What has to hold for a statement to run anything; None where it may whatever the sizes are."""
    match stmt:
        case For():
            return _both(_any_iteration(stmt, sizes), _something_runs(stmt.body, sizes))
        case Seq(body=[_, *_] as parts):
            return _any_part([_something_runs(part, sizes) for part in parts])
        case Let(body=inner) | Allocate(body=inner) | If(then=inner, orelse=None):
            return _something_runs(inner, sizes)
    return None


def _any_iteration(loop: For, sizes: frozenset[str]) -> Expr | None:
    nodes = [node for bound in (loop.lower, loop.upper) for node in walk(bound)]
    steady = all(node.name in sizes for node in nodes if isinstance(node, Var))
    if not steady or any(isinstance(node, Load) for node in nodes) or constant_extent(loop):
        return None
    return binary("lt", loop.lower, loop.upper)


def _both(first: Expr | None, second: Expr | None) -> Expr | None:
    return first if second is None else second if first is None else binary("and", first, second)


def _any_part(tests: list[Expr | None]) -> Expr | None:
    different: list[Expr] = []
    for test in tests:
        if test is None:
            return None
        if not any(same(test, known) for known in different):
            different.append(test)
    return reduce(lambda a, b: binary("or", a, b), different)
