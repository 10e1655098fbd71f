"""Narrow floats that are held by their bits, to float32 and back, in integers.

The hardware's own instructions would flush subnormal bfloat16 to zero, and few CPUs know floats of 8 bits.
"""

from __future__ import annotations

from tensorlang.dataclass import dataclass
from tensorlang.target.llvm.text import Function, Value, vector_type


@dataclass(frozen=True, slots=True)
class _Format:
    """Bits of the fraction, what is added to exponents, and the code above the largest number: infinity or NaN."""

    fraction: int
    bias: int
    beyond: int

    @property
    def spare(self) -> int:
        """Bits of the fraction that a float32 has more."""
        return 23 - self.fraction


_FORMATS = {"float8_e4m3fn": _Format(3, 7, 0x7F), "float8_e5m2": _Format(2, 15, 0x7C)}
_MAGNITUDE, _FRACTION, _ONE = 0x7FFFFFFF, 0x7FFFFF, 0x800000
_INFINITY = 0x7F800000


def to_float32(fn: Function, a: Value) -> Value:
    """The float32 that a bfloat16 or a float of 8 bits is."""
    if a.dtype == "bfloat16":
        return _as_float(fn, _apply(fn, "shl", _extended(fn, a), 16))
    found, bits = _FORMATS[a.dtype], _extended(fn, a)
    size = _apply(fn, "and", bits, 0x7F)
    normal = _apply(fn, "add", _apply(fn, "shl", size, found.spare), (127 - found.bias) << 23)
    # Subnormal numbers as whole numbers of their unit: a product would meet subnormal float32, slow or flushed to zero.
    whole = fn.value(f"uitofp {size.typed} to {vector_type('float', a.lanes)}", "float32", a.lanes)
    unit = f"0x{(1023 + 1 - found.bias - found.fraction) << 52:016X}"
    scaled = fn.value(f"fmul {whole.type} {whole.text}, {_number(unit, whole)}", "float32", a.lanes)
    least = _test(fn, "ult", size, 1 << found.fraction)
    made = _select(fn, least, _as_bits(fn, scaled), normal)
    if found.beyond == 0x7F:
        made = _select(fn, _test(fn, "eq", size, found.beyond), _like(made, _INFINITY | 0x7FFFFF), made)
    else:
        full = _apply(fn, "or", normal, _INFINITY)
        made = _select(fn, _test(fn, "uge", size, found.beyond), full, made)
    sign = _apply(fn, "shl", _apply(fn, "and", bits, 0x80), 24)
    return _as_float(fn, _apply(fn, "or", made, sign))


def from_float32(fn: Function, a: Value, dtype: str) -> Value:
    """A float32 rounded to the nearest bfloat16 or float of 8 bits, ties to even."""
    bits = _as_bits(fn, a)
    size = _apply(fn, "and", bits, _MAGNITUDE)
    if dtype == "bfloat16":
        high = _apply(fn, "lshr", bits, 16)
        up = _apply(fn, "add", _apply(fn, "add", bits, 0x7FFF), _apply(fn, "and", high, 1))
        nan = _test(fn, "ugt", size, _INFINITY)
        made = _select(fn, nan, _apply(fn, "or", high, 0x40), _apply(fn, "lshr", up, 16))
        return fn.value(f"trunc {made.typed} to {vector_type('i16', a.lanes)}", dtype, a.lanes)
    found = _FORMATS[dtype]
    nearest = _minimum(fn, _nearest(fn, size, found), found.beyond)
    if found.beyond != 0x7F:
        nearest = _select(fn, _test(fn, "ugt", size, _INFINITY), _like(nearest, 0x7E), nearest)
    made = _apply(fn, "or", nearest, _apply(fn, "and", _apply(fn, "lshr", bits, 24), 0x80))
    return fn.value(f"trunc {made.typed} to {vector_type('i8', a.lanes)}", dtype, a.lanes)


def _nearest(fn: Function, size: Value, found: _Format) -> Value:
    """The code of a magnitude, of which the bits below the last one are rounded away."""
    least = 128 - found.bias  # the exponent, as a float32 has it, of the least normal number
    exponent = _apply(fn, "lshr", size, 23)
    small = _test(fn, "ult", exponent, least)
    whole = _apply(fn, "or", _apply(fn, "and", size, _FRACTION), _ONE)
    value = _select(fn, small, whole, _apply(fn, "sub", size, (127 - found.bias) << 23))
    far = _minimum(fn, _apply(fn, "sub", _like(size, found.spare + least), exponent), 31)
    shift = _select(fn, small, far, _like(size, found.spare))
    half = _apply(fn, "sub", _apply(fn, "shl", _like(size, 1), _apply(fn, "sub", shift, 1)), 1)
    odd = _apply(fn, "and", _apply(fn, "lshr", value, shift), 1)
    return _apply(fn, "lshr", _apply(fn, "add", _apply(fn, "add", value, half), odd), shift)


def _extended(fn: Function, a: Value) -> Value:
    return fn.value(f"zext {a.typed} to {vector_type('i32', a.lanes)}", "uint32", a.lanes)


def _as_bits(fn: Function, a: Value) -> Value:
    return fn.value(f"bitcast {a.typed} to {vector_type('i32', a.lanes)}", "uint32", a.lanes)


def _as_float(fn: Function, bits: Value) -> Value:
    return fn.value(f"bitcast {bits.typed} to {vector_type('float', bits.lanes)}", "float32", bits.lanes)


def _number(text: str, like: Value) -> str:
    element = "float" if like.dtype == "float32" else "i32"
    return f"splat ({element} {text})" if like.lanes else text


def _like(value: Value, number: int) -> Value:
    return Value(_number(str(number), value), value.dtype, value.lanes)


def _apply(fn: Function, instruction: str, a: Value, b: Value | int) -> Value:
    other = b if isinstance(b, Value) else _like(a, b)
    return fn.value(f"{instruction} {a.type} {a.text}, {other.text}", a.dtype, a.lanes)


def _test(fn: Function, word: str, a: Value, number: int) -> Value:
    return fn.value(f"icmp {word} {a.type} {a.text}, {_like(a, number).text}", "bool", a.lanes)


def _select(fn: Function, cond: Value, then: Value, orelse: Value) -> Value:
    return fn.value(f"select {cond.typed}, {then.typed}, {orelse.typed}", then.dtype, then.lanes)


def _minimum(fn: Function, a: Value, number: int) -> Value:
    return _select(fn, _test(fn, "ult", a, number), a, _like(a, number))
