"""The values of a script's expressions, and how they combine.

A value is a plain Python object (a number, a tuple, a string), a strong expression (an element of an array, a cast),
or a `Weak` one: a number that Python itself would compute, as loop variables, sizes and what is made of them. Weak
numbers are int64 or float64; beside a strong operand they take its dtype, as Python's literals do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir import expr as ir
from tensorlang.ir.expr import Binary, Cast, Const, Expr, Load, Unary, walk
from tensorlang.ir.intrinsics import call
from tensorlang.ir.operators import COMPARE
from tensorlang.te.operation import Read, constant


@dataclass(frozen=True, slots=True)
class Weak:
    """A number of Python's, known when the program runs: its expression is int64 or float64."""

    expr: Expr


Value: TypeAlias = Any  # a Python object, an Expr, or a Weak

_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "floordiv": operator.floordiv, "floormod": operator.mod, "bitand": operator.and_, "bitor": operator.or_,
    "bitxor": operator.xor, "shl": operator.lshift, "shr": operator.rshift,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_KINDS = (bool, int, float)
_MOST_FACTORS = 16


def is_number(value: Value) -> bool:
    """Whether a value is a Python number, known now."""
    return isinstance(value, bool | int | float) and not isinstance(value, np.generic)


def is_known(value: Value) -> bool:
    """Whether a value is known now, so that Python's truth value of it is meant."""
    return value is None or isinstance(value, bool | int | float | str | tuple)


def is_scalar(value: Value) -> bool:
    """Whether a value is one number, known now or at run time."""
    return is_number(value) or isinstance(value, Expr | Weak)


def weak_kind(value: Value) -> type | None:
    """bool, int or float for a number of Python's; None for a strong expression."""
    if isinstance(value, Weak):
        return float if value.expr.dtype == "float64" else int
    return type(value) if is_number(value) else None


def weakened(expr: Expr) -> Value:
    """The value of an expression over Python's numbers."""
    return Weak(expr) if expr.dtype in ("int64", "float64") else expr


def literal_dtype(kind: type, strong: str) -> str:
    """The dtype of a Python number beside an expression of dtype `strong`."""
    row = dtypes.info(strong)
    if kind is float and not row.is_float:
        return "float32"
    return "int32" if kind is int and row.kind == "bool" else strong


def python_dtype(kinds: Iterable[type]) -> str:
    """The dtype in which Python computes with numbers of these kinds."""
    widest = max(kinds, key=_KINDS.index)
    return {bool: "bool", int: "int64", float: "float64"}[widest]


def to_dtype(value: Value, dtype: str) -> Expr:
    """A scalar as an expression of a dtype."""
    if isinstance(value, Weak):
        return ir.cast(value.expr, dtype)
    if is_number(value):
        return ir.const(value, dtype)
    return ir.cast(value, dtype)


def common_dtype(values: Iterable[Value]) -> str | None:
    """The dtype of the strong operands together; None if there are none."""
    strong = [v.dtype for v in values if isinstance(v, Expr)]
    return reduce(dtypes.promote, strong) if strong else None


def operands(values: list[Value], python: str) -> list[Expr]:
    """Operands as expressions: weak ones take the dtype of the strong ones, or `python` if all are weak."""
    strong = common_dtype(values)
    made = []
    for value in values:
        kind = weak_kind(value)
        if kind is None:
            made.append(value)
        else:
            made.append(to_dtype(value, python if strong is None else literal_dtype(kind, strong)))
    return made


def binary(op: str, a: Value, b: Value) -> Value:
    """`a op b`, for an operation of ir.expr."""
    if is_number(a) and is_number(b):
        return _folded(op, a, b)
    if op == "pow":
        return _power(a, b)
    kinds = [weak_kind(v) for v in (a, b)]
    if None in kinds:
        if op in COMPARE and all(_is_integer(v) for v in (a, b)):
            # Python compares its own integers with any others exactly.
            return ir.binary(op, *(v.expr if isinstance(v, Weak) else v for v in (a, b)))
        return ir.binary(op, *operands([a, b], ""))
    python = "float64" if op == "div" else python_dtype([k for k in kinds if k is not None])
    return weakened(ir.binary(op, to_dtype(a, python), to_dtype(b, python)))


def _folded(op: str, a: Any, b: Any) -> Value:
    try:
        return a**b if op == "pow" else max(a, b) if op == "max" else min(a, b) if op == "min" else _FOLD[op](a, b)
    except ZeroDivisionError:
        raise DefinitionError(f"division by zero: {a} {op} {b}") from None
    except TypeError:
        raise DefinitionError(f"Python has no {op} of {a!r} and {b!r}") from None


def _is_integer(value: Value) -> bool:
    expr = value.expr if isinstance(value, Weak) else value
    return isinstance(expr, Expr) and dtypes.info(expr.dtype).is_integer


