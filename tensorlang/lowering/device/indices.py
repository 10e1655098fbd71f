"""How wide the integers are that hold the indices of a device kernel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tensorlang import dtypes
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tensorlang.ir.stmt import INDEX, Allocate, DeviceKernel, For, If, Let, Seq, Stmt, stmt_exprs
from tensorlang.ir.stmt import walk as statements
from tensorlang.ir.thread_tags import BLOCKS, THREADS

NARROW = "int32"
_MOST = 2**31 - 1
Interval = tuple[int, int]


class _TooWide(Exception):
    """A value that may not fit."""


def index_dtype(kernel: DeviceKernel) -> str:
    """Return `int32` if all offsets, loop variables and what they are computed from fit it, else `int64`.

    A kernel that computes with int64 values of other origin, such as elements of arrays, has `int64`.
    """
    arrays = [*kernel.params, *kernel.shared]
    arrays += [s.buffer for s in statements(kernel.body) if isinstance(s, Allocate)]
    around: dict[str, Interval] = {}
    try:
        for array in arrays:
            _fits(0, prod(_interval(extent, {})[1] for extent in array.shape))
        for tag, blocks in zip(BLOCKS, kernel.grid, strict=True):
            around[tag] = 0, max(0, _interval(blocks, {})[1] - 1)
        for tag, threads in zip(THREADS, kernel.block, strict=True):
            around[tag] = 0, threads - 1
        _visit(kernel.body, around)
    except _TooWide:
        return INDEX
    return NARROW


def _visit(stmt: Stmt, around: Mapping[str, Interval]) -> None:
    match stmt:
        case For():
            low, high = _interval(stmt.lower, around)[0], _interval(stmt.upper, around)[1]
            _visit(stmt.body, {**around, stmt.var.name: (low, max(low, high - 1))})
        case Let():
            _visit(stmt.body, {**around, stmt.var.name: _value(stmt.value, around)})
        case Seq():
            for child in stmt.body:
                _visit(child, around)
        case Allocate():
            _visit(stmt.body, around)
        case If():
            _value(stmt.cond, around)
            _visit(stmt.then, around)
            if stmt.orelse is not None:
                _visit(stmt.orelse, around)
        case _:
            for expr in stmt_exprs(stmt):
                _value(expr, around)


def _value(expr: Expr, around: Mapping[str, Interval]) -> Interval:
    """The interval of an expression if it is an index; the indices inside are looked at in any case."""
    if expr.dtype == INDEX:
        return _interval(expr, around)
    for child in expr.children():
        _value(child, around)
    if dtypes.info(expr.dtype).is_integer and dtypes.info(expr.dtype).bits <= 32:
        low, high = dtypes.limits(expr.dtype)
        return int(low), int(high)
    return 0, 0


def _interval(expr: Expr, around: Mapping[str, Interval]) -> Interval:
    """An interval that holds the values of an index, which fits; so do those of all that it is made of."""
    match expr:
        case Const():
            return _fits(int(expr.value), int(expr.value))
        case Var() if expr.name in around:
            return around[expr.name]
        case Cast() if dtypes.info(expr.value.dtype).is_integer and dtypes.info(expr.value.dtype).bits <= 32:
            return _fits(*_value(expr.value, around))
        case Unary(op="neg"):
            low, high = _interval(expr.a, around)
            return _fits(-high, -low)
        case Select():
            _value(expr.cond, around)
            (p, q), (r, s) = _interval(expr.then, around), _interval(expr.orelse, around)
            return min(p, r), max(q, s)
        case Binary():
            return _binary(expr.op, _interval(expr.a, around), _interval(expr.b, around))
    raise _TooWide


def _binary(op: str, x: Interval, y: Interval) -> Interval:
    match op:
        case "add":
            return _fits(x[0] + y[0], x[1] + y[1])
        case "sub":
            return _fits(x[0] - y[1], x[1] - y[0])
        case "mul":
            corners = [p * q for p in x for q in y]
            return _fits(min(corners), max(corners))
        case "min":
            return min(x[0], y[0]), min(x[1], y[1])
        case "max":
            return max(x[0], y[0]), max(x[1], y[1])
        case "floordiv" if y[0] > 0:
            corners = [p // q for p in x for q in y]
            return _fits(min(corners), max(corners))
        case "floormod" if y[0] > 0:
            return 0, y[1] - 1
    raise _TooWide


def _fits(low: int, high: int) -> Interval:
    if low < -_MOST - 1 or high > _MOST:
        raise _TooWide
    return low, high
