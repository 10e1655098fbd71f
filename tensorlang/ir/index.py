"""Index arithmetic: integer expressions as loop IR wants them, in int64."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Var, binary, cast, walk
from tensorlang.ir.stmt import INDEX
from tensorlang.ir.traverse import bounded


def to_index(expr: Expr) -> Expr:
    """Return an integer index, or a condition, of the same value with its arithmetic of axes and sizes in int64.

    Arithmetic on what is read from memory may wrap and stays in its dtype.
    """
    if expr.dtype == "bool":
        return _condition(expr)
    if not _is_exact(expr):
        return cast(expr, INDEX)
    match expr:
        case Const():
            return Const(expr.value, INDEX)
        case Var():
            return expr if expr.dtype == INDEX else Var(expr.name, INDEX)
    return cast(expr, INDEX) if any(isinstance(node, Load) for node in walk(expr)) else _arithmetic(expr)


@bounded
def _condition(expr: Expr) -> Expr:
    """A condition over indices in int64; anything else as it is."""
    operands = expr.children()
    if expr.dtype != "bool" or isinstance(expr, Load):
        return expr
    if not all(c.dtype == "bool" or _fits_int64(c) for c in operands):
        return expr
    return expr.with_children(tuple([_condition(c) if c.dtype == "bool" else to_index(c) for c in operands]))


@bounded
def _arithmetic(expr: Expr) -> Expr:
    """An exact integer expression that reads no memory, in int64."""
    match expr:
        case Binary() if _is_exact(expr) and expr.op in ("add", "sub", "mul", "floordiv", "floormod", "min", "max"):
            return binary(expr.op, _arithmetic(expr.a), _arithmetic(expr.b))
        case Unary() if _is_exact(expr) and expr.op == "neg":
            return Unary("neg", _arithmetic(expr.a), INDEX)
        case Cast() if _is_exact(expr) and _is_exact(expr.value):
            return _arithmetic(expr.value)
        case Const() | Var() if _is_exact(expr):
            return to_index(expr)
    return cast(expr, INDEX)


def _fits_int64(expr: Expr) -> bool:
    return dtypes.info(expr.dtype).is_integer and expr.dtype != "uint64"


def _is_exact(expr: Expr) -> bool:
    """Whether arithmetic of axes and sizes counts as exact: what wraps is written in another dtype (te.exact)."""
    return expr.dtype in ("int32", "int64")
