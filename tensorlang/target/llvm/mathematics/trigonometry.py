"""Sine and cosine, and in float64 the tangent, as polynomial code, the same for scalars and vectors.

The argument is reduced by multiples of pi / 2 in three parts. Where it is too large for that (beyond 32768 in float32,
2**30 in float64) the C library is called; a vector does so only when one of its lanes needs it.
"""

from __future__ import annotations

from tensorlang.target.llvm.mathematics.coefficients import CIRCULAR
from tensorlang.target.llvm.mathematics.ieee import Exact, exact, with_rare
from tensorlang.target.llvm.mathematics.libm import call_each_lane
from tensorlang.target.llvm.mathematics.pairs import Pair, chosen, ordered_sum, product, quotient, sum_of
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


def tan(fn: Function, x: Value) -> Value:
    """The tangent of x radians, in float64."""
    m = exact(fn, x)
    quadrant, sine, cosine = _parts_of_rest(m, m.abs(x))
    is_odd = fn.value(f"trunc {quadrant.typed} to {Value('', 'bool', m.lanes).type}", "bool", m.lanes)
    above = chosen(m, is_odd, (m.neg(cosine[0]), m.neg(cosine[1])), sine)
    magnitude = m.add(*quotient(m, above, chosen(m, is_odd, sine, cosine)))
    sign = m.integer("and", m.bits(x), -(1 << (m.format.width - 1)))
    return _or_large(m, "tan", x, m.floats(m.integer("xor", m.bits(magnitude), sign)))


def _parts_of_rest(m: Exact, x: Value) -> tuple[Value, Pair, Pair]:
    """The nearest multiple of pi / 2, and the sine and cosine of what is left, each as a sum."""
    table = CIRCULAR[x.dtype]
    power, shifted = m.rounded(x, _TWO_OVER_PI)
    first, second, third = table.half_pi
    whole, lost = product(m, power, first)
    near, rest = sum_of(m, m.sub(x, whole), m.neg(lost))
    small, lost = product(m, power, second)
    r, more = sum_of(m, near, m.neg(small))
    e = m.fma(power, -third, m.sub(m.add(more, rest), lost))
    square = m.mul(r, r)
    half = m.mul(square, 0.5)
    base, cut = ordered_sum(m, 1.0, m.neg(half))
    sine = ordered_sum(m, r, m.fma(m.mul(r, square), m.polynomial(square, table.sin), m.mul(e, base)))
    tail = m.fma(m.mul(square, square), m.polynomial(square, table.cos), m.fma(m.neg(r), e, cut))
    return m.whole(shifted), sine, ordered_sum(m, base, tail)


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
