"""Functions that float32 and narrower floats compute in float64: the ones that are rarely the bulk of a kernel.

Their formulas are plain: what they lose is far below half a unit of float32.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorlang.target.llvm.arithmetic import cast
from tensorlang.target.llvm.mathematics.approximations import exp, expm1, log1p
from tensorlang.target.llvm.mathematics.ieee import Exact, exact
from tensorlang.target.llvm.mathematics.power import power_of_float32
from tensorlang.target.llvm.mathematics.trigonometry import cos, sin
from tensorlang.target.llvm.text import Function, Value

_ATAN = (
    -0.037933364765837585, 0.06991864367865923, -0.08997015714889722, 0.11104026820794832, -0.14285425114671768,
    0.1999999437046754, -0.3333333329615781,
)  # fmt: skip
"""(atan(x) / x - 1) / x**2 in powers of x**2 for |x| <= tan(pi / 8), to 2**-40."""
_TAN_EIGHTH = 0.41421356237309503
_PI = 3.141592653589793


def in_float64(fn: Function, name: str, args: list[Value]) -> Value:
    """A function of `WIDE` for narrower floats, in pieces of as many lanes as a register has for float64."""
    dtype, lanes, most = args[0].dtype, args[0].lanes, fn.target.lanes(64)

    def result(parts: list[Value]) -> Value:
        return cast(fn, WIDE[name](fn, *(cast(fn, p, "float64") for p in parts)), dtype)

    if lanes <= most:
        return result(args)
    return _joined(fn, [result([_piece(fn, a, at, most) for a in args]) for at in range(0, lanes, most)], lanes)


def _piece(fn: Function, a: Value, start: int, lanes: int) -> Value:
    """Some lanes of a vector; beyond its end, anything."""
    picks = ", ".join(f"i32 {at}" if at < a.lanes else "i32 poison" for at in range(start, start + lanes))
    return fn.value(f"shufflevector {a.typed}, {a.type} poison, <{lanes} x i32> <{picks}>", a.dtype, lanes)


def _joined(fn: Function, parts: list[Value], lanes: int) -> Value:
    """Vectors of one width one after the other, cut after `lanes`."""
    width = parts[0].lanes
    while len(parts) > 1:
        pairs = [(parts[n], parts[n + 1] if n + 1 < len(parts) else None) for n in range(0, len(parts), 2)]
        picks = ", ".join(f"i32 {at}" for at in range(2 * width))
        parts = [
            fn.value(
                f"shufflevector {a.typed}, {a.type} {b.text if b else 'poison'}, <{2 * width} x i32> <{picks}>",
                a.dtype,
                2 * width,
            )
            for a, b in pairs
        ]
        width *= 2
    return parts[0] if width == lanes else _piece(fn, parts[0], 0, lanes)


def _tan(fn: Function, x: Value) -> Value:
    return exact(fn, x).div(sin(fn, x), cos(fn, x))


def _sinh(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    grown = expm1(fn, m.at_most(m.abs(x), 700.0))  # infinite in float32, not in float64
    return m.with_sign(m.mul(m.add(grown, m.div(grown, m.add(grown, 1.0))), 0.5), x)


def _cosh(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    grown = exp(fn, m.abs(x))
    return m.mul(m.add(grown, m.div(1.0, grown)), 0.5)


def _asinh(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    magnitude = m.abs(x)
    square = m.mul(magnitude, magnitude)
    ratio = m.div(square, m.add(m.sqrt(m.add(square, 1.0)), 1.0))
    ratio = m.select(m.compare("olt", magnitude, float("inf")), ratio, 0.0)
    return m.with_sign(log1p(fn, m.add(magnitude, ratio)), x)


def _acosh(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    beyond = m.sub(x, 1.0)
    return log1p(fn, m.add(beyond, m.mul(m.sqrt(beyond), m.sqrt(m.add(x, 1.0)))))


def _atanh(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    magnitude = m.abs(x)
    ratio = m.div(m.add(magnitude, magnitude), m.sub(1.0, magnitude))
    return m.with_sign(m.mul(log1p(fn, ratio), 0.5), x)


def _hypot(fn: Function, x: Value, y: Value) -> Value:
    m = exact(fn, x)
    length = m.sqrt(m.fma(x, x, m.mul(y, y)))
    infinite = m.either(*(m.compare("oeq", m.abs(v), float("inf")) for v in (x, y)))
    return m.select(infinite, float("inf"), length)


def _atan(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    magnitude = m.abs(x)
    over = m.compare("ogt", magnitude, 1.0)
    below = m.select(over, m.div(1.0, magnitude), magnitude)
    angle = _small_angle(m, below)
    return m.with_sign(m.select(over, m.sub(_PI / 2, angle), angle), x)


def _atan2(fn: Function, y: Value, x: Value) -> Value:
    m = exact(fn, x)
    across, up = m.abs(x), m.abs(y)
    steep = m.compare("ogt", up, across)
    ratio = m.div(m.select(steep, across, up), m.select(steep, up, across))
    # 0 / 0 and infinity / infinity are the angles 0 and pi / 4.
    ratio = m.select(m.compare("oeq", up, 0.0), 0.0, ratio)
    both = m.both(*(m.compare("oeq", v, float("inf")) for v in (across, up)))
    angle = _small_angle(m, m.select(both, 1.0, ratio))
    angle = m.select(steep, m.sub(_PI / 2, angle), angle)
    bits = m.bits(x)
    left = fn.value(f"icmp slt {bits.type} {bits.text}, {m.integer('and', bits, 0).text}", "bool", m.lanes)
    result = m.with_sign(m.select(left, m.sub(_PI, angle), angle), y)
    unknown = fn.value(f"fcmp uno {x.typed}, {y.text}", "bool", m.lanes)
    return m.select(unknown, float("nan"), result)


def _asin(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    return _atan2(fn, x, m.sqrt(m.mul(m.sub(1.0, x), m.add(x, 1.0))))


def _acos(fn: Function, x: Value) -> Value:
    m = exact(fn, x)
    return _atan2(fn, m.sqrt(m.mul(m.sub(1.0, x), m.add(x, 1.0))), x)


def _small_angle(m: Exact, x: Value) -> Value:
    """atan(x) for 0 <= x <= 1, through atan((x - 1) / (x + 1)) + pi / 4 above tan(pi / 8)."""
    upper = m.compare("ogt", x, _TAN_EIGHTH)
    t = m.select(upper, m.div(m.sub(x, 1.0), m.add(x, 1.0)), x)
    square = m.mul(t, t)
    y = m.fma(m.mul(t, square), m.polynomial(square, _ATAN), t)
    return m.add(y, m.select(upper, _PI / 4, 0.0))


WIDE: dict[str, Callable[..., Value]] = {
    "tan": _tan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "atan2": _atan2,
    "hypot": _hypot,
    "pow": power_of_float32,
}
"""Functions of float64 values that are good enough to be rounded to float32."""
