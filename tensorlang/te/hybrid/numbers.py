"""Functions of te on Python's and NumPy's numbers, with the meaning that they have in kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.ir.expr import Const, Expr, Var, as_expr
from tensorlang.ir.interpret_expr import Source, text
from tensorlang.ir.numpy_math import converted
from tensorlang.te.hybrid.values import common_dtype, is_number, literal_dtype, python_dtype


@lru_cache(maxsize=1024)
def _compiled(function: Callable[..., Any], types: tuple[str, ...]) -> tuple[Callable[..., Any], str]:
    """A scalar function of te as a Python function of numbers, and its result dtype."""
    operands = [Var(f"x{n}", dtype) for n, dtype in enumerate(types)]
    source = Source()
    names = [source.variable(var, of_index=False) for var in operands]
    expr: Expr = function(*operands)
    return eval(f"lambda {', '.join(names)}: {text(source, expr)}", source.globals), expr.dtype


def on_numbers(function: Callable[..., Any], wants_float: bool) -> Callable[..., Any]:
    """A scalar function of te on numbers: NumPy's have dtypes, Python's are weak, and alone give Python's."""

    def run(*args: Any) -> Any:
        values = [a[()] if isinstance(a, np.ndarray) else a for a in args]
        strong = common_dtype([Const(0, dtypes.canonical(v.dtype)) for v in values if isinstance(v, np.generic)])
        weak = "float64" if wants_float else python_dtype([type(v) for v in values if is_number(v)] or [int])
        types = tuple(
            (literal_dtype(type(v), strong) if strong else weak) if is_number(v) else dtypes.canonical(v.dtype)
            for v in values
        )
        compiled, dtype = _compiled(function, types)
        with np.errstate(all="ignore"):
            result = compiled(*(_operand(v, t) for v, t in zip(values, types, strict=True)))
        made = dtypes.info(dtype).numpy.type(result)
        return made if strong and dtype != "bool" else made.item()

    run.__name__ = function.__name__
    return run


def _operand(value: Any, dtype: str) -> Any:
    row = dtypes.info(dtype)
    if row.is_float:
        return row.numpy.type(value)
    return bool(value) if row.kind == "bool" else int(value)


def typed(value: Any, dtype: Any) -> Any:
    """A number as NumPy's of a dtype."""
    return converted(np.asarray(value), dtypes.canonical(dtype))[()]


def reinterpreted(dtype: Any, value: Any) -> Any:
    """The bits of a number of NumPy's as another dtype; those of a literal as it stands in an expression."""
    number = np.asarray(value, dtypes.info(as_expr(value).dtype).numpy)
    return number.view(dtypes.info(dtypes.canonical(dtype)).numpy)[()]
