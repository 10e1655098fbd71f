"""Angles and lengths in the plane as polynomial code of float64: atan, atan2, asin, acos, hypot."""

from __future__ import annotations

from tensorlang.target.llvm.mathematics.ieee import Exact, exact
from tensorlang.target.llvm.mathematics.pairs import Pair, chosen, ordered_sum, product, quotient, root, sum_of
from tensorlang.target.llvm.text import Function, Value

_ATAN = (
    0.01628357235648259, -0.0345685906686069, 0.045515165635903104, -0.052304374642516874, 0.05878926715756726,
    -0.066664246872465, 0.07692296363979952, -0.09090908753118594, 0.11111111105147764, -0.14285714285659748,
    0.19999999999999804, -0.3333333333333333,
)  # fmt: skip
"""(atan(x) / x - 1) / x**2 in powers of x**2 for |x| <= tan(pi / 8)."""
_ASIN = (
    0.02961201126495512, -0.01924167174674304, 0.019554513336123378, 0.0030448799094556773, 0.009319560794767446,
    0.009621842970100282, 0.011566459612121669, 0.01396378001220357, 0.017352816540325496, 0.02237215744350722,
    0.03038194447553234, 0.044642857142551895, 0.07500000000000118, 0.16666666666666666,
)  # fmt: skip
"""(asin(x) / x - 1) / x**2 in powers of x**2 for |x| <= 1/2."""
_TAN_EIGHTH, _TAN_THREE_EIGHTHS = 0.41421356237309503, 2.414213562373095
_QUARTER, _HALF, _WHOLE = (
    (0.7853981633974483, 3.061616997868383e-17),
    (1.5707963267948966, 6.123233995736766e-17),
    (3.141592653589793, 1.2246467991473532e-16),
)
"""pi / 4, pi / 2 and pi."""
_ZERO = (0.0, 0.0)
_ENDLESS = 2.0**60
"""Its angle is pi / 2, rounded."""
_OF_SUMS = ((2.0**1000, 2.0**-60), (2.0**-900, 2.0**200))
_OF_SQUARES = ((2.0**500, 2.0**-600), (2.0**-500, 2.0**600))
"""Above and below which sums and quotients, or squares, would leave the range of normal numbers, and what helps."""
_INFINITY = float("inf")


def atan(fn: Function, x: Value) -> Value:
    """The angle whose tangent is x."""
    m = exact(fn, x)
    angle = _angle(m, m.at_most(m.abs(x), _ENDLESS), m.value(1.0))
    return m.with_sign(_rounded(m, angle), x)


def atan2(fn: Function, y: Value, x: Value) -> Value:
    """The angle of the point (x, y)."""
    m = exact(fn, x)
    up, across = m.abs(y), m.abs(x)
    ends = [m.compare("oeq", v, _INFINITY) for v in (up, across)]
    either = m.either(*ends)
    up, across = (m.select(either, m.select(end, 1.0, 0.0), v) for end, v in zip(ends, (up, across), strict=True))
    scale = _scale(m, up, across, _OF_SUMS)
    up, across = m.mul(up, scale), m.mul(across, scale)
    nowhere = m.both(m.compare("oeq", up, 0.0), m.compare("oeq", across, 0.0))
    angle = _angle(m, up, m.select(nowhere, 1.0, across))
    bits = m.bits(x)
    left = fn.value(f"icmp slt {bits.type} {bits.text}, {m.integer('and', bits, 0).text}", "bool", m.lanes)
    turned = ordered_sum(m, m.select(left, _WHOLE[0], 0.0), m.select(left, m.neg(angle[0]), angle[0]))
    low = m.add(m.select(left, _WHOLE[1], 0.0), m.select(left, m.neg(angle[1]), angle[1]))
    result = m.with_sign(m.add(turned[0], m.add(turned[1], low)), y)
    unknown = fn.value(f"fcmp uno {x.typed}, {y.text}", "bool", m.lanes)
    return m.select(unknown, float("nan"), result)


