"""Expressions that are linear in some of their variables."""

from __future__ import annotations

from collections.abc import Collection

from tensorlang.ir.affine import Affine, add, scale, widens
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Unary, Var, binary, cast, variables
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.traverse import bounded


@bounded
def linear(expr: Expr, names: Collection[str]) -> tuple[Expr, Affine] | None:
    """Return `(rest, factors)` with `expr = rest + sum of factor * name`, or None; `rest` uses none of the names."""
    if not variables(expr) & set(names):
        return cast(expr, INDEX), {}
    match expr:
        case Var():
            return Const(0, INDEX), {expr.name: 1}
        case Cast() if widens(expr.value.dtype, expr.dtype):
            return linear(expr.value, names)
        case Unary(op="neg"):
            return _scaled(linear(expr.a, names), -1)
        case Binary(op="add" | "sub"):
            return _sum(linear(expr.a, names), linear(expr.b, names), 1 if expr.op == "add" else -1)
        case Binary(op="mul"):
            for factor, other in ((expr.a, expr.b), (expr.b, expr.a)):
                if isinstance(factor, Const):
                    return _scaled(linear(other, names), int(factor.value))
    return None


def _scaled(part: tuple[Expr, Affine] | None, factor: int) -> tuple[Expr, Affine] | None:
    return None if part is None else (binary("mul", part[0], factor), scale(part[1], factor))


def _sum(a: tuple[Expr, Affine] | None, b: tuple[Expr, Affine] | None, factor: int) -> tuple[Expr, Affine] | None:
    if a is None or b is None:
        return None
    return binary("add" if factor > 0 else "sub", a[0], b[0]), add(a[1], b[1], factor)
