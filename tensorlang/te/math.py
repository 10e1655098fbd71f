"""Scalar functions of te: constants, choices, division in both roundings, and the math intrinsics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir import expr as ir
from tensorlang.ir.expr import Const, Expr, ExprLike, Select, binary
from tensorlang.ir.intrinsics import TABLE, call
from tensorlang.location import caller
from tensorlang.te.examples import with_example
from tensorlang.te.lowering_rules import ruled

const = ir.const
cast = ir.cast
for _shared in (const, cast):
    _shared.__doc__ = with_example(_shared.__name__, _shared.__doc__ or "")

_LOOKED_UP = 16
"""Numbers of a table that a shuffle of bytes takes."""


def min_value(dtype: str) -> Const:
    """Return the lowest finite value of a dtype.

    >>> from tensorlang import te
    >>> te.min_value("int8")
    int8(-128)
    """
    d = dtypes.info(dtypes.canonical(dtype))
    return const(dtypes.smallest_float(d.name) if d.is_float else dtypes.limits(d.name)[0], d.name)


def max_value(dtype: str) -> Const:
    """Return the highest finite value of a dtype.

    >>> from tensorlang import te
    >>> te.max_value("int8")
    int8(127)
    """
    d = dtypes.info(dtypes.canonical(dtype))
    return const(float(ml_dtypes.finfo(d.numpy).max) if d.is_float else dtypes.limits(d.name)[1], d.name)


def infinity(dtype: str) -> Const:
    """Return plus infinity of a float dtype.

    >>> from tensorlang import te
    >>> te.infinity("float32")
    inf
    """
    d = dtypes.info(dtypes.canonical(dtype))
    if not d.is_float or dtypes.limits(d.name)[1] != float("inf"):
        raise DefinitionError(f"{d.name} has no infinity; use te.max_value", caller())
    return const(float("inf"), d.name)


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> Select:
    """Return `true_value` where `condition` holds, else `false_value`; a branch not taken reads no memory.

    >>> from tensorlang import te
    >>> te.evaluate(te.select, True, 1, 2)
    np.int32(1)
    """
    return ir.select(condition, true_value, false_value)


def if_then_else(cond: ExprLike, t: ExprLike, f: ExprLike) -> Select:
    """Return `t` where `cond` holds, else `f`; a branch not taken reads no memory. The same as `select`.

    >>> from tensorlang import te
    >>> te.evaluate(te.if_then_else, False, 1, 2)
    np.int32(2)
    """
    return ir.select(cond, t, f)


def _operator(name: str, op: str, doc: str) -> Callable[[ExprLike, ExprLike], Expr]:
    def operator(a: ExprLike, b: ExprLike) -> Expr:
        return binary(op, a, b)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = with_example(name, doc)
    return operator


add = _operator("add", "add", "a + b.")
subtract = _operator("subtract", "sub", "a - b.")
multiply = _operator("multiply", "mul", "a * b.")
bitwise_and = _operator("bitwise_and", "bitand", "a & b, of integers.")
bitwise_or = _operator("bitwise_or", "bitor", "a | b, of integers.")
bitwise_xor = _operator("bitwise_xor", "bitxor", "a ^ b, of integers.")
minimum = _operator("minimum", "min", "The smaller of two values; NaN if one is.")
maximum = _operator("maximum", "max", "The larger of two values; NaN if one is.")
floordiv = _operator("floordiv", "floordiv", "a / b rounded down, as Python's //. Integers divided by zero give 0.")
floormod = _operator("floormod", "floormod", "a - b * floordiv(a, b), with the sign of b, as Python's %.")
truncdiv = _operator("truncdiv", "truncdiv", "a / b rounded towards zero, as C's /. Integers divided by zero give 0.")
truncmod = _operator("truncmod", "truncmod", "a - b * truncdiv(a, b), with the sign of a, as C's %.")
indexdiv = _operator("indexdiv", "floordiv", "floordiv, for indices.")
indexmod = _operator("indexmod", "floormod", "floormod, for indices.")
shift_left = _operator("shift_left", "shl", "a << b; 0 when b is the width or more.")
shift_right = _operator("shift_right", "shr", "a >> b, keeping the sign; all sign when b is the width or more.")


def bitwise_not(a: ExprLike) -> Expr:
    """Return ~a: the bits of an integer, flipped."""
    return ~ir.as_expr(a)


def div(a: ExprLike, b: ExprLike) -> Expr:
    """Return a / b as in C: floats divide, integers round towards zero.

    >>> from tensorlang import te
    >>> te.evaluate(te.div, -7, 2)
    np.int32(-3)
    """
    left, right = ir.operands(a, b)
    return binary("div" if dtypes.info(left.dtype).is_float else "truncdiv", left, right)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """Return a / b rounded up.

    >>> from tensorlang import te
    >>> te.evaluate(te.ceildiv, -7, 2)
    np.int32(-3)
    """
    left, right = ir.operands(a, b)
    return binary("floordiv", left + (right - 1), right)


def likely(cond: ExprLike) -> Expr:
    """Return the condition itself: which branch is the likely one is left to the compiler.

    >>> from tensorlang import te
    >>> te.evaluate(te.likely, True)
    np.True_
    """
    return ir.as_expr(cond)


def _unary(name: str) -> Callable[[ExprLike], Expr]:
    def intrinsic(x: ExprLike) -> Expr:
        return ruled(name, x)

    _describe(intrinsic, name)
    return intrinsic


def _binary(name: str) -> Callable[[ExprLike, ExprLike], Expr]:
    def intrinsic(x: ExprLike, y: ExprLike) -> Expr:
        return ruled(name, x, y)

    _describe(intrinsic, name)
    return intrinsic


def _describe(intrinsic: Any, name: str) -> None:
    intrinsic.__name__ = intrinsic.__qualname__ = name
    intrinsic.__doc__ = with_example(name, TABLE[name].doc)


exp, exp2, expm1 = _unary("exp"), _unary("exp2"), _unary("expm1")
log, log2, log10, log1p = _unary("log"), _unary("log2"), _unary("log10"), _unary("log1p")
sqrt, rsqrt = _unary("sqrt"), _unary("rsqrt")
sin, cos, tan = _unary("sin"), _unary("cos"), _unary("tan")
asin, acos, atan = _unary("asin"), _unary("acos"), _unary("atan")
sinh, cosh, tanh = _unary("sinh"), _unary("cosh"), _unary("tanh")
asinh, acosh, atanh = _unary("asinh"), _unary("acosh"), _unary("atanh")
sigmoid, erf = _unary("sigmoid"), _unary("erf")
floor, ceil, trunc = _unary("floor"), _unary("ceil"), _unary("trunc")
round_ = nearbyint = _unary("round")
abs_ = _unary("abs")
isnan, isinf, isfinite = _unary("isnan"), _unary("isinf"), _unary("isfinite")
popcount, clz = _unary("popcount"), _unary("clz")
pow_ = power = _binary("pow")
atan2, hypot, copysign = _binary("atan2"), _binary("hypot"), _binary("copysign")


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """Return a * b + c, rounded once.

    >>> from tensorlang import te
    >>> te.evaluate(te.fma, 2.0, 3.0, 4.0)
    np.float32(10.0)
    """
    return ruled("fma", a, b, c)


def exp10(x: ExprLike) -> Expr:
    """Return 10 to the power x.

    >>> from tensorlang import te
    >>> te.evaluate(te.exp10, 0.5).round(4)
    np.float32(3.1623)
    """
    return call("pow", 10.0, x)


def fmod(x: ExprLike, y: ExprLike) -> Expr:
    """Return the remainder of x / y rounded towards zero, with the sign of x.

    >>> from tensorlang import te
    >>> te.evaluate(te.fmod, -7.5, 2.0)
    np.float32(-1.5)
    """
    return binary("truncmod", x, y)


def ldexp(x: ExprLike, exponent: ExprLike) -> Expr:
    """Return x * 2**exponent, for an integer exponent.

    >>> from tensorlang import te
    >>> te.evaluate(te.ldexp, 1.5, 3)
    np.float32(12.0)
    """
    value, power_of_two = ir.as_expr(x), ir.as_expr(exponent)
    return value * call("exp2", power_of_two.astype(value.dtype))


def lookup(index: ExprLike, numbers: Sequence[int]) -> Expr:
    """Return one of 16 bytes: the number at the place that the lowest four bits of a uint8 index say.

    The numbers are constants, all of uint8 or, where one is negative, of int8, which the result has then. On CPUs a
    vector of them is one shuffle of bytes (`vpshufb`, `tbl`). Raises DefinitionError for other numbers and indices.

        >>> import numpy as np
        >>> from tensorlang import te
        >>> te.evaluate(te.lookup, np.uint8(3), numbers=range(16))
        np.uint8(3)
    """
    place, dtype = ir.as_expr(index), "int8" if any(number < 0 for number in numbers) else "uint8"
    low, high = dtypes.limits(dtype)
    if place.dtype != "uint8" or len(numbers) != _LOOKED_UP or not all(low <= number <= high for number in numbers):
        wanted = f"an index of uint8 and {_LOOKED_UP} numbers of a byte"
        raise DefinitionError(f"te.lookup takes {wanted}, got {place.dtype} and {list(numbers)}", caller())
    return ir.cast(call("lookup16", place, *(ir.const(number % 256, "uint8") for number in numbers)), dtype)
