"""Sine and cosine as polynomial code of float32 and float64, the same for scalars and vectors.

The argument is reduced by multiples of pi / 2 in three parts. Where it is too large for that (beyond 32768 in float32,
2**30 in float64) the C library is called; a vector does so only when one of its lanes needs it.
"""

from __future__ import annotations

from tensorlang.target.llvm.coefficients import CIRCULAR
from tensorlang.target.llvm.ieee import Exact, exact, with_rare
from tensorlang.target.llvm.libm import call_each_lane
from tensorlang.target.llvm.text import Function, Value

_TWO_OVER_PI = 0.6366197723675814


def sin(fn: Function, x: Value) -> Value:
    """The sine of x radians."""
    m = exact(fn, x)
    quadrant, sine, cosine = _of_rest(m, m.abs(x))
    return _or_large(m, "sin", x, _signed(m, quadrant, sine, cosine, m.bits(x)))


def cos(fn: Function, x: Value) -> Value:
    """The cosine of x radians."""
    m = exact(fn, x)
    quadrant, sine, cosine = _of_rest(m, m.abs(x))
    return _or_large(m, "cos", x, _signed(m, m.integer("add", quadrant, 1), sine, cosine, None))


def _of_rest(m: Exact, x: Value) -> tuple[Value, Value, Value]:
    """The nearest multiple of pi / 2, and the sine and cosine of what is left."""
    table = CIRCULAR[x.dtype]
    power, shifted = m.rounded(x, _TWO_OVER_PI)
    rest = x
    for part in table.half_pi:
        rest = m.fma(power, -part, rest)
    square = m.mul(rest, rest)
    sine = m.fma(m.mul(rest, square), m.polynomial(square, table.sin), rest)
    half = m.mul(square, 0.5)
    near = m.sub(1.0, half)
    lost = m.sub(m.sub(1.0, near), half)
    cosine = m.add(near, m.fma(m.mul(square, square), m.polynomial(square, table.cos), lost))
    return m.whole(shifted), sine, cosine


def _signed(m: Exact, quadrant: Value, sine: Value, cosine: Value, sign: Value | None) -> Value:
    """Sine or cosine as the quadrant wants it, negated in every second pair and where `sign` has its bit set."""
    width = m.format.width
    odd = m.fn.value(f"trunc {quadrant.typed} to {Value('', 'bool', m.lanes).type}", "bool", m.lanes)
    flip = m.integer("shl", quadrant, width - 2)
    if sign is not None:
        flip = m.integer("xor", flip, sign)
    flip = m.integer("and", flip, -(1 << (width - 1)))
    chosen = m.bits(m.select(odd, cosine, sine))
    return m.floats(m.integer("xor", chosen, flip))


def _or_large(m: Exact, name: str, x: Value, usual: Value) -> Value:
    magnitude = m.abs(x)
    large = m.both(m.compare("ogt", magnitude, CIRCULAR[x.dtype].most), m.compare("olt", magnitude, float("inf")))
    return with_rare(m.fn, large, usual, lambda: call_each_lane(m.fn, name, [x]))
