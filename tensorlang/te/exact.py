"""Exact integer arithmetic of axes.

Analysis and lowering take int32 and int64 arithmetic of axes, sizes and constants as exact. Where the ranges of the
axes show that int32 is too narrow, such arithmetic is written in int64 here; what must wrap all the same (a result
whose dtype is int32, or int64 itself) goes through an unsigned dtype, which no analysis takes as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import TypeAlias

from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Unary, Var, cast
from tensorlang.ir.operators import COMPARE
from tensorlang.ir.traverse import bounded
from tensorlang.te.axis import Axis

Interval: TypeAlias = tuple[int, int]
Bounded: TypeAlias = tuple[Expr, Interval | None]
_SIGNED = ("int32", "int64")
_LIMITS = {name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in zip(_SIGNED, (32, 64), strict=True)}


def exact(expr: Expr, axes: tuple[Axis, ...]) -> Expr:
    """Return an expression of the same dtype, in which arithmetic of constants and axes does not wrap unseen.

    Axes of symbolic extent count as so small that their arithmetic stays in its dtype.
    """
    ranges = {a.name: limits for a in axes if (limits := _limits(a)) is not None}
    return _narrowed(_exact(expr, ranges)[0], expr.dtype)


@bounded
def reach(expr: Expr, ranges: Mapping[str, Interval]) -> Interval | None:
    """The least and the greatest value that exact arithmetic may come to, by ranges of variables; None if unknown."""
    if expr.dtype not in _SIGNED:
        return None
    return _interval(expr, [reach(child, ranges) for child in expr.children()], ranges)


def _limits(axis: Axis) -> Interval | None:
    if not (isinstance(axis.lower, Const) and isinstance(axis.extent, Const)):
        return None
    low, extent = int(axis.lower.value), int(axis.extent.value)
    return low, low + max(extent, 1) - 1


@bounded
def _exact(expr: Expr, axes: Mapping[str, Interval]) -> Bounded:
    """The expression, in int64 where int32 is too narrow; and bounds of its values, if axes and constants give them."""
    parts = [_exact(child, axes) for child in expr.children()]
    children, limits = [part for part, _ in parts], [known for _, known in parts]
    interval = _interval(expr, limits, axes) if expr.dtype in _SIGNED else None
    if interval is None:
        return _rebuilt(expr, children, limits), None
    if all(_fits(known, expr.dtype) for known in (*limits, interval)):
        return _rebuilt(expr, children, limits), interval
    wide = _in_dtype(expr, children, "int64" if _fits(interval, "int64") else "uint64")
    if wide.dtype == "uint64":
        return Cast(wide, "int64"), _LIMITS["int64"]
    return (Cast(wide, expr.dtype) if _fits(interval, expr.dtype) else wide), interval


def _fits(interval: Interval | None, dtype: str) -> bool:
    low, high = _LIMITS[dtype]
    return interval is not None and low <= interval[0] and interval[1] <= high


def _rebuilt(expr: Expr, children: list[Expr], limits: list[Interval | None]) -> Expr:
    """An expression over children of which some may have become int64."""
    if isinstance(expr, Cast) and expr.dtype in _SIGNED and limits[0] is not None and not _fits(limits[0], expr.dtype):
        return _narrowed(children[0], expr.dtype)
    old = expr.children()
    if all(map(is_, children, old)):
        return expr
    wider = any(new.dtype != child.dtype for new, child in zip(children, old, strict=True))
    if isinstance(expr, Binary) and wider and expr.op in COMPARE:
        return Binary(expr.op, cast(children[0], "int64"), cast(children[1], "int64"), "bool")
    if wider and (isinstance(expr, Unary) or (isinstance(expr, Binary) and expr.op in _RULES)):
        return _in_dtype(expr, children, "int64")
    if isinstance(expr, Cast):
        return cast(children[0], expr.dtype)
    if isinstance(expr, Load):
        return expr.with_children(tuple(children))
    return expr.with_children(tuple(_narrowed(new, child.dtype) for new, child in zip(children, old, strict=True)))


def _narrowed(expr: Expr, dtype: str) -> Expr:
    """A value in a dtype that may not hold it: to int32 it wraps, and shows that it does."""
    return cast(cast(expr, "uint32"), dtype) if (expr.dtype, dtype) == ("int64", "int32") else cast(expr, dtype)


def _in_dtype(expr: Expr, children: list[Expr], dtype: str) -> Expr:
    """The same arithmetic in another dtype."""
    match expr:
        case Var():
            return Var(expr.name, dtype)
        case Unary():
            return Unary(expr.op, cast(children[0], dtype), dtype)
        case Binary():
            return Binary(expr.op, cast(children[0], dtype), cast(children[1], dtype), dtype)
    return cast(children[0], dtype)


def _interval(expr: Expr, parts: list[Interval | None], axes: Mapping[str, Interval]) -> Interval | None:
    match expr, parts:
        case Const(), _:
            return int(expr.value), int(expr.value)
        case Var(), _:
            return axes.get(expr.name)
        case Unary(op="neg"), [(low, high)]:
            return -high, -low
        case Binary(), [(_, _) as a, (_, _) as b]:
            rule = _RULES.get(expr.op)
            return None if rule is None else rule(a, b)
        case Cast(), [(_, _) as inner] if _fits(inner, expr.dtype):
            return inner
    return None


def _products(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _floordiv(a: Interval, b: Interval) -> Interval | None:
    return (a[0] // b[0], a[1] // b[0]) if b[0] == b[1] and b[0] > 0 else None


def _floormod(a: Interval, b: Interval) -> Interval | None:
    return (0, b[0] - 1) if b[0] == b[1] and b[0] > 0 else None


_RULES: dict[str, Callable[[Interval, Interval], Interval | None]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
