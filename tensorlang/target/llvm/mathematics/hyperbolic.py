"""sinh, cosh and the inverses of hyperbolic functions as polynomial code of float64."""

from __future__ import annotations

from tensorlang.target.llvm.mathematics.approximations import half_exp, log1p_of_sum, log_of_double
from tensorlang.target.llvm.mathematics.ieee import Exact, exact
from tensorlang.target.llvm.mathematics.pairs import Pair, ordered_sum, product, quotient, root, sum_of
from tensorlang.target.llvm.text import Function, Value

_SINH = (
    7.746178593018827e-13, 1.6057679623801638e-10, 2.5052117695907823e-08, 2.7557319191381816e-06,
    0.00019841269841324198, 0.008333333333333299, 0.16666666666666666,
)  # fmt: skip
"""(sinh(x) / x - 1) / x**2 in powers of x**2 for |x| <= 1."""
_LARGE = 2.0**28
"""Beside its square, 1 counts for nothing."""
_INFINITY = float("inf")


def sinh(fn: Function, x: Value) -> Value:
    """The hyperbolic sine: a polynomial up to 1, through exp above."""
    m = exact(fn, x)
    magnitude, square = m.abs(x), m.mul(x, x)
    small = m.fma(m.mul(magnitude, square), m.polynomial(square, _SINH), magnitude)
    high, low = half_exp(m, magnitude)
    large = m.sub(high, m.sub(m.div(0.25, high), low))
    return m.with_sign(m.select(m.compare("ole", magnitude, 1.0), small, large), x)


def cosh(fn: Function, x: Value) -> Value:
    """The hyperbolic cosine."""
    m = exact(fn, x)
    high, low = half_exp(m, m.abs(x))
    return m.add(high, m.add(m.div(0.25, high), low))


def asinh(fn: Function, x: Value) -> Value:
    """log(x + sqrt(x**2 + 1))."""
    m = exact(fn, x)
    magnitude = m.abs(x)
    usual = m.at_most(magnitude, _LARGE)
    square, lost = product(m, usual, usual)
    above, rest = sum_of(m, 1.0, square)
    high, low = root(m, (above, m.add(rest, lost)))
    beyond, more = ordered_sum(m, high, -1.0)
    total, last = ordered_sum(m, usual, beyond)
    return m.with_sign(_logarithm(m, magnitude, (total, m.add(last, m.add(more, low)))), x)


def acosh(fn: Function, x: Value) -> Value:
    """log(x + sqrt(x**2 - 1)); NaN below 1."""
    m = exact(fn, x)
    usual = m.at_most(x, _LARGE)
    square, lost = product(m, usual, usual)
    above, rest = ordered_sum(m, square, -1.0)
    high, low = root(m, (above, m.add(rest, lost)))
    beyond, more = ordered_sum(m, usual, -1.0)
    total, last = ordered_sum(m, high, beyond)
    y = _logarithm(m, x, (total, m.add(last, m.add(more, low))))
    return m.select(m.compare("olt", x, 1.0), float("nan"), y)


def atanh(fn: Function, x: Value) -> Value:
    """log((1 + x) / (1 - x)) / 2; NaN beyond 1."""
    m = exact(fn, x)
    magnitude = m.abs(x)
    ratio = quotient(m, (m.add(magnitude, magnitude), m.value(0.0)), sum_of(m, 1.0, m.neg(magnitude)))
    end = m.select(m.compare("oeq", magnitude, 1.0), _INFINITY, float("nan"))
    y = m.select(m.compare("olt", magnitude, 1.0), m.mul(log1p_of_sum(m, ratio), 0.5), end)
    return m.with_sign(y, x)


def _logarithm(m: Exact, x: Value, usual: Pair) -> Value:
    """log(1 + a sum), or log(2 x) where x is so large that this is the same."""
    y = m.select(m.compare("ogt", x, _LARGE), log_of_double(m, x), log1p_of_sum(m, usual))
    return m.select(m.compare("olt", x, _INFINITY), y, x)
