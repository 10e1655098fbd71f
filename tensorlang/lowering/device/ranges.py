"""Ranges of index expressions inside a device kernel, from those of the loops around them."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang import dtypes
from tensorlang.ir.expr import Expr
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.simplify.scope import Scope
from tensorlang.ir.stmt import For

Ranges = Mapping[str, Range]
"""Inclusive bounds of variables by name; None where there is none."""


def range_of(expr: Expr, ranges: Ranges) -> Range:
    """The least and the greatest value of an expression, None where unknown or where it is no integer."""
    if not dtypes.info(expr.dtype).is_integer:
        return None, None
    scope = Scope(ranges)
    return scope.atoms.range(scope.form(expr))


def inside(loop: For, ranges: Ranges) -> Ranges:
    """The ranges in the body of a loop."""
    low, high = range_of(loop.lower, ranges)[0], range_of(loop.upper, ranges)[1]
    return {**ranges, loop.var.name: (low, None if high is None else high - 1)}
