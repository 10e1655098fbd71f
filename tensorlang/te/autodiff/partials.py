"""The partial derivatives of every scalar operation, as tables."""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorlang.ir.expr import Binary, Call, Const, Expr, Select, Unary, binary, const, select
from tensorlang.ir.intrinsics import call

# A partial derivative: the factor of one operand, or None where the function is constant almost everywhere.
Partial = Expr | None


def is_number(expr: Expr, value: float) -> bool:
    """Whether an expression is this literal."""
    return isinstance(expr, Const) and expr.value == value


def times(a: Expr, b: Expr) -> Expr:
    """The product of two floats, without factors of one and minus one; a reciprocal divides."""
    for x, y in ((a, b), (b, a)):
        if is_number(x, 1):
            return y
        if is_number(x, -1):
            return negated(y)
        if isinstance(x, Binary) and x.op == "div" and is_number(x.a, 1):
            return y / x.b
    return a * b


def negated(a: Expr) -> Expr:
    """-a, where two signs cancel."""
    if isinstance(a, Const):
        return const(-a.value, a.dtype)
    return a.a if isinstance(a, Unary) and a.op == "neg" else -a


def _number(value: float, like: Expr) -> Const:
    return const(float(value), like.dtype)


def _sign(x: Expr) -> Expr:
    return select(x > 0, _number(1, x), select(x < 0, _number(-1, x), _number(0, x)))


def _power(x: Expr, y: Expr) -> Expr:
    """d/dx of x**y: y * x**(y - 1)."""
    if isinstance(y, Const):
        exponent = float(y.value)
        if exponent in (0.0, 1.0):
            return _number(exponent, x)
        return times(y, x if exponent == 2.0 else call("pow", x, exponent - 1.0))
    return select(binary("eq", y, 0.0), _number(0, x), y * call("pow", x, y - 1.0))


def _exponent(x: Expr, value: Expr) -> Expr:
    """d/dy of x**y: x**y * log(x), which is 0 at x = 0."""
    return select(binary("eq", x, 0.0), _number(0, x), value * call("log", x))


# name -> the factor, from the operand x and the value v of the call
_UNARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "exp": lambda x, v: v,
    "exp2": lambda x, v: v * math.log(2.0),
    "expm1": lambda x, v: v + 1.0,
    "log": lambda x, v: 1.0 / x,
    "log2": lambda x, v: 1.0 / (x * math.log(2.0)),
    "log10": lambda x, v: 1.0 / (x * math.log(10.0)),
    "log1p": lambda x, v: 1.0 / (1.0 + x),
    "sqrt": lambda x, v: 0.5 / v,
    "rsqrt": lambda x, v: -0.5 * (v / x),
    "sin": lambda x, v: call("cos", x),
    "cos": lambda x, v: negated(call("sin", x)),
    "tan": lambda x, v: 1.0 + v * v,
    "asin": lambda x, v: 1.0 / call("sqrt", 1.0 - x * x),
    "acos": lambda x, v: -1.0 / call("sqrt", 1.0 - x * x),
    "atan": lambda x, v: 1.0 / (1.0 + x * x),
    "sinh": lambda x, v: call("cosh", x),
    "cosh": lambda x, v: call("sinh", x),
    "tanh": lambda x, v: 1.0 - v * v,
    "asinh": lambda x, v: 1.0 / call("sqrt", x * x + 1.0),
    "acosh": lambda x, v: 1.0 / call("sqrt", x * x - 1.0),
    "atanh": lambda x, v: 1.0 / (1.0 - x * x),
    "sigmoid": lambda x, v: v * (1.0 - v),
    "erf": lambda x, v: (2.0 / math.sqrt(math.pi)) * call("exp", negated(x * x)),
    "abs": lambda x, v: _sign(x),
}

# name -> the factors of the operands x, y, ... and the value v
_SEVERAL: dict[str, Callable[..., tuple[Partial, ...]]] = {
    "pow": lambda x, y, v: (_power(x, y), _exponent(x, v)),
    "atan2": lambda y, x, v: (x / (x * x + y * y), negated(y / (x * x + y * y))),
    "hypot": lambda x, y, v: (x / v, y / v),
    "copysign": lambda x, y, v: (_sign(x) * call("copysign", 1.0, y), None),
    "fma": lambda a, b, c, v: (b, a, _number(1, v)),
}


def of_call(node: Call) -> tuple[Partial, ...]:
    """The factor of every operand of an intrinsic."""
    if node.name in _UNARY:
        return (_UNARY[node.name](node.args[0], node),)
    return _SEVERAL[node.name](*node.args, node) if node.name in _SEVERAL else (None,) * len(node.args)


def of_binary(node: Binary) -> tuple[Partial, Partial]:
    """The factors of both operands of arithmetic on floats (min and max are choices, not here)."""
    a, b, one = node.a, node.b, _number(1, node)
    match node.op:
        case "add":
            return one, one
        case "sub":
            return one, _number(-1, node)
        case "mul":
            return b, a
        case "div":
            return 1.0 / b, negated(a / (b * b))
        case "floormod":
            return one, negated(call("floor", a / b))
        case "truncmod":
            return one, negated(call("trunc", a / b))
    return None, None


def of_choice(node: Select | Binary) -> tuple[tuple[Expr, Expr], tuple[Expr, Expr]]:
    """The two values that a choice picks from, each with its condition; of min and max, the first takes ties."""
    match node:
        case Select():
            first, a, b = node.cond, node.then, node.orelse
        case Binary():
            first, a, b = binary("le" if node.op == "min" else "ge", node.a, node.b), node.a, node.b
    return (a, first), (b, Unary("not", first, "bool"))
