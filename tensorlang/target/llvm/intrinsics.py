"""Math intrinsics by name: an LLVM instruction, a polynomial, or libm lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.target.llvm import approximations
from tensorlang.target.llvm.arithmetic import (
    absolute,
    binary,
    cast,
    constant,
    extract,
    intrinsic,
    is_nan,
    matched,
)
from tensorlang.target.llvm.text import Function, Value

_Rule = Callable[[Function, list[Value]], Value]

_INSTRUCTIONS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "fma": "fma",
    "copysign": "copysign",
}  # fmt: skip
"""Float functions that are one instruction on every target."""

_POLYNOMIALS: dict[str, Callable[[Function, Value], Value]] = {
    "exp": approximations.exp,
    "log": approximations.log,
    "tanh": approximations.tanh,
    "erf": approximations.erf,
}

_LIBM = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "erf", "sin", "cos", "tan", "asin", "acos",
    "atan", "atan2", "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "hypot",
)  # fmt: skip


def call(fn: Function, name: str, arguments: list[Value], dtype: str) -> Value:
    """Call intrinsic `name` of tensorlang.ir.intrinsics; the result has `dtype`."""
    args = list(matched(fn, *arguments))
    if name in _OWN:
        return cast(fn, _OWN[name](fn, args), dtype)
    return _float_call(fn, name, args)


def _float_call(fn: Function, name: str, args: list[Value]) -> Value:
    first = args[0]
    if dtypes.info(first.dtype).bits == 16:
        # Half precision is computed in float32 and rounded once.
        return cast(fn, _float_call(fn, name, [cast(fn, a, "float32") for a in args]), first.dtype)
    if name in _INSTRUCTIONS:
        return fn.call(intrinsic(_INSTRUCTIONS[name], first), args, first.dtype, first.lanes)
    if name == "sigmoid":
        return _sigmoid(fn, first)
    if name == "rsqrt":
        root = fn.call(intrinsic("sqrt", first), args, first.dtype, first.lanes)
        return binary(fn, "div", constant(1.0, first), root)
    if name in _POLYNOMIALS and first.dtype == "float32":
        return _POLYNOMIALS[name](fn, first)
    if name not in _LIBM:
        raise TargetError(f"target llvm has no intrinsic {name!r}; it has {', '.join(sorted(known()))}")
    return _libm(fn, name, args)


def known() -> frozenset[str]:
    """The intrinsics that this target computes."""
    return frozenset((*_INSTRUCTIONS, *_POLYNOMIALS, *_LIBM, *_OWN, "sigmoid", "rsqrt"))


def _libm(fn: Function, name: str, args: list[Value]) -> Value:
    """Call the C library once per lane."""
    dtype, lanes = args[0].dtype, args[0].lanes
    symbol = f"{name}f" if dtype == "float32" else name
    if not lanes:
        return fn.call(symbol, args, dtype)
    result = Value("poison", dtype, lanes)
    for lane in range(lanes):
        one = fn.call(symbol, [extract(fn, a, lane) for a in args], dtype)
        result = fn.value(f"insertelement {result.typed}, {one.typed}, i64 {lane}", dtype, lanes)
    return result


def _sigmoid(fn: Function, x: Value) -> Value:
    if x.dtype == "float32":
        return approximations.sigmoid(fn, x)
    return approximations.logistic(fn, x, lambda y: _libm(fn, "exp", [y]))


def _isnan(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    return is_nan(fn, x) if dtypes.info(x.dtype).is_float else binary(fn, "ne", x, x)


def _isinf(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    if not dtypes.info(x.dtype).is_float:
        return binary(fn, "ne", x, x)
    return binary(fn, "eq", absolute(fn, x), constant(float("inf"), x))


def _isfinite(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    if not dtypes.info(x.dtype).is_float:
        return binary(fn, "eq", x, x)
    return binary(fn, "lt", absolute(fn, x), constant(float("inf"), x))


def _popcount(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    return fn.call(intrinsic("ctpop", x), [x], x.dtype, x.lanes)


def _clz(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    return fn.call(intrinsic("ctlz", x), [x, Value("false", "bool")], x.dtype, x.lanes)


_OWN: dict[str, _Rule] = {
    "abs": lambda fn, args: absolute(fn, args[0]),
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "popcount": _popcount,
    "clz": _clz,
}
