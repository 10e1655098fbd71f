"""Binary operators of expressions: their kinds, how they are written, and what they make of Python's integers."""

from __future__ import annotations

import operator
from collections.abc import Callable

ARITHMETIC = ("add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
BITWISE = ("bitand", "bitor", "bitxor", "shl", "shr")
LOGICAL = ("and", "or")
DIVISION = ("floordiv", "floormod", "truncdiv", "truncmod")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")

SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "floormod": "%", "bitand": "&", "bitor": "|",
    "bitxor": "^", "shl": "<<", "shr": ">>", "and": "and", "or": "or",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
RANK = {
    "or": 1, "and": 2, "eq": 4, "ne": 4, "lt": 4, "le": 4, "gt": 4, "ge": 4, "bitor": 5, "bitxor": 6, "bitand": 7,
    "shl": 8, "shr": 8, "add": 9, "sub": 9, "mul": 10, "div": 10, "floordiv": 10, "floormod": 10,
}  # fmt: skip
"""How tightly an operator binds, as in Python."""

ON_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
}
"""Arithmetic that is done ahead; the caller sees to divisors of 0."""


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _floormod(a: int, b: int) -> int:
    return a % b if b else 0


AT_RUN_TIME: dict[str, Callable[[int, int], int]] = {
    **ON_INTEGERS,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    **{name: getattr(operator, name) for name in COMPARE},
}
"""What kernels compute of integers that do not wrap: divided by 0 they are 0."""
