"""Words of classic te for ranges, scans, equal expressions and their hashes."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from tensorlang.errors import shown
from tensorlang.ir.expr import AsExpr, Expr, ExprLike, as_expr, same
from tensorlang.ir.simplify import simplify
from tensorlang.ir.traverse import children_first
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


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """Return a hash that structurally equal expressions share: the same in every process.

    >>> from tensorlang import ir, te
    >>> n = te.var("n")
    >>> ir.structural_hash(n + 1) == ir.structural_hash(n + 1) != ir.structural_hash(n + 2)
    True
    """
    del map_free_vars  # names are what variables are
    if isinstance(node, list | tuple):
        return _digest("list", *(str(structural_hash(part)) for part in node))
    if not isinstance(node, Expr | AsExpr):
        return _digest(repr(node))
    root, made = as_expr(node), dict[int, int]()
    for one in children_first(root, lambda child: id(child) not in made):
        below = [str(made[id(child)]) for child in one.children()]
        made[id(one)] = _digest(type(one).__name__, one.dtype, repr(one.label()), *below)
    return made[id(root)]


def _digest(*words: str) -> int:
    return int.from_bytes(sha256("\0".join(words).encode()).digest()[:8], "little", signed=True)
