"""Numbers as the sum of a float and a much smaller one, which holds what the first one lost to rounding."""

from __future__ import annotations

from tensorlang.target.llvm.mathematics.ieee import Exact, Operand
from tensorlang.target.llvm.text import Value

Pair = tuple[Value, Value]
_NOT_ZERO = 2.0**-1000


def sum_of(m: Exact, a: Operand, b: Operand) -> Pair:
    """a + b, exactly."""
    total = m.add(a, b)
    part = m.sub(total, a)
    return total, m.add(m.sub(a, m.sub(total, part)), m.sub(b, part))


def ordered_sum(m: Exact, a: Operand, b: Operand) -> Pair:
    """a + b, exactly, where a is 0 or not smaller than b but for its sign."""
    total = m.add(a, b)
    return total, m.add(m.sub(a, total), b)


def product(m: Exact, a: Operand, b: Operand) -> Pair:
    """a * b, exactly."""
    high = m.mul(a, b)
    return high, m.fma(a, b, m.neg(high))


def quotient(m: Exact, above: Pair, below: Pair) -> Pair:
    """above / below."""
    inverse = m.div(1.0, below[0])
    high = m.mul(above[0], inverse)
    wrong = m.neg(high)
    rest = m.add(m.fma(wrong, below[0], above[0]), m.fma(wrong, below[1], above[1]))
    return high, m.mul(rest, inverse)


def root(m: Exact, x: Pair) -> Pair:
    """The square root; NaN of what is negative."""
    high = m.sqrt(x[0])
    rest = m.add(m.fma(m.neg(high), high, x[0]), x[1])
    return high, m.mul(rest, m.div(0.5, m.at_least(high, _NOT_ZERO)))


def chosen(m: Exact, condition: Value, then: tuple[Operand, Operand], orelse: tuple[Operand, Operand]) -> Pair:
    """One of two pairs."""
    high, low = (m.select(condition, a, b) for a, b in zip(then, orelse, strict=True))
    return high, low
