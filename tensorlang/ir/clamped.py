"""Casts of floats between two limits, as in the way from a sum back to a byte, read from an expression."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr

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
