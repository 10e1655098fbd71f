"""Quotients and remainders by constants as linear unknowns: the digits of a number.

`f // 192`, `f // 64 % 3` and `f % 64` are digits of one number, `f = 192 * a + 64 * b + c`. Divisors that divide each
other share the digits, so that equations for all of them together determine `f`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tensorlang.dataclass import dataclass
from tensorlang.ir.affine import Affine, add, scale

Key = frozenset[tuple[str, int]]
Digit = Callable[[Affine, int], tuple[str, str]]  # a form and a divisor -> new unknowns for quotient and remainder


@dataclass(slots=True)
class _Number:
    """`sum(cut * digit)`: each cut divides the next, and all digits but the last are smaller than the step between."""

    cuts: list[int]
    digits: list[Affine]

    def cut(self, divisor: int, new_digit: Digit) -> bool:
        """Split the digit that the divisor falls into; False if the divisors around do not divide each other."""
        if divisor in self.cuts:
            return True
        at = max(n for n, cut in enumerate(self.cuts) if cut < divisor)
        above = self.cuts[at + 1] if at + 1 < len(self.cuts) else divisor
        if divisor % self.cuts[at] or above % divisor:
            return False
        upper, lower = new_digit(self.digits[at], divisor // self.cuts[at])
        self.digits[at : at + 1] = [{lower: 1}, {upper: 1}]
        self.cuts.insert(at + 1, divisor)
        return True

    def between(self, low: int, high: int) -> Affine:
        """The digits from one cut up to another (0: all), divided by the first."""
        total: Affine = {}
        for cut, digit in zip(self.cuts, self.digits, strict=True):
            if low <= cut and (not high or cut < high):
                total = add(total, digit, cut // low)
        return total


@dataclass(slots=True)
class Digits:
    """The numbers that have been divided, and for each form what part of which number it is (its cuts)."""

    new_digit: Digit
    _parts: dict[Key, tuple[_Number, int, int]] = field(default_factory=dict)
    _done: dict[tuple[Key, int], tuple[Affine, Affine]] = field(default_factory=dict)

    def divide(self, whole: Affine, divisor: int) -> tuple[Affine, Affine]:
        """The quotient and the remainder of a form by a positive constant, as forms."""
        key = frozenset(whole.items())
        if (key, divisor) not in self._done:
            self._done[key, divisor] = self._divide(whole, key, divisor)
        return self._done[key, divisor]

    def _divide(self, whole: Affine, key: Key, divisor: int) -> tuple[Affine, Affine]:
        number, low, high = self._parts.setdefault(key, (_Number([1], [scale(whole, 1)]), 1, 0))
        cut = low * divisor
        if high % cut or not number.cut(cut, self.new_digit):
            number, low, high, cut = _Number([1], [scale(whole, 1)]), 1, 0, divisor
            number.cut(cut, self.new_digit)
        quotient, remainder = number.between(cut, high), number.between(low, cut)
        self._parts.setdefault(frozenset(quotient.items()), (number, cut, high))
        self._parts.setdefault(frozenset(remainder.items()), (number, low, cut))
        return quotient, remainder
