"""Float arithmetic in which every operation is rounded on its own, and the bits behind the floats.

Approximations are written with it: what they compute must not change with the code around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import frexp, ldexp, trunc

from tensorlang.dataclass import dataclass
from tensorlang.target.detect import has_fma
from tensorlang.target.llvm.arithmetic import absolute, cast, constant, intrinsic, select, unary
from tensorlang.target.llvm.text import Function, Value

_HORNER = 6
"""Polynomials of at most so many terms are short chains anyway."""
_LAST = 2
Operand = Value | float
"""A value, or a number that stands in every lane."""


@dataclass(frozen=True, slots=True)
class Format:
    """A float dtype: bits after the leading one, exponent of 1.0, and the integer of the same width.

    `shift` added to a number of less than 2**(fraction - 2) leaves it rounded to an integer in its lowest bits.
    """

    dtype: str
    fraction: int
    bias: int
    integer: str
    shift: float

    @property
    def width(self) -> int:
        """The number of bits."""
        return self.fraction + self.bias.bit_length() + 2

    @property
    def smallest_normal(self) -> float:
        """The smallest number of full precision."""
        return 2.0 ** (1 - self.bias)


FORMATS = {
    "float32": Format("float32", 23, 127, "int32", 1.5 * 2.0**23),
    "float64": Format("float64", 52, 1023, "int64", 1.5 * 2.0**52),
}


@dataclass(frozen=True, slots=True)
class Exact:
    """Emits operations on values of one float dtype and number of lanes."""

    fn: Function
    dtype: str
    lanes: int

    @property
    def format(self) -> Format:
        """The float dtype."""
        return FORMATS[self.dtype]

    def value(self, x: Operand) -> Value:
        """A number as a value; a value as it is."""
        return x if isinstance(x, Value) else constant(x, Value("", self.dtype, self.lanes))

    def add(self, a: Operand, b: Operand) -> Value:
        return self._float("fadd", a, b)

    def sub(self, a: Operand, b: Operand) -> Value:
        return self._float("fsub", a, b)

    def mul(self, a: Operand, b: Operand) -> Value:
        return self._float("fmul", a, b)

    def div(self, a: Operand, b: Operand) -> Value:
        return self._float("fdiv", a, b)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once; where the CPU has no such instruction, of float32 by way of float64."""
        if self.fused or self.dtype != "float32":
            return self._call("fma", a, b, c)
        x, y, z = (cast(self.fn, self.value(v), "float64") for v in (a, b, c))
        wide = Exact(self.fn, "float64", self.lanes)
        return cast(self.fn, wide.add(wide.mul(x, y), z), "float32")

    def mad(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c where its last bit does not matter: rounded once if the CPU does that in one instruction."""
        return self._call("fma", a, b, c) if self.fused else self.add(self.mul(a, b), c)

    def less(self, x: Value, count: Value, unit: float) -> Value:
        """x - count * unit as a fused multiply-add has it, for a whole count of few bits and what is near."""
        if self.fused:
            return self.fma(count, -unit, x)
        kept = _high_part(unit, self.format.fraction + 1 - self.format.bias.bit_length() - 2)
        return self.mad(count, kept - unit, self.mad(count, -kept, x))

    @property
    def fused(self) -> bool:
        """Whether the CPU has fused multiply-adds; elsewhere each is a call of libm, lane by lane."""
        return has_fma(self.fn.target)

    def neg(self, a: Value) -> Value:
        return unary(self.fn, "neg", a)

    def abs(self, a: Value) -> Value:
        return absolute(self.fn, a)

    def sqrt(self, a: Value) -> Value:
        return self._call("sqrt", a)

    def trunc(self, a: Value) -> Value:
        return self._call("trunc", a)

    def with_sign(self, magnitude: Operand, sign: Value) -> Value:
        return self._call("copysign", magnitude, sign)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """A polynomial, highest power first: Horner's rule, for long ones after pairs of terms side by side.

        Pairs (Estrin's scheme) make short chains of dependent operations; the last steps decide the rounding.
        """
        steps = _LAST if len(coefficients) > _HORNER else len(coefficients) - 1
        y = self._in_pairs(x, coefficients[:-steps])
        for coefficient in coefficients[-steps:]:
            y = self.mad(y, x, coefficient)
        return y

    def _in_pairs(self, x: Value, coefficients: Sequence[float]) -> Value:
        terms: list[Operand] = list(reversed(coefficients))
        power = x
        while len(terms) > 1:
            pairs = [terms[n : n + 2] for n in range(0, len(terms), 2)]
            terms = [self.mad(pair[1], power, pair[0]) if len(pair) == 2 else pair[0] for pair in pairs]
            if len(terms) > 1:
                power = self.mul(power, power)
        return self.value(terms[0])

    def compare(self, relation: str, a: Value, b: Operand) -> Value:
        """A comparison as LLVM's fcmp names it: `olt` is false and `ult` true where an operand is NaN."""
        return self.fn.value(f"fcmp {relation} {a.type} {a.text}, {self.value(b).text}", "bool", self.lanes)

    def either(self, a: Value, b: Value) -> Value:
        return self.fn.value(f"or {a.typed}, {b.text}", "bool", self.lanes)

    def both(self, a: Value, b: Value) -> Value:
        return self.fn.value(f"and {a.typed}, {b.text}", "bool", self.lanes)

    def select(self, condition: Value, then: Operand, orelse: Operand) -> Value:
        return select(self.fn, condition, self.value(then), self.value(orelse))

    def at_most(self, x: Value, limit: float) -> Value:
        """x, or the limit where x is above; NaN stays."""
        return self.select(self.compare("ogt", x, limit), limit, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """x, or the limit where x is below; NaN stays."""
        return self.select(self.compare("olt", x, limit), limit, x)

    def bits(self, x: Value) -> Value:
        """The bits of floats, as integers of their width."""
        return self._bitcast(x, self.format.integer)

    def floats(self, x: Value) -> Value:
        """The floats that integers are the bits of."""
        return self._bitcast(x, self.dtype)

    def integer(self, instruction: str, a: Value, b: Value | int) -> Value:
        """An integer operation as LLVM names it."""
        right = constant(b, a) if isinstance(b, int) else b
        return self.fn.value(f"{instruction} {a.type} {a.text}, {right.text}", a.dtype, self.lanes)

    def converted(self, x: Value) -> Value:
        """Integers as floats."""
        return self.fn.value(f"sitofp {x.typed} to {self.value(0.0).type}", self.dtype, self.lanes)

    def power_of_two(self, exponent: Value) -> Value:
        """2**exponent as a float, for integers between 1 - bias and bias."""
        form = self.format
        return self.floats(self.integer("shl", self.integer("add", exponent, form.bias), form.fraction))

    def rounded(self, x: Value, scale: float) -> tuple[Value, Value]:
        """x * scale as the nearest whole number, and the shifted sum that holds it in its lowest bits."""
        shifted = self.mad(x, scale, self.format.shift)
        return self.sub(shifted, self.format.shift), shifted

    def whole(self, shifted: Value) -> Value:
        """The integer in a shifted sum; anything where it was made from NaN."""
        return self.integer("sub", self.bits(shifted), self._shift_bits)

    @property
    def _shift_bits(self) -> int:
        form = self.format
        return (form.bias + form.fraction) << form.fraction | 1 << (form.fraction - 1)

    def _float(self, instruction: str, a: Operand, b: Operand) -> Value:
        left, right = self.value(a), self.value(b)
        return self.fn.value(f"{instruction} {left.typed}, {right.text}", self.dtype, self.lanes)

    def _call(self, name: str, *operands: Operand) -> Value:
        values = [self.value(x) for x in operands]
        return self.fn.call(intrinsic(name, values[0]), values, self.dtype, self.lanes)

    def _bitcast(self, x: Value, dtype: str) -> Value:
        return self.fn.value(f"bitcast {x.typed} to {Value('', dtype, self.lanes).type}", dtype, self.lanes)


def _high_part(number: float, bits: int) -> float:
    """The leading bits of a number."""
    mantissa, exponent = frexp(number)
    return ldexp(trunc(ldexp(mantissa, bits)), exponent - bits)


def exact(fn: Function, like: Value) -> Exact:
    """Operations on values like a given one."""
    return Exact(fn, like.dtype, like.lanes)


def with_rare(fn: Function, rare: Value, usual: Value, general: Callable[[], Value]) -> Value:
    """`usual`, but where `rare` holds the value of `general`, which is only computed when some lane needs it."""
    any_lane = rare if not rare.lanes else fn.call(f"llvm.vector.reduce.or.v{rare.lanes}i1", [rare], "bool")
    before, take, join = fn.block, fn.fresh("rare"), fn.fresh("join")
    fn.branch(any_lane, take, join)
    fn.start(take)
    chosen = select(fn, rare, general(), usual)
    last = fn.block
    fn.jump(join)
    fn.start(join)
    return fn.value(f"phi {usual.type} [{usual.text}, %{before}], [{chosen.text}, %{last}]", usual.dtype, usual.lanes)
