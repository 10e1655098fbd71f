"""Exponentials, logarithms and their kin as polynomial code of float32 and float64.

The same operations for scalars and vectors of any width, so that a schedule never changes a value. Errors are stated
in docs/design/009-vector-mathematics.md and measured by the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tensorlang.dataclass import dataclass
from tensorlang.target.llvm.arithmetic import constant
from tensorlang.target.llvm.mathematics import avx512
from tensorlang.target.llvm.mathematics.coefficients import (
    ERROR_OF_FLOAT32,
    ERROR_OF_FLOAT64,
    EXPONENTIAL,
    HYPERBOLIC,
    LOGARITHM,
    Logarithm,
    Polynomial,
)
from tensorlang.target.llvm.mathematics.ieee import Exact, exact
from tensorlang.target.llvm.mathematics.lookup import lookup
from tensorlang.target.llvm.mathematics.pairs import Pair, ordered_sum, sum_of
from tensorlang.target.llvm.text import Function, Value

_INFINITY = float("inf")


def exp(fn: Function, x: Value) -> Value:
    """e**x, with denormal results, infinities and NaN."""
    m, table = exact(fn, x), EXPONENTIAL[x.dtype]
    return _above(m, table.exp_least, m.at_most(x, table.exp_most), partial(_exp, m))


def exp2(fn: Function, x: Value) -> Value:
    """2**x, exact for whole numbers."""
    m, table = exact(fn, x), EXPONENTIAL[x.dtype]

    def power_of_two(x: Value) -> Value:
        power, shifted = m.rounded(x, 1.0)
        return two_to_the(m, power, shifted, m.sub(x, power), table.exp2)

    return _above(m, table.exp2_least, m.at_most(x, table.exp2_most), power_of_two)


def two_to_the(m: Exact, power: Value, shifted: Value, rest: Value, coefficients: Polynomial) -> Value:
    """2**(power + rest), for a whole power (and the shifted sum that holds it) and a rest of at most 1/2."""
    return scaled(m, m.mad(m.polynomial(rest, coefficients), rest, 1.0), power, shifted)


def expm1(fn: Function, x: Value) -> Value:
    """e**x - 1, exact near zero."""
    m, table = exact(fn, x), EXPONENTIAL[x.dtype]
    bounded = m.at_least(m.at_most(x, table.exp_most), table.expm1_least)
    power, shifted = m.rounded(bounded, LOGARITHM[x.dtype].log2_e[0])
    high, low = _remainder_in_parts(m, bounded, power)
    p = m.fma(m.polynomial(high, table.exp), m.mul(high, high), m.fma(low, high, low))
    # Half of the power, doubled at the end: 2**power itself may be too large for a float.
    half = m.power_of_two(m.integer("sub", m.whole(shifted), 1))
    y = m.add(m.fma(half, high, m.sub(half, 0.5)), m.mul(half, p))
    return m.with_sign(m.add(y, y), x)


def sigmoid(fn: Function, x: Value) -> Value:
    """1 / (1 + exp(-x)), through exp(-|x|): it never overflows and keeps denormal results."""
    m = exact(fn, x)
    power = _above(m, EXPONENTIAL[x.dtype].exp_least, m.neg(m.abs(x)), partial(_exp, m))
    return m.div(m.select(m.compare("olt", x, 0.0), power, 1.0), m.add(power, 1.0))


def tanh(fn: Function, x: Value) -> Value:
    """The hyperbolic tangent: a polynomial below 0.625, through exp above."""
    m, table = exact(fn, x), HYPERBOLIC[x.dtype]
    magnitude = m.abs(x)
    square = m.mul(x, x)
    small = m.mad(m.mul(m.polynomial(square, table.tanh), square), magnitude, magnitude)
    bounded = m.at_most(magnitude, table.one)
    power = _exp(m, m.add(bounded, bounded), normal=True)
    large = m.sub(1.0, m.div(2.0, m.add(power, 1.0)))
    return m.with_sign(m.select(m.compare("olt", magnitude, 0.625), small, large), x)


def erf(fn: Function, x: Value) -> Value:
    """The error function."""
    m = exact(fn, x)
    magnitude = m.abs(x)
    return m.with_sign(_erf_by_pieces(m, magnitude) if x.dtype == "float32" else _erf_in_halves(m, x, magnitude), x)


def _erf_by_pieces(m: Exact, x: Value) -> Value:
    """Of what is not negative: a polynomial whose coefficients are looked up by the nearest multiple of the step."""
    table = ERROR_OF_FLOAT32
    x = m.at_most(x, table.most)
    number, shifted = m.rounded(x, 1 / table.step)
    t = m.less(x, number, table.step)
    start, *rest = lookup(m, m.bits(shifted), [table.start, *table.rest])
    y = rest[0]
    for coefficient in rest[1:]:
        y = m.mad(y, t, coefficient)
    return m.mad(y, t, m.select(m.compare("oeq", number, 0.0), t, start))


def _erf_in_halves(m: Exact, x: Value, magnitude: Value) -> Value:
    """A polynomial up to 0.921875, 1 - exp(polynomial) above."""
    table = ERROR_OF_FLOAT64
    small = m.fma(m.polynomial(m.mul(x, x), table.small), magnitude, magnitude)
    rest = m.polynomial(m.sub(m.at_most(magnitude, table.one), 0.921875), table.large)
    large = m.sub(1.0, _exp(m, rest, normal=True))
    return m.select(m.compare("ole", magnitude, 0.921875), small, large)


def log(fn: Function, x: Value) -> Value:
    """The natural logarithm; 0 gives -inf, negative numbers NaN."""
    m = exact(fn, x)
    return _specials(m, x, _natural(m, _parts(m, x)))


def log2(fn: Function, x: Value) -> Value:
    """The logarithm to base 2, exact for powers of two."""
    m, table = exact(fn, x), LOGARITHM[x.dtype]
    return _specials(m, x, _to_base(m, _parts(m, x), (1.0, 0.0), table.log2_e))


def log10(fn: Function, x: Value) -> Value:
    """The logarithm to base 10."""
    m, table = exact(fn, x), LOGARITHM[x.dtype]
    return _specials(m, x, _to_base(m, _parts(m, x), table.log10_2, table.log10_e))


def log1p(fn: Function, x: Value) -> Value:
    """log(1 + x), exact near zero."""
    m = exact(fn, x)
    one_more, lost = sum_of(m, 1.0, x)
    y = m.with_sign(_natural(m, _parts(m, one_more, lost)), x)
    return _specials(m, one_more, y)


def log1p_of_sum(m: Exact, x: Pair) -> Value:
    """log(1 + a sum), for finite positive numbers (and 0)."""
    one_more, lost = sum_of(m, 1.0, x[0])
    return _natural(m, _parts(m, one_more, m.add(lost, x[1])))


def log_of_double(m: Exact, x: Value) -> Value:
    """log(2 * x), for finite positive numbers."""
    parts = _parts(m, x)
    return _natural(m, replace(parts, exponent=m.add(parts.exponent, 1.0)))


def half_exp(m: Exact, x: Value) -> Pair:
    """exp(x) / 2 as a sum, for what is not negative."""
    power, shifted, y = _power_and_rest(m, m.at_most(x, EXPONENTIAL[x.dtype].exp_most + 2.0))
    high, low = ordered_sum(m, 1.0, y)
    power, shifted = m.sub(power, 1.0), m.sub(shifted, 1.0)
    return scaled(m, high, power, shifted), scaled(m, low, power, shifted)


def exponent_and_mantissa(m: Exact, x: Value) -> tuple[Value, Value]:
    """e (a whole number) and 0.75 <= f < 1.5 with x = 2**e * f, for positive x; anything for others."""
    quick = avx512.exponent_and_mantissa(m, x)
    if quick is not None:
        return quick
    form = m.format
    denormal, grown = m.compare("olt", x, form.smallest_normal), form.fraction + 2
    bits = m.bits(m.select(denormal, m.mul(x, 2.0**grown), x))
    three_quarters = (2 * form.bias - 1) << (form.fraction - 1)
    power = m.integer("ashr", m.integer("sub", bits, three_quarters), form.fraction)
    mantissa = m.floats(m.integer("sub", bits, m.integer("shl", power, form.fraction)))
    exponent = m.converted(power)
    return m.select(denormal, m.sub(exponent, float(grown)), exponent), mantissa


def scaled(m: Exact, y: Value, power: Value, shifted: Value, normal: bool = False) -> Value:
    """y * 2**power. Two factors of half the power reach denormals and infinity, which `normal` results do not need."""
    quick = avx512.scaled(m, y, power)
    if quick is not None:
        return quick
    whole = m.whole(shifted)
    if normal:
        return m.mul(y, m.power_of_two(whole))
    half = m.integer("ashr", whole, 1)
    return m.mul(m.mul(y, m.power_of_two(half)), m.power_of_two(m.integer("sub", whole, half)))


def _above(m: Exact, least: float, x: Value, function: Callable[[Value], Value]) -> Value:
    """A function, and 0 below `least`, as masks of attention have it.

    It is not computed there: a result that is too small for a float costs a CPU 150 cycles.
    """
    below = m.compare("olt", x, least)
    y = function(x if avx512.is_present(m) else m.select(below, 0.0, x))  # masked instructions do not underflow
    return m.select(below, 0.0, y)


def _exp(m: Exact, x: Value, normal: bool = False) -> Value:
    """exp of what is in range; `normal` where its result is a normal float."""
    power, shifted, y = _power_and_rest(m, x)
    return scaled(m, m.add(y, 1.0), power, shifted, normal)


def _power_and_rest(m: Exact, x: Value) -> tuple[Value, Value, Value]:
    """A whole power and y with exp(x) = 2**power * (1 + y); the shifted sum that holds the power is the second."""
    power, shifted = m.rounded(x, LOGARITHM[x.dtype].log2_e[0])
    high, low = LOGARITHM[x.dtype].ln2
    rest = m.mad(power, -low, m.less(x, power, high))
    return power, shifted, m.mad(m.polynomial(rest, EXPONENTIAL[x.dtype].exp), m.mul(rest, rest), rest)


def _remainder_in_parts(m: Exact, x: Value, power: Value) -> tuple[Value, Value]:
    """x - power * ln(2) and what rounding it lost."""
    high, low = LOGARITHM[x.dtype].ln2
    first = m.fma(power, -high, x)
    rest = m.fma(power, -low, first)
    return rest, m.fma(power, -low, m.sub(first, rest))


@dataclass(frozen=True, slots=True)
class _Parts:
    """x = 2**exponent * (1 + f): log(1 + f) = f - square / 2 + rest."""

    exponent: Value
    f: Value
    square: Value
    rest: Value


def _parts(m: Exact, x: Value, lost: Value | None = None) -> _Parts:
    """Take a logarithm apart; `lost` is a small number to be added to x, which is then no denormal."""
    power, mantissa = exponent_and_mantissa(m, x)
    f = m.sub(mantissa, 1.0)
    square = m.mul(f, f)
    rest = _rest(m, f, square, LOGARITHM[x.dtype])
    if lost is not None:
        # 1 + f is x without its power of two; so must be what is added. Beyond 2**64 nothing of it counts.
        down = m.power_of_two(m.integer("sub", _zero(m), m.whole(m.add(power, m.format.shift))))
        added = m.select(m.compare("oge", x, 2.0**64), 0.0, m.mul(lost, down))
        rest = m.add(rest, m.fma(m.neg(f), added, added))
    return _Parts(power, f, square, rest)


def _rest(m: Exact, f: Value, square: Value, table: Logarithm) -> Value:
    if not table.by_quotient:
        return m.mul(m.mul(f, square), m.polynomial(f, table.rest))
    s = m.div(f, m.add(f, 2.0))
    z = m.mul(s, s)
    return m.mul(s, m.fma(square, 0.5, m.mul(z, m.polynomial(z, table.rest))))


def _natural(m: Exact, parts: _Parts) -> Value:
    high, low = LOGARITHM[m.dtype].ln2
    y = m.fma(parts.square, -0.5, m.fma(parts.exponent, low, parts.rest))
    return m.fma(parts.exponent, high, m.add(parts.f, y))


def _to_base(m: Exact, parts: _Parts, two: tuple[float, ...], e: tuple[float, ...]) -> Value:
    """exponent * two + log(1 + f) * e, whose factors are the logarithms of 2 and e to the base, in two parts."""
    high = m.fma(parts.square, -0.5, parts.f)
    low = m.add(m.fma(parts.square, -0.5, m.sub(parts.f, high)), parts.rest)
    product = m.mul(high, e[0])
    product_low = m.fma(low, e[0], m.fma(high, e[1], m.fma(high, e[0], m.neg(product))))
    powers = m.mul(parts.exponent, two[0])
    total = m.add(powers, product)
    lost = m.add(m.sub(powers, total), product)
    return m.add(total, m.add(m.fma(parts.exponent, two[1], product_low), lost))


def _specials(m: Exact, x: Value, y: Value) -> Value:
    """The logarithm y of x, also of infinity, zero, negative numbers and NaN."""
    quick = avx512.logarithm_limits(m, y, x)
    if quick is not None:
        return quick
    y = m.select(m.compare("olt", x, _INFINITY), y, x)
    y = m.select(m.compare("oeq", x, 0.0), -_INFINITY, y)
    return m.select(m.compare("olt", x, 0.0), float("nan"), y)


def _zero(m: Exact) -> Value:
    return constant(0, Value("", m.format.integer, m.lanes))
