"""The scalar vocabulary of classic te's `tvm.tir`: the functions of te, and constructors of expression nodes."""

from __future__ import annotations

from typing import Any

from tensorlang.ir.expr import Const, Expr, ExprLike, Var
from tensorlang.ir.expr import Expr as PrimExpr
from tensorlang.names import listing, lookup
from tensorlang.te import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    ceildiv,
    clz,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    max,
    max_value,
    min,
    min_value,
    nearbyint,
    popcount,
    pow,
    power,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    sum,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tensorlang.te.axis import Axis as IterVar
from tensorlang.te.domain import size_var
from tensorlang.te.machine import const
from tensorlang.te.math import cast, select, shift_left, shift_right
from tensorlang.te.math import const as scalar_const
from tensorlang.te.packed import call_packed

__all__ = [
    "Cast",
    "FloatImm",
    "IntImm",
    "IterVar",
    "PrimExpr",
    "Select",
    "SizeVar",
    "Var",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "call_packed",
    "ceil",
    "ceildiv",
    "clz",
    "const",
    "copysign",
    "cos",
    "cosh",
    "div",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "nearbyint",
    "popcount",
    "pow",
    "power",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]

Select = select
SizeVar = size_var


class _Literal(type):
    """The class of IntImm and FloatImm: calling one makes a constant, and constants of its kind are its instances."""

    kinds: tuple[type, ...]

    def __call__(cls, dtype: str, value: Any) -> Const:
        return scalar_const(value, dtype)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Const) and isinstance(instance.value, cls.kinds)


class IntImm(metaclass=_Literal):
    """`IntImm(dtype, value)` is an integer constant."""

    kinds = (int,)


class FloatImm(metaclass=_Literal):
    """`FloatImm(dtype, value)` is a floating-point constant."""

    kinds = (float,)


def Cast(dtype: str, value: ExprLike) -> Expr:
    """Return `value` converted to `dtype`."""
    return cast(value, dtype)


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
