"""Deep expressions cut into parts, each the value of a Let: what comes after sees expressions of few levels.

A part is computed once and for all before the statement. One that reads memory below a choice is so only where the
choice is made for it, and is zero elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Expr, Load, Select, Unary, Var, const
from tensorlang.ir.stmt import AtomicUpdate, If, Kernel, Let, Prefetch, Stmt, Store, map_children, stmt_exprs
from tensorlang.ir.traverse import Asking, distinct, unwound

MOST = 64
"""Expressions of so many levels stay whole."""

_PART = 48
"""The levels of a part."""


@dataclass(slots=True)
class _Path:
    """Where a sub-expression is evaluated: where `condition` holds, below `outer` (None: everywhere)."""

    outer: _Path | None
    condition: Expr
    holds: Expr | None = None


class _Parts:
    """The parts of the expressions of one statement, in the order in which they are computed."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self.numbers = numbers
        self.lets: list[tuple[Var, Expr]] = []

    def whole(self, expr: Expr) -> Expr:
        """An expression over its parts."""
        if expr.levels <= MOST:
            return expr
        made = unwound(self._cut, expr, None)
        if self.lets and made is self.lets[-1][0]:
            return self.lets.pop()[1]
        return made

    def _cut(self, expr: Expr, path: _Path | None) -> Asking[Expr]:
        if expr.levels < _PART:
            return expr
        parts: list[Expr] = []
        for number, child in enumerate(expr.children()):
            parts.append((yield child, _below(path, expr, number, parts)))
        made = expr.with_children(tuple(parts))
        return made if made.levels < _PART else self._named(made, path)

    def _named(self, value: Expr, path: _Path | None) -> Var:
        if path is not None and any(isinstance(n, Load) for n in distinct(value)):
            value = Select(self._holds(path), value, const(0, value.dtype), value.dtype)
        return self._let(value)

    def _let(self, value: Expr) -> Var:
        self.lets.append((Var(f"part.{next(self.numbers)}", value.dtype), value))
        return self.lets[-1][0]

    def _holds(self, path: _Path) -> Expr:
        """The condition of a path, those around included; it is evaluated only where these hold."""
        inside: list[_Path] = []
        at: _Path | None = path
        while at is not None and at.holds is None:
            inside.append(at)
            at = at.outer
        known = None if at is None else at.holds
        for step in reversed(inside):
            known = step.condition if known is None else Binary("and", known, step.condition, "bool")
            if known.levels > _PART // 2:
                known = self._let(known)
            step.holds = known
        assert known is not None
        return known


def _below(path: _Path | None, expr: Expr, number: int, before: list[Expr]) -> _Path | None:
    """Where an operand is evaluated, by the operands before it."""
    match expr, number:
        case (Select(), 1) | (Binary(op="and"), 1):
            return _Path(path, before[0])
        case (Select(), 2) | (Binary(op="or"), 1):
            return _Path(path, Unary("not", before[0], "bool"))
    return path


def parts(expr: Expr) -> tuple[list[tuple[Var, Expr]], Expr]:
    """An expression over parts of itself, and these by name, in order."""
    made = _Parts(iter(range(1 << 60)))
    whole = made.whole(expr)
    return made.lets, whole


def name_parts(kernel: Kernel) -> Kernel:
    """Return the kernel with the deep expressions of its statements cut; bounds of loops stay as they are."""
    if all(e.levels <= MOST for e in stmt_exprs(kernel.body)):
        return kernel
    numbers = iter(range(1 << 60))

    def visit(stmt: Stmt) -> Stmt:
        parts = _Parts(numbers)
        made = _over_parts(map_children(stmt, visit), parts)
        for var, value in reversed(parts.lets):
            made = Let(var, value, made)
        return made

    return replace(kernel, body=visit(kernel.body))


def _over_parts(stmt: Stmt, parts: _Parts) -> Stmt:
    """A statement whose own expressions are made of parts."""
    whole = parts.whole
    match stmt:
        case Store():
            return replace(stmt, index=tuple(map(whole, stmt.index)), value=whole(stmt.value))
        case AtomicUpdate():
            return replace(stmt, index=tuple(map(whole, stmt.index)), value=whole(stmt.value))
        case Prefetch():
            return replace(stmt, index=tuple(map(whole, stmt.index)))
        case If():
            return replace(stmt, cond=whole(stmt.cond))
        case Let():
            return Let(stmt.var, whole(stmt.value), stmt.body)
    return stmt
