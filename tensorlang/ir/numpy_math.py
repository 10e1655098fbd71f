"""NumPy forms of the operations that NumPy lacks; they define the values that every target must give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any  # an array or a NumPy scalar

_erf = np.frompyfunc(math.erf, 1, 1)
_SPLIT = 134217729.0  # 2**27 + 1: halves a float64 significand


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


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once: float32 through float64, float64 through an error-free product and sum."""
    if a.dtype != np.float64:
        return (np.float64(a) * np.float64(b) + np.float64(c)).astype(a.dtype)
    product, low = _two_product(a, b)
    total = product + c
    part = total - product
    error = (product - (total - part)) + (c - part)
    exact = total + (error + low)
    return np.where(np.isfinite(exact), exact, total)[()]


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b, and the rounding error of it (Veltkamp's and Dekker's)."""
    product = a * b
    a_high = a * _SPLIT - (a * _SPLIT - a)
    b_high = b * _SPLIT - (b * _SPLIT - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _bits(x: Array) -> tuple[Array, int]:
    """The two's complement bits as uint64, and how many there are."""
    size = x.dtype.itemsize
    return np.asarray(x).view(f"u{size}").astype(np.uint64), 8 * size


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
