"""Functions of NumPy and of Python that meet an expression: operators go on, others name their like in te."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tensorlang.errors import DefinitionError
from tensorlang.location import caller

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "divide": operator.truediv,
    "equal": operator.eq,
    "floor_divide": operator.floordiv,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "invert": operator.invert,
    "left_shift": operator.lshift,
    "less": operator.lt,
    "less_equal": operator.le,
    "multiply": operator.mul,
    "negative": operator.neg,
    "not_equal": operator.ne,
    "remainder": operator.mod,
    "right_shift": operator.rshift,
    "subtract": operator.sub,
}
"""Ufuncs that stand for an operator: NumPy calls them where a number of its own comes first, `np.float32(2) * x`."""
_SAME = ("exp", "exp2", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor")
_ALIKE = ("ceil", "trunc", "maximum", "minimum", "isnan", "isinf", "isfinite", "power")
_IN_TE = dict(zip((*_SAME, *_ALIKE), (*_SAME, *_ALIKE), strict=True)) | {
    "absolute": "abs",
    "add.reduce": "sum",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "fabs": "abs",
    "fmax": "maximum",
    "fmin": "minimum",
    "fmod": "truncmod",
    "logical_and": "all",
    "logical_or": "any",
    "maximum.reduce": "max",
    "minimum.reduce": "min",
    "rint": "round",
}
"""Ufunc -> the function of te."""
NO_TRUTH = (
    "use te.if_then_else, te.all, te.any or ~ instead of Python's if, and, or, not (a < b < c is an and), and "
    "te.maximum or te.minimum instead of max() or min()"
)


class ForeignFunctions:
    """What stands in an expression, where a function of another module is called on it."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        called = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        if called not in _OPERATORS:
            name = _IN_TE.get(called)
            use = f"use te.{name}" if name else "write it with the functions of te"
            _refuse(f"np.{called} computes numbers, not expressions of a program; {use}")
        if any(np.ndim(x) for x in inputs if isinstance(x, np.ndarray)):
            return ufunc(*(_boxed(x) if isinstance(x, ForeignFunctions) else x for x in inputs), **options)
        return _OPERATORS[called](*(x.item() if isinstance(x, np.generic | np.ndarray) else x for x in inputs))

    def __float__(self) -> float:
        _refuse(
            "a float is wanted, and this is an expression, whose value is not known yet: functions of math have their "
            "like in te (te.sqrt, te.exp, te.floor, ...), and .astype('float32') converts"
        )

    def __abs__(self) -> NoReturn:
        _refuse("abs() computes numbers, not expressions of a program; use te.abs")

    def __round__(self, digits: int | None = None) -> NoReturn:
        _refuse("round() computes numbers, not expressions of a program; use te.round")

    def __pow__(self, power: Any) -> NoReturn:
        _refuse("** computes numbers, not expressions of a program; use te.power, or a product")

    def __rpow__(self, base: Any) -> NoReturn:
        _refuse("** computes numbers, not expressions of a program; use te.power")


def _boxed(value: ForeignFunctions) -> Any:
    """An expression as an array without dimensions, so that NumPy applies its operators."""
    box = np.empty((), object)
    box[()] = value
    return box


def _refuse(text: str) -> NoReturn:
    raise DefinitionError(text, caller())
