"""NumPy forms of the operations that NumPy lacks; they define the values that every target must give."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from tensorlang import dtypes

Array = Any  # an array or a NumPy scalar

_erf = np.frompyfunc(math.erf, 1, 1)
_SPLIT = 134217729.0  # 2**27 + 1: halves a float64 significand
_SAFE = 2.0**480  # between this and its inverse, products and their errors neither overflow nor lose bits


def converted(x: Array, dtype: str) -> Array:
    """`x` in another dtype: floats to integers truncate and saturate, and NaN gives 0; integers keep their low bits."""
    goal = dtypes.info(dtype)
    if not (goal.is_integer and dtypes.info(x.dtype.name).is_float):
        return x.astype(goal.numpy)
    low, high = map(int, dtypes.limits(dtype))
    wide = x.astype(np.float64)
    below, above = wide < low, wide >= float(high + 1)
    inside = np.where(below | above | np.isnan(wide), 0.0, wide).astype(goal.numpy)
    return np.where(above, goal.numpy.type(high), np.where(below, goal.numpy.type(low), inside))[()]


def erf(x: Array) -> Array:
    """The error function, with float64 accuracy."""
    return np.asarray(_erf(np.asarray(x, np.float64))).astype(np.float64).astype(x.dtype)[()]


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    one = x.dtype.type(1)
    return one / (one + np.exp(-x))


def truncated_quotient(x: Array, y: Array) -> Array:
    """x / y of floats, rounded towards zero; that of narrow floats is computed in float32 and rounded once."""
    wide = np.float32 if x.dtype.itemsize <= 2 else x.dtype
    return np.trunc(x.astype(wide) / y.astype(wide)).astype(x.dtype)


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return x.dtype.type(1) / np.sqrt(x)


def power(x: Array, y: Array) -> Array:
    """x to the power y, as C has it: NumPy takes a root, of another sign, where the exponent is one number of 0.5."""
    shape = np.broadcast_shapes(x.shape, y.shape)
    return np.power(x, np.ascontiguousarray(np.broadcast_to(y, shape))).reshape(shape)[()]


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of one dtype, narrow floats included, rounded once."""
    if a.dtype == np.float64:
        return _fma_float64(*np.broadcast_arrays(a, b, c))
    x, y, z = (operand.astype(np.float64) for operand in (a, b, c))
    total = _to_odd(*_two_sum(x * y, z))  # a product of float32 is exact
    return total.astype(a.dtype) if a.dtype in (np.float32, np.float16) else _float32_to_odd(total).astype(a.dtype)


def _fma_float64(a: Array, b: Array, c: Array) -> Array:
    """Boldo's and Melquiond's sum of the product's two parts and c; one by one where exponents are extreme."""
    if a.ndim == 0:
        return np.float64(_fused(float(a), float(b), float(c)))
    product, low = _two_product(a, b)
    small, error = _two_sum(c, low)
    total, rest = _two_sum(product, small)
    made = total + _to_odd(*_two_sum(rest, error))
    magnitudes = np.abs([a, b, c, product])
    safe = (magnitudes < _SAFE) & (magnitudes > 1 / _SAFE)
    for at in np.argwhere(~safe.all(axis=0)):
        made[*at] = _fused(float(a[*at]), float(b[*at]), float(c[*at]))
    return made


def _fused(a: float, b: float, c: float) -> float:
    """a * b + c of any floats. Where a product is not rounded, the sum has the zero, infinity or NaN of IEEE 754."""
    if a == 0 or b == 0 or not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b, and the rounding error of it (Veltkamp's and Dekker's)."""
    product = a * b
    a_high = a * _SPLIT - (a * _SPLIT - a)
    b_high = b * _SPLIT - (b * _SPLIT - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b, and the rounding error of it (Knuth's); that error is not a number beside infinities."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _to_odd(total: Array, error: Array) -> Array:
    """A float64 sum as if rounded to odd: cut off, and the last bit says whether anything was lost.

    Rounded once more, to a float of at most 51 bits, that gives what rounding the exact sum gives.
    """
    bits = np.asarray(total).view(np.int64)
    lost = (np.abs(error) > 0) & (bits & 1 == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(lost, bits + step, bits).view(np.float64)


def _float32_to_odd(x: Array) -> Array:
    """float64 to float32, cut off, and the last bit set where that lost anything."""
    near = np.asarray(x.astype(np.float32))
    back = near.astype(np.float64)
    bits = near.view(np.int32)
    lost = (bits - (np.abs(back) > np.abs(x))) | 1
    return np.where((back == x) | np.isnan(x), bits, lost).astype(np.int32).view(np.float32)


def _bits(x: Array) -> tuple[Array, int]:
    """The two's complement bits as uint64, and how many there are."""
    size = x.dtype.itemsize
    return np.asarray(x).view(f"u{size}").astype(np.uint64), 8 * size


def bits_of(x: Array) -> Array:
    """The bits of floats as unsigned integers."""
    bits: Array = x.view(f"uint{8 * x.itemsize}")
    return bits


def lookup16(index: Array, *numbers: Array) -> Array:
    """The number at the place that the lowest four bits of an index say."""
    return np.asarray(np.choose(index & np.uint8(15), numbers)).astype(np.uint8)[()]


def popcount(x: Array) -> Array:
    """How many bits of the two's complement form are one."""
    bits, width = _bits(x)
    count = sum((bits >> np.uint64(k)) & np.uint64(1) for k in range(width))
    return np.asarray(count).astype(x.dtype)[()]


def clz(x: Array) -> Array:
    """How many of the highest bits are zero, as int32; the width for 0."""
    bits, width = _bits(x)
    length = sum(((bits >> np.uint64(k)) != 0).astype(np.int32) for k in range(width))
    return (np.int32(width) - np.asarray(length))[()]
