"""Pieces of C text with what the printer knows of their values."""

from __future__ import annotations

from tensorlang import dtypes
from tensorlang.dataclass import dataclass

Interval = tuple[int, int]

TERNARY, OR, AND, BITOR, BITXOR, BITAND, EQUAL, LESS, SHIFT, SUM, PRODUCT, PREFIX, ATOM = range(13)
"""How tightly an operator of C binds, loosest first."""

INT32: Interval = (-(2**31), 2**31 - 1)
UNKNOWN: Interval = (-(2**40), 2**40)
"""Taken to hold any size or index."""


@dataclass(frozen=True, slots=True)
class Code:
    """An expression of C that has the value of an expression of loop IR.

    `interval` holds the value of an integer or bool. `narrow`: an int64 that is an `int` in C. `unknown`: made of
    sizes whose values are not known. `bits`: text of an unsigned integer with the same low bits, and how tightly it
    binds. `unrounded`: text of a float that is rounded to this value of a narrow float, and `stored` what it is in
    memory, where that is known without a conversion.
    """

    text: str
    dtype: str
    rank: int = ATOM
    interval: Interval = (0, 0)
    narrow: bool = False
    unknown: bool = False
    bits: str = ""
    bits_rank: int = ATOM
    unrounded: str = ""
    stored: str = ""

    def at(self, rank: int) -> str:
        """The text as an operand of an operator that binds so tightly."""
        return self.text if self.rank >= rank else f"({self.text})"

    @property
    def constant(self) -> int | None:
        """The value of an integer that is known."""
        low, high = self.interval
        return low if low == high and not dtypes.info(self.dtype).is_float else None


def limits(dtype: str) -> Interval:
    """The smallest and the largest value of an integer or bool dtype; (0, 0) of a float."""
    if dtypes.info(dtype).is_float:
        return 0, 0
    low, high = dtypes.limits(dtype)
    return int(low), int(high)


def within(inner: Interval, outer: Interval) -> bool:
    """Whether one interval lies in another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def total(a: Interval, b: Interval) -> Interval:
    """Of a sum."""
    return a[0] + b[0], a[1] + b[1]


def difference(a: Interval, b: Interval) -> Interval:
    """Of a difference."""
    return a[0] - b[1], a[1] - b[0]


def product(a: Interval, b: Interval) -> Interval:
    """Of a product."""
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def quotient(a: Interval, b: Interval, floor: bool) -> Interval:
    """Of a quotient, rounded down or towards zero; that by 0 is 0."""
    if floor and b[0] > 0:
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    most = max(abs(a[0]), abs(a[1]))
    return (0, most) if a[0] >= 0 and b[0] >= 0 else (-most, most)


def remainder(a: Interval, b: Interval, floor: bool) -> Interval:
    """Of a remainder with the sign of the divisor (`floor`), or of the dividend."""
    most = max(abs(b[0]), abs(b[1]), 1) - 1
    if floor:
        low, high = (0 if b[0] >= 0 else -most), (0 if b[1] <= 0 else most)
        return (low, min(high, a[1])) if a[0] >= 0 and b[0] >= 0 else (low, high)
    return (0 if a[0] >= 0 else max(-most, a[0])), (0 if a[1] <= 0 else min(most, a[1]))