def _power(a: Value, b: Value) -> Value:
    """`a ** b`: of floats the intrinsic, of an integer the product of it with itself."""
    both = operands([a, b], "float64" if float in (weak_kind(a), weak_kind(b)) else "int64")
    if any(dtypes.info(e.dtype).is_float for e in both):
        result = call("pow", *both)
    elif isinstance(b, int) and 1 <= b <= _MOST_FACTORS:
        result = reduce(lambda x, y: ir.binary("mul", x, y), [both[0]] * b)
    else:
        raise DefinitionError(
            f"an integer is raised to a constant from 1 to {_MOST_FACTORS}; cast it first, as float64(x) ** y"
        )
    return result if common_dtype([a, b]) else weakened(result)


def negative(value: Value) -> Value:
    """`-value`."""
    if is_number(value):
        return -value
    return Weak(-value.expr) if isinstance(value, Weak) else -value


def inverted(value: Value) -> Value:
    """`~value`."""
    if isinstance(value, bool | int):
        return not value if isinstance(value, bool) else ~value
    if isinstance(value, Weak):
        return Weak(~value.expr)
    return ~ir.as_expr(value)


def choice(cond: Expr, then: Value, orelse: Value) -> Value:
    """`then if cond else orelse`; the branch not taken reads nothing."""
    kinds = [k for k in map(weak_kind, (then, orelse)) if k is not None]
    x, y = operands([then, orelse], python_dtype(kinds) if kinds else "")
    result = ir.select(cond, x, y)
    return result if common_dtype([then, orelse]) else weakened(result)


def condition(value: Value) -> Expr:
    """A value as a condition."""
    if isinstance(value, bool):
        return ir.const(value)
    expr = value.expr if isinstance(value, Weak) else value
    if not isinstance(expr, Expr) or expr.dtype != "bool":
        dtype = f" of dtype {expr.dtype}" if isinstance(expr, Expr) else ""
        raise DefinitionError(f"a condition must be bool, got {expr}{dtype}; compare it, as in x != 0")
    return expr


def conjunction(parts: list[Expr]) -> Expr:
    """All of the conditions, from left to right: a part that reads an array does so where those before hold."""
    return reduce(lambda x, y: _guarded(x, y, False), parts)


def disjunction(parts: list[Expr]) -> Expr:
    """One of the conditions, from left to right: a part that reads an array does so where those before fail."""
    return reduce(lambda x, y: _guarded(x, y, True), parts)


def _guarded(x: Expr, y: Expr, otherwise: bool) -> Expr:
    if not reads_memory(y):
        return ir.binary("or" if otherwise else "and", x, y)
    known = ir.const(otherwise)
    return ir.select(x, known, y) if otherwise else ir.select(x, y, known)


def apply(function: Callable[..., Any], wants_float: bool, args: list[Value]) -> Value:
    """A function of te on values of which one at least is no Python number."""
    kinds = [k for k in map(weak_kind, args) if k is not None]
    python = "float64" if wants_float else python_dtype(kinds or [int])
    if common_dtype(args) is None:
        return weakened(function(*(to_dtype(a, python) for a in args)))
    # Python numbers that are known now are left to the function, which takes them as weak, too.
    made = [a if is_number(a) else e for a, e in zip(args, operands(args, python), strict=True)]
    return function(*made)


def index(value: Value) -> Expr:
    """A subscript as an int64 expression."""
    if isinstance(value, bool | float) or not is_scalar(value):
        raise DefinitionError(f"an index must be an integer, got {value!r}")
    if is_number(value) and value < 0:
        raise DefinitionError(
            f"index {value} counts from the end in Python, and is outside the array here; use A.shape"
        )
    expr = to_dtype(value, "int64") if weak_kind(value) else value
    if not dtypes.info(expr.dtype).is_integer:
        raise DefinitionError(f"an index must be an integer, got {expr} of dtype {expr.dtype}; cast it, as in int32(x)")
    return ir.cast(expr, "int64")


def extent(value: Value) -> Any:
    """An extent in the dtype of its sizes, as te writes shapes; what is no size is returned as it is."""
    return _narrow(value.expr) if isinstance(value, Weak) else value


def _narrow(expr: Expr) -> Expr:
    match expr:
        case Cast(value=size, dtype="int64") if size.dtype == "int32":
            return size
        case Const(dtype="int64"):
            return constant(int(expr.value))
        case Unary(op="neg"):
            return -_narrow(expr.a)
        case Binary():
            return ir.binary(expr.op, _narrow(expr.a), _narrow(expr.b))
    return expr


def reads_memory(value: Value) -> bool:
    """Whether a value depends on the elements of arrays."""
    expr = value.expr if isinstance(value, Weak) else value
    return isinstance(expr, Expr) and any(isinstance(node, Read | Load) for node in walk(expr))


def joined(dtype: str, weak: bool, value: Value) -> tuple[str, bool]:
    """The dtype of a local of `dtype` (of Python's numbers if `weak`) that takes `value` too, and if it stays weak."""
    kind = weak_kind(value)
    if not weak:
        return (dtypes.promote(dtype, value.dtype) if kind is None else literal_dtype(kind, dtype)), False
    own = {"bool": bool, "int64": int, "float64": float}[dtype]
    if kind is None and value.dtype != dtype:
        return literal_dtype(own, value.dtype), False
    return python_dtype([own, kind or own]), True
