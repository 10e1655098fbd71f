"""Functions of an element that models know by name: activations, and other short formulas."""

from __future__ import annotations

import math

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, binary, cast


def number(value: float, like: Expr) -> Expr:
    """A constant of the dtype of an expression."""
    return te.const(value, like.dtype)


def nonzero(x: Expr) -> Expr:
    """Whether an element is not 0."""
    return x if x.dtype == "bool" else binary("ne", x, number(0, x))


def logical_not(x: Expr) -> Expr:
    """Whether a bool is false."""
    return binary("eq", x, te.const(False, "bool"))


def truncated_quotient(a: Expr, b: Expr) -> Expr:
    """`a / b`, of integers without what is left."""
    return te.truncdiv(a, b) if dtypes.info(a.dtype).is_integer else a / b


def floored_remainder(a: Expr, b: Expr) -> Expr:
    """What is left of a float `a` by `floor(a / b)`; it has the sign of b."""
    left, zero = te.fmod(a, b), number(0, a)
    other = te.all(binary("ne", left, zero), binary("ne", binary("lt", left, zero), binary("lt", b, zero)))
    return te.select(other, left + b, left)


def power_of_integer(a: Expr, b: Expr) -> Expr:
    """An integer to a power, as the same kind of integer; exact below 2 ** 53."""
    return cast(te.pow(cast(a, "float64"), cast(b, "float64")), a.dtype)


def sign(x: Expr) -> Expr:
    """1, -1, or x itself, which is a 0 or NaN."""
    zero, one = number(0, x), number(1, x)
    return te.select(binary("gt", x, zero), one, te.select(binary("lt", x, zero), number(-1, x), x))


def relu(x: Expr) -> Expr:
    """x where it is above 0."""
    return te.maximum(x, number(0, x))


def leaky_relu(x: Expr, alpha: float) -> Expr:
    """x, below 0 times alpha."""
    return te.select(binary("lt", x, number(0, x)), x * number(alpha, x), x)


def elu(x: Expr, alpha: float) -> Expr:
    """x, below 0 alpha * (exp(x) - 1)."""
    return te.select(binary("lt", x, number(0, x)), te.expm1(x) * number(alpha, x), x)


def celu(x: Expr, alpha: float) -> Expr:
    """x, below 0 alpha * (exp(x / alpha) - 1)."""
    return relu(x) + te.minimum(number(0, x), te.expm1(x * number(1 / alpha, x)) * number(alpha, x))


def selu(x: Expr, alpha: float, gamma: float) -> Expr:
    """gamma times x, below 0 times alpha * (exp(x) - 1)."""
    return te.select(binary("gt", x, number(0, x)), x, te.expm1(x) * number(alpha, x)) * number(gamma, x)


def gelu(x: Expr) -> Expr:
    """x times the share of a normal distribution below it."""
    return x * number(0.5, x) * (te.erf(x * number(math.sqrt(0.5), x)) + 1.0)


def gelu_tanh(x: Expr) -> Expr:
    """gelu with tanh in place of erf (Hendrycks and Gimpel, 2016)."""
    inner = (x + x * x * x * number(0.044715, x)) * number(math.sqrt(2 / math.pi), x)
    return x * number(0.5, x) * (te.tanh(inner) + 1.0)


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """alpha * x + beta, kept between 0 and 1."""
    return te.maximum(number(0, x), te.minimum(number(1, x), x * number(alpha, x) + number(beta, x)))


def hard_swish(x: Expr) -> Expr:
    """x times its hard sigmoid of 1/6 and 1/2."""
    return x * hard_sigmoid(x, 1 / 6, 0.5)


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x))."""
    return relu(x) + te.log1p(te.exp(-te.abs(x)))


def softsign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return x / (te.abs(x) + 1.0)


def mish(x: Expr) -> Expr:
    """x * tanh(softplus(x)) (Misra, 2019)."""
    return x * te.tanh(softplus(x))


def limited(value: Expr, dtype: str) -> Expr:
    """A number as a float of 8 bits: what is too large becomes the largest of them, what is no number stays so."""
    wide = value if dtypes.info(value.dtype).is_float else cast(value, "float32")
    most = te.const(-dtypes.smallest_float(dtype), wide.dtype)
    high = te.select(binary("gt", wide, most), most, wide)
    return cast(te.select(binary("lt", high, -most), -most, high), dtype)


def is_eighth(dtype: str) -> bool:
    """Whether it is a float of 8 bits."""
    return dtype.startswith("float8")


def saturated(value: Expr, zero: Expr | None, dtype: str) -> Expr:
    """A number rounded to the nearest integer, halves to even, moved by `zero`, and kept within a dtype."""
    low, high = dtypes.limits(dtype)
    whole = te.nearbyint(value)
    whole = whole if zero is None else whole + cast(zero, whole.dtype)
    return cast(te.max(te.min(whole, te.const(float(high), whole.dtype)), te.const(float(low), whole.dtype)), dtype)
