"""The simplifier of expressions and loop IR.

Integer arithmetic becomes sums of products over atoms (`forms`), with quotients and remainders by constants
(`division`), and is decided by ranges, loop bounds and enclosing conditions (`prove`). Values never change.
Index arithmetic in int64 over variables without a finite range is taken not to wrap; any other arithmetic is
rewritten only where its range proves that it does not. Floating-point arithmetic is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.ir.expr import Const, Expr, Var
from tensorlang.ir.simplify import conditions, integers  # noqa: F401  (importing them registers their rules)
from tensorlang.ir.simplify.forms import Range
from tensorlang.ir.simplify.scope import Scope
from tensorlang.ir.simplify.statements import simplify_kernel, simplify_stmt

__all__ = ["proves", "simplify", "simplify_kernel", "simplify_stmt"]


def simplify(expr: Expr, ranges: Mapping[str, Range] | None = None) -> Expr:
    """Return an expression of the same dtype and value, simplified.

    `ranges` gives inclusive bounds of integer variables by name; None on either side means unbounded.
    """
    if isinstance(expr, Const | Var):
        return expr
    return Scope(ranges or {}).value(expr)


def proves(condition: Expr, ranges: Mapping[str, Range] | None = None) -> bool:
    """Whether a condition holds at every point of the ranges, as far as the simplifier can tell."""
    decided = simplify(condition, ranges)
    return isinstance(decided, Const) and bool(decided.value)
