"""x to the power y as polynomial code: exp2(y * log2(|x|)), with the logarithm in two float64 for float64.

float32 is computed in float64, whose plain logarithm is exact enough for it.
"""

from __future__ import annotations

from tensorlang.target.llvm.mathematics.approximations import exponent_and_mantissa, two_to_the
from tensorlang.target.llvm.mathematics.coefficients import EXPONENTIAL
from tensorlang.target.llvm.mathematics.ieee import Exact, exact
from tensorlang.target.llvm.text import Function, Value

_INFINITY = float("inf")
_SHORT_LOG2 = (
    0.2909596069283036, 0.31927346103975407, 0.412226534403793, 0.5770777510704718, 0.9617966948448857,
    2.8853900817774116,
)  # fmt: skip
"""log2((1 + s) / (1 - s)) / s in powers of s**2, to 2**-42."""
_SHORT_EXP2 = (
    0.00015477210976042846, 0.0013400417915010133, 0.009618001095112884, 0.055503274258351325, 0.24022651364884454,
    0.693147206413525,
)  # fmt: skip
"""(2**r - 1) / r, to 2**-29."""
_LONG_LOG2 = (
    0.16769989340873004, 0.14896065231718814, 0.1698816574910127, 0.1923544377210559, 0.22195318201419154,
    0.2623081880120662, 0.32059889798455, 0.41219858311109625, 0.5770780163555854,
)  # fmt: skip
"""The same as `_SHORT_LOG2` from s**4 on; the two terms before need two floats each."""
_FIRST = (2.8853900817779268, 4.0710547481862066e-17)
_SECOND = (0.9617966939259756, 5.0577616648125907e-17)

_Double = tuple[Value, Value]
"""A number as the sum of a float64 and a much smaller one."""


def power_of_float32(fn: Function, x: Value, y: Value) -> Value:
    """The power of float32 numbers that are given as float64; the result wants to be rounded to float32."""
    m = exact(fn, x)
    exponent, s, _, _ = _quotient(m, m.abs(x))
    logarithm = m.fma(s, m.polynomial(m.mul(s, s), _SHORT_LOG2), exponent)
    product = _bounded(m, m.mul(_of_limits(m, x, logarithm), y))
    whole, shifted = m.rounded(product, 1.0)
    return _signed(m, x, y, two_to_the(m, whole, shifted, m.sub(product, whole), _SHORT_EXP2))


def power(fn: Function, x: Value, y: Value) -> Value:
    """The power of float64 numbers."""
    m = exact(fn, x)
    high, low = _logarithm(m, m.abs(x))
    high = _of_limits(m, x, high)
    product = m.mul(high, y)
    lost = m.fma(low, y, m.fma(high, y, m.neg(product)))
    bounded = _bounded(m, product)
    whole, shifted = m.rounded(bounded, 1.0)
    # Where the product was out of bounds its low part means nothing, and may be NaN.
    inside = m.compare("oeq", bounded, product)
    inside = m.both(inside, m.compare("olt", m.abs(product), _INFINITY))
    rest = m.add(m.sub(bounded, whole), m.select(inside, lost, 0.0))
    return _signed(m, x, y, two_to_the(m, whole, shifted, rest, EXPONENTIAL["float64"].exp2))


def _quotient(m: Exact, x: Value) -> tuple[Value, Value, Value, Value]:
    """e, s, 2 + f and 1 / (2 + f) for x = 2**e * (1 + f) with s = f / (2 + f)."""
    exponent, mantissa = exponent_and_mantissa(m, x)
    f = m.sub(mantissa, 1.0)
    inverse = m.div(1.0, m.add(f, 2.0))
    return exponent, m.mul(f, inverse), f, inverse


def _logarithm(m: Exact, x: Value) -> _Double:
    """log2 of a positive number to about 2**-65 of its size."""
    exponent, s, f, inverse = _quotient(m, x)
    below = m.add(f, 2.0)
    lost = m.sub(f, m.sub(below, 2.0))
    s_low = m.mul(m.fma(m.neg(s), lost, m.fma(m.neg(s), below, f)), inverse)
    square = m.mul(s, s)
    square_low = m.fma(m.add(s, s), s_low, m.fma(s, s, m.neg(square)))
    rest = m.polynomial(square, _LONG_LOG2)
    second = _sum(m, _SECOND, _product(m, (square, square_low), (rest, m.value(0.0))))
    first = _sum(m, _FIRST, _product(m, (square, square_low), second))
    high, low = _product(m, (s, s_low), first)
    total = m.add(exponent, high)
    return total, m.add(m.add(m.sub(exponent, total), high), low)


def _product(m: Exact, a: _Double, b: _Double) -> _Double:
    high = m.mul(a[0], b[0])
    return high, m.fma(a[1], b[0], m.fma(a[0], b[1], m.fma(a[0], b[0], m.neg(high))))


def _sum(m: Exact, constant: tuple[float, float], b: _Double) -> _Double:
    """A constant and something smaller."""
    high = m.add(b[0], constant[0])
    return high, m.add(m.add(m.sub(constant[0], high), b[0]), m.add(b[1], constant[1]))


def _of_limits(m: Exact, x: Value, logarithm: Value) -> Value:
    """The logarithm of |x|, also where x is 0, infinite or NaN."""
    magnitude = m.abs(x)
    known = m.select(m.compare("olt", magnitude, _INFINITY), logarithm, magnitude)
    return m.select(m.compare("oeq", magnitude, 0.0), -_INFINITY, known)


def _bounded(m: Exact, product: Value) -> Value:
    table = EXPONENTIAL["float64"]
    return m.at_least(m.at_most(product, table.exp2_most), table.exp2_least)


def _signed(m: Exact, x: Value, y: Value, magnitude: Value) -> Value:
    """|x| to the power y with the sign that x and y give it, and the cases in which an operand does not count."""
    whole = m.compare("oeq", m.trunc(y), y)
    half = m.mul(y, 0.5)
    odd = m.both(whole, m.compare("une", m.trunc(half), half))
    signed = m.select(odd, m.with_sign(magnitude, x), magnitude)
    finite = m.compare("ogt", x, -_INFINITY)
    undefined = m.both(m.both(m.compare("olt", x, 0.0), finite), m.compare("one", m.trunc(y), y))
    result = m.select(undefined, float("nan"), signed)
    one = m.either(m.compare("oeq", y, 0.0), m.compare("oeq", x, 1.0))
    endless = m.both(m.compare("oeq", x, -1.0), m.compare("oeq", m.abs(y), _INFINITY))
    return m.select(m.either(one, endless), 1.0, result)