def asin(fn: Function, x: Value) -> Value:
    """The angle whose sine is x."""
    m = exact(fn, x)
    steep, s, tail = _half_angle(m, m.abs(x))
    factor = m.select(steep, -2.0, 1.0)
    base = chosen(m, steep, _HALF, _ZERO)
    high, low = ordered_sum(m, base[0], m.mul(s, factor))
    return m.with_sign(m.add(high, m.add(low, m.fma(tail, factor, base[1]))), x)


def acos(fn: Function, x: Value) -> Value:
    """The angle whose cosine is x."""
    m = exact(fn, x)
    steep, s, tail = _half_angle(m, m.abs(x))
    left = m.compare("olt", x, 0.0)
    factor = m.select(left, m.select(steep, -2.0, 1.0), m.select(steep, 2.0, -1.0))
    base = chosen(m, steep, chosen(m, left, _WHOLE, _ZERO), _HALF)
    high, low = ordered_sum(m, base[0], m.mul(s, factor))
    return m.add(high, m.add(low, m.fma(tail, factor, base[1])))


def hypot(fn: Function, x: Value, y: Value) -> Value:
    """The length of (x, y); infinite if one of them is, even beside NaN."""
    m = exact(fn, x)
    scale = _scale(m, m.abs(x), m.abs(y), _OF_SQUARES)
    a, b = (product(m, side, side) for side in (m.mul(x, scale), m.mul(y, scale)))
    high, low = sum_of(m, a[0], b[0])
    length, rest = root(m, (high, m.add(low, m.add(a[1], b[1]))))
    infinite = m.either(*(m.compare("oeq", m.abs(v), _INFINITY) for v in (x, y)))
    return m.select(infinite, _INFINITY, m.div(m.add(length, rest), scale))


def _scale(m: Exact, a: Value, b: Value, limits: tuple[tuple[float, float], tuple[float, float]]) -> Value:
    """A power of two that takes the greater of two magnitudes away from the ends of the range."""
    greater = m.select(m.compare("ogt", a, b), a, b)
    (above, down), (below, up) = limits
    return m.select(m.compare("olt", greater, below), up, m.select(m.compare("ogt", greater, above), down, 1.0))


def _angle(m: Exact, up: Value, across: Value) -> Pair:
    """The angle of a point of the first quadrant: from the nearest of 0, pi / 4 and pi / 2 on."""
    flat = m.compare("ole", up, m.mul(across, _TAN_EIGHTH))
    steep = m.compare("oge", up, m.mul(across, _TAN_THREE_EIGHTHS))
    zero = m.value(0.0)
    above = chosen(m, flat, (up, zero), chosen(m, steep, (m.neg(across), zero), sum_of(m, up, m.neg(across))))
    below = chosen(m, flat, (across, zero), chosen(m, steep, (up, zero), sum_of(m, up, across)))
    base = chosen(m, flat, _ZERO, chosen(m, steep, _HALF, _QUARTER))
    t, rest = quotient(m, above, below)
    square = m.mul(t, t)
    tail = m.fma(m.mul(t, square), m.polynomial(square, _ATAN), rest)
    high, low = ordered_sum(m, base[0], t)
    return high, m.add(low, m.add(base[1], tail))


def _half_angle(m: Exact, x: Value) -> tuple[Value, Value, Value]:
    """Whether x is above 1/2, and s and a rest whose sum is asin(x), or else asin(sqrt((1 - x) / 2)): acos(x) / 2."""
    steep = m.compare("ogt", x, 0.5)
    square = m.select(steep, m.mul(m.sub(1.0, x), 0.5), m.mul(x, x))
    s, low = chosen(m, steep, root(m, (square, m.value(0.0))), (x, 0.0))
    inside = m.compare("ole", x, 1.0)
    s = m.select(inside, s, float("nan"))
    return steep, s, m.fma(m.mul(s, square), m.polynomial(square, _ASIN), low)


def _rounded(m: Exact, x: Pair) -> Value:
    return m.add(*x)
