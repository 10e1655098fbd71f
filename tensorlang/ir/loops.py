"""Questions and edits about loops that the verifier, the passes and the targets share."""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.affine import add, affine, is_constant
from tensorlang.ir.expr import Expr, Var, substitute, walk
from tensorlang.ir.stmt import For, Kernel, LoopKind, Stmt, map_exprs


def constant_extent(loop: For) -> int | None:
    """How many iterations a loop has, if that is a constant of affine bounds."""
    return constant_difference(loop.upper, loop.lower)


def constant_difference(upper: Expr, lower: Expr) -> int | None:
    """`upper - lower`, at least 0, if both are affine and differ by a constant."""
    top, bottom = affine(upper), affine(lower)
    if top is None or bottom is None:
        return None
    difference = add(top, bottom, -1)
    return max(0, difference.get("", 0)) if is_constant(difference) else None


def uses(expr: Expr, name: str) -> bool:
    """Whether an expression mentions a variable."""
    return any(isinstance(node, Var) and node.name == name for node in walk(expr))


def with_value(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    """The statement with a variable replaced by an expression of its dtype."""
    values = {var.name: value}
    return map_exprs(stmt, lambda expr: substitute(expr, values))


def with_kind(loop: For, kind: LoopKind) -> For:
    """The loop with its iterations run in another way."""
    return replace(loop, kind=kind, thread=loop.thread if kind is LoopKind.BOUND else "")


def with_body(kernel: Kernel, body: Stmt) -> Kernel:
    """The kernel with another body."""
    return replace(kernel, body=body)
