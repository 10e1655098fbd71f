"""Between which numbers an expression lies, as far as its dtypes and constants tell."""

from __future__ import annotations

import math
from typing import TypeAlias

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr

Span: TypeAlias = tuple[float, float]
_ANY: Span = (-math.inf, math.inf)


def span(expr: Expr) -> Span:
    """The least and the largest number that an expression may be, but for NaN; limits are those of exact arithmetic."""
    match expr:
        case Const(value=value):
            return float(value), float(value)
        case Cast(value=inner) if dtypes.info(inner.dtype).is_integer:
            (low, high), (least, most) = span(inner), _limits(expr.dtype)
            return (low, high) if least <= low and high <= most else (least, most)
        case _ if not dtypes.info(expr.dtype).is_float:
            return _limits(expr.dtype)
        case Call("round", (inner,)):
            return span(inner)
        case Binary("min" | "max" as op, a, b):
            choose = min if op == "min" else max
            (low, high), (other_low, other_high) = span(a), span(b)
            return choose(low, other_low), choose(high, other_high)
        case Binary("add", a, b):
            (low, high), (other_low, other_high) = span(a), span(b)
            return low + other_low, high + other_high
        case Binary("mul", a, b):
            ends = [x * y for x in span(a) for y in span(b)]
            return _ANY if any(map(math.isnan, ends)) else (min(ends), max(ends))
    return _ANY


def _limits(dtype: str) -> Span:
    """Of integers; floats have none, for they may be infinite."""
    if not dtypes.info(dtype).is_integer:
        return _ANY
    low, high = dtypes.limits(dtype)
    return float(low), float(high)
