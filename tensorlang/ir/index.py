"""Index arithmetic: integer expressions as loop IR wants them, in int64."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Var, binary, cast
from tensorlang.ir.stmt import INDEX


def to_index(expr: Expr) -> Expr:
    """Return an integer index or a condition with its integer arithmetic in int64."""
    if expr.dtype == "bool":
        operands = expr.children()
        if isinstance(expr, Load) or any(not _is_index(c) and c.dtype != "bool" for c in operands):
            return expr
        return expr.with_children(tuple(to_index(c) for c in operands))
    match expr:
        case Const():
            return Const(expr.value, INDEX)
        case Var():
            return Var(expr.name, INDEX)
        case Binary() if expr.op in ("add", "sub", "mul", "floordiv", "floormod", "min", "max") and _is_wide(expr):
            return binary(expr.op, to_index(expr.a), to_index(expr.b))
        case Unary() if expr.op == "neg" and _is_wide(expr):
            return Unary("neg", to_index(expr.a), INDEX)
        case Cast() if _is_wide(expr) and _is_index(expr.value):
            return to_index(expr.value)
    return cast(expr, INDEX)


def _is_index(expr: Expr) -> bool:
    return dtypes.info(expr.dtype).is_integer


def _is_wide(expr: Expr) -> bool:
    """Integers of 32 bits and more count as exact: indices that overflow them address nothing."""
    return _is_index(expr) and dtypes.info(expr.dtype).bits >= 32
