"""Words of classic te for ranges, scans and equal expressions."""

from __future__ import annotations

from typing import Any

from tensorlang.errors import shown
from tensorlang.ir.expr import Expr, ExprLike, as_expr, same
from tensorlang.ir.simplify import simplify
from tensorlang.te import axis
from tensorlang.te.operation import HybridOp


def Range(begin: ExprLike, end: ExprLike | None = None) -> axis.Range:
    """Return the numbers from `begin` up to `end`, or from 0 up to `begin`.

    >>> from tensorlang.ir import Range
    >>> Range(2, 7).extent, Range(4).min
    (5, 0)
    """
    first, last = (0, begin) if end is None else (begin, end)
    return axis.Range.from_min_extent(first, simplify(as_expr(last) - first))


class _Scans(type):
    def __instancecheck__(cls, op: object) -> bool:
        return isinstance(op, HybridOp) and op.time is not None


class ScanOp(metaclass=_Scans):
    """What te.scan makes: an operation of statements with a time loop."""


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Return whether two expressions or values are the same tree; variables are equal by their names.

    >>> from tensorlang import ir, te
    >>> n = te.var("n")
    >>> ir.structural_equal(n + 1, n + 1), ir.structural_equal(n + 1, n + 2)
    (True, False)
    """
    del map_free_vars  # names are what variables are
    if isinstance(lhs, list | tuple) and isinstance(rhs, list | tuple):
        return len(lhs) == len(rhs) and all(map(structural_equal, lhs, rhs))
    if isinstance(lhs, Expr) or isinstance(rhs, Expr):
        return same(as_expr(lhs), as_expr(rhs))
    return bool(lhs == rhs)


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise ValueError where two expressions are not the same tree."""
    if not structural_equal(lhs, rhs, map_free_vars):
        raise ValueError(f"{shown(lhs)} is not {shown(rhs)}")
