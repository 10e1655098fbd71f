"""Math intrinsics by name: an LLVM instruction, or polynomial code."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang import dtypes
from tensorlang.errors import TargetError
from tensorlang.target.llvm.arithmetic import (
    absolute,
    binary,
    cast,
    constant,
    intrinsic,
    is_nan,
    matched,
)
from tensorlang.target.llvm.lookup16 import lookup16
from tensorlang.target.llvm.machine import reinterpret
from tensorlang.target.llvm.mathematics import approximations, hyperbolic, plane, power, trigonometry
from tensorlang.target.llvm.mathematics.fused import narrow_fma
from tensorlang.target.llvm.mathematics.wide import WIDE, in_float64
from tensorlang.target.llvm.text import Function, Value

_Rule = Callable[[Function, list[Value]], Value]

_INSTRUCTIONS = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "fma": "fma",
    "copysign": "copysign",
}  # fmt: skip
"""Float functions that are one instruction on every target."""

_POLYNOMIALS: dict[str, Callable[..., Value]] = {
    "exp": approximations.exp,
    "exp2": approximations.exp2,
    "expm1": approximations.expm1,
    "log": approximations.log,
    "log2": approximations.log2,
    "log10": approximations.log10,
    "log1p": approximations.log1p,
    "tanh": approximations.tanh,
    "sigmoid": approximations.sigmoid,
    "erf": approximations.erf,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "atan": plane.atan,
    "atan2": plane.atan2,
    "asin": plane.asin,
    "acos": plane.acos,
    "hypot": plane.hypot,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "pow": power.power,
}
"""Functions of float32 and float64; where WIDE has one too, only of float64."""


def call(fn: Function, name: str, arguments: list[Value], dtype: str) -> Value:
    """Call intrinsic `name` of tensorlang.ir.intrinsics; the result has `dtype`."""
    if name == "lookup16":
        return lookup16(fn, *arguments)
    args = list(matched(fn, *arguments))
    if name in _OWN:
        return cast(fn, _OWN[name](fn, args), dtype)
    return _float_call(fn, name, args)


def _float_call(fn: Function, name: str, args: list[Value]) -> Value:
    first = args[0]
    if name in WIDE and first.dtype != "float64":
        return in_float64(fn, name, args)
    if dtypes.info(first.dtype).is_narrow_float:
        if name == "fma":
            return narrow_fma(fn, args)
        # Half precision is computed in float32 and rounded once.
        return cast(fn, _float_call(fn, name, [cast(fn, a, "float32") for a in args]), first.dtype)
    if name in _INSTRUCTIONS:
        return fn.call(intrinsic(_INSTRUCTIONS[name], first), args, first.dtype, first.lanes)
    if name == "rsqrt":
        root = fn.call(intrinsic("sqrt", first), args, first.dtype, first.lanes)
        return binary(fn, "div", constant(1.0, first), root)
    if name in _POLYNOMIALS:
        return _POLYNOMIALS[name](fn, *args)
    raise TargetError(f"target llvm has no intrinsic {name!r}; it has {', '.join(sorted(known()))}")


def known() -> frozenset[str]:
    """The intrinsics that this target computes."""
    return frozenset((*_INSTRUCTIONS, *_POLYNOMIALS, *WIDE, *_OWN, "rsqrt", "lookup16"))


def _isnan(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    return is_nan(fn, x) if dtypes.info(x.dtype).is_float else binary(fn, "ne", x, x)


def _isinf(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    if not dtypes.info(x.dtype).is_float:
        return binary(fn, "ne", x, x)
    size = cast(fn, absolute(fn, x), "float64" if x.dtype == "float64" else "float32")
    return binary(fn, "eq", size, constant(float("inf"), size))


def _isfinite(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    if not dtypes.info(x.dtype).is_float:
        return binary(fn, "eq", x, x)
    size = cast(fn, absolute(fn, x), "float64" if x.dtype == "float64" else "float32")
    return binary(fn, "lt", size, constant(float("inf"), size))


def _popcount(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    return fn.call(intrinsic("ctpop", x), [x], x.dtype, x.lanes)


def _clz(fn: Function, args: list[Value]) -> Value:
    x = args[0]
    return fn.call(intrinsic("ctlz", x), [x, Value("false", "bool")], x.dtype, x.lanes)


def _pattern(dtype: str) -> _Rule:
    """The same bits as another dtype: of a float its unsigned integer, for an empty name."""

    def rule(fn: Function, args: list[Value]) -> Value:
        (x,) = args
        return reinterpret(fn, x, dtype or dtypes.info(x.dtype).bits_dtype, x.lanes)

    return rule


_OWN: dict[str, _Rule] = {
    "abs": lambda fn, args: absolute(fn, args[0]),
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "popcount": _popcount,
    "clz": _clz,
    "bits_of": _pattern(""),
    **{f"{d.name}_of_bits": _pattern(d.name) for d in dtypes.TABLE.values() if d.is_float},
}
