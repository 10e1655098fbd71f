"""Casts of floats between two limits, as in the way from a sum back to a byte: rounding is the conversion itself."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.ir.clamped import Clamped
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import binary, cast, constant, intrinsic, is_nan, select
from tensorlang.target.llvm.saturating import saturated, saturates
from tensorlang.target.llvm.text import Function, Value


def cast_clamped(fn: Function, found: Clamped, inner: Value, dtype: str) -> Value:
    """The integer of a clamped float, whose `inner` has a value; 0 for NaN, as in all casts."""
    if saturates(fn, found, dtype, inner.lanes):
        return saturated(fn, found, inner, dtype)
    low, high = (constant(limit - found.zero, inner) for limit in (found.low, found.high))
    if found.low == 0:  # a comparison with NaN does not hold, so that it takes the limit
        inside = select(fn, binary(fn, "gt", inner, low), inner, low)
        inside = select(fn, binary(fn, "lt", inside, high), inside, high)
    else:
        inside = binary(fn, "min", binary(fn, "max", inner, low), high)
    made = _to_integer(fn, inside, found.rounds)
    if found.zero:
        made = binary(fn, "add", made, constant(int(found.zero), made))
    if found.low != 0:
        made = select(fn, is_nan(fn, inner), constant(0, made), made)
    return cast(fn, made, dtype)


def _to_integer(fn: Function, a: Value, rounds: bool) -> Value:
    """A float that an integer of 32 bits holds, rounded to the nearest, halves to even, or towards zero."""
    goal = Value("", "int32", a.lanes)
    if rounds and target_cpu(fn.target).architecture == "x86_64" and a.lanes:
        bits = dtypes.info(a.dtype).bits
        return fn.call(f"llvm.lrint.v{a.lanes}i32.v{a.lanes}f{bits}", [a], "int32", a.lanes)
    if rounds:
        a = fn.call(intrinsic("rint", a), [a], a.dtype, a.lanes)
    return fn.value(f"fptosi {a.typed} to {goal.type}", "int32", a.lanes)
