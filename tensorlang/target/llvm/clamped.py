"""Casts of floats between two limits, as in the way from a sum back to a byte: rounding is the conversion itself."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr
from tensorlang.target.detect import target_cpu
from tensorlang.target.llvm.arithmetic import binary, cast, constant, intrinsic, is_nan, select
from tensorlang.target.llvm.text import Function, Value

_LARGEST = {"float32": 2.0**31 - 128, "float64": 2.0**31 - 1}
"""The largest number of a dtype that 32-bit integers have: limits above are rounded to 2^31."""
_EXACT = {"float32": 2.0**24, "float64": 2.0**31}
"""Whole numbers up to here have exact neighbours."""
_DTYPES = ("int8", "uint8", "int16", "uint16", "int32")


@dataclass(frozen=True, slots=True)
class Clamped:
    """`inner`, rounded to a whole number if it `rounds`, plus the whole number `zero`, between `low` and `high`."""

    inner: Expr
    low: float
    high: float
    rounds: bool = False
    zero: float = 0.0


def clamped(expr: Cast) -> Clamped | None:
    """What is cast, if it is a float between two limits that the integer of at most 32 bits has; else None."""
    match expr.value:
        case Binary("max" | "min" as outer, Binary("max" | "min" as inner, a, Const(one)), Const(other), dtype):
            if outer == inner or expr.dtype not in _DTYPES or dtype not in _LARGEST:
                return None
            least, most = dtypes.limits(expr.dtype)
            low, high = (other, one) if outer == "max" else (one, other)
            if not all(least <= limit <= min(most, _LARGEST[dtype]) for limit in (low, high)) or low > high:
                return None
            return _rounded(Clamped(a, float(low), float(high)))
    return None


def _rounded(found: Clamped) -> Clamped:
    """The same with rounding told apart, if it may as well follow the limits."""
    value, zero = found.inner, 0.0
    match value:
        case Binary("add", Call() as value, Const(number)):
            zero = float(number)
    match value:
        case Call("round", (inner,), dtype) if dtype in _EXACT:
            whole = all(limit.is_integer() for limit in (found.low, found.high, zero))
            if whole and max(abs(found.low), abs(found.high)) + abs(zero) <= _EXACT[dtype]:
                return Clamped(inner, found.low, found.high, True, zero)
    return found


def cast_clamped(fn: Function, found: Clamped, inner: Value, dtype: str) -> Value:
    """The integer of a clamped float, whose `inner` has a value; 0 for NaN, as in all casts."""
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
