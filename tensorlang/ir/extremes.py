"""The least and the greatest value of an index, from those of the variables in it."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.ir.expr import Binary, Cast, Const, Expr, Unary, Var, binary, cast
from tensorlang.ir.simplify import simplify
from tensorlang.ir.traverse import bounded

Ends = Mapping[str, tuple[Expr, Expr]]


@bounded
def extreme(expr: Expr, ends: Ends, greatest: bool) -> Expr:
    """Return a bound of a quasi-affine expression that is free of the variables in `ends` (least, greatest).

    The bound is reached where every variable occurs once. Of a remainder it is that of all remainders.
    """
    match expr:
        case Var() if expr.name in ends:
            return cast(ends[expr.name][greatest], expr.dtype)
        case Binary(op="sub"):
            return simplify(binary("sub", extreme(expr.a, ends, greatest), extreme(expr.b, ends, not greatest)))
        case Binary(op="mul"):
            factor, rest = (expr.a, expr.b) if isinstance(expr.a, Const) else (expr.b, expr.a)
            grows = not (isinstance(factor, Const) and int(factor.value) < 0)
            return simplify(binary("mul", extreme(rest, ends, greatest == grows), factor))
        case Binary(op="floormod", b=Const(value=modulus)):
            return Const(int(modulus) - 1 if greatest else 0, expr.dtype)
        case Binary():
            return simplify(binary(expr.op, extreme(expr.a, ends, greatest), extreme(expr.b, ends, greatest)))
        case Unary(op="neg"):
            return simplify(Unary("neg", extreme(expr.a, ends, not greatest), expr.dtype))
        case Cast():
            return cast(extreme(expr.value, ends, greatest), expr.dtype)
    return expr
