"""Functions of NumPy and of Python that meet an expression: operators go on, others name their like in te."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from types import BuiltinFunctionType
from typing import Any, NoReturn

import numpy as np

from tensorlang.errors import ValueWanted
from tensorlang.location import caller, evaluated, meaning
from tensorlang.names import has

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
_OF_ARRAYS = {
    "amax": "te.max",
    "amin": "te.min",
    "clip": "te.maximum and te.minimum, or topi.clip",
    "dot": "topi.matmul",
    "max": "te.max",
    "mean": "topi.mean",
    "min": "te.min",
    "prod": "te.prod",
    "sum": "te.sum",
    "where": "te.if_then_else or te.select",
}
"""Function of NumPy's that is no ufunc -> what to use; those of topi have the names of NumPy's."""


class ForeignFunctions:
    """What stands in an expression, where a function of another module is called on it."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        called = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        if called not in _OPERATORS:
            name = _IN_TE.get(called)
            use = f"use te.{name}" if name else _UNKNOWN
            _refuse(f"np.{called} computes numbers, not expressions of a program; {use}")
        if any(np.ndim(x) for x in inputs if isinstance(x, np.ndarray)):
            return ufunc(*(_boxed(x) if isinstance(x, ForeignFunctions) else x for x in inputs), **options)
        return _OPERATORS[called](*(x.item() if isinstance(x, np.generic | np.ndarray) else x for x in inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> NoReturn:
        name = function.__name__
        use = _OF_ARRAYS.get(name, f"topi.{name}" if has("topi", name) else "")
        called = f"{function.__module__.replace('numpy', 'np', 1)}.{name}"
        _refuse(f"{called} computes arrays, not expressions of a program; {f'use {use}' if use else _UNKNOWN}")

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), options: Any = None) -> NoReturn:
        name = getattr(function, "__name__", "").strip("_")
        numpy = _OF_TORCH.get(name, name)
        known = _IN_TE.get(numpy) or (numpy if has("te", numpy) else "")
        use = _OF_ARRAYS.get(numpy) or (f"te.{known}" if known else f"topi.{name}" if has("topi", name) else "")
        use = f"use {use}" if use else _UNKNOWN
        if any(type(x).__module__.partition(".")[0] == "torch" for x in args):
            use = "declare the tensor as te.placeholder(shape), and give it to the function that build returns"
        _refuse(f"torch.{name} computes tensors of PyTorch, not expressions of a program; {use}")

    def __float__(self) -> NoReturn:
        _refuse_math()
        _refuse("a float is wanted, and this is an expression, without a value yet; .astype('float32') converts it")

    def __int__(self) -> int:
        _refuse("an int is wanted, and this is an expression, without a value yet; .astype('int32') converts it")

    def __index__(self) -> int:
        match evaluated():
            case ast.Call(func=ast.Name(id="range")):
                _refuse(
                    "range() counts to a number, not to an expression; use te.reduce_axis((0, n)) for what is summed, "
                    "or te.hybrid.script, which takes loops as they are"
                )
            case ast.Subscript(value=array):
                _refuse(_no_index(array))
        _refuse_math()
        _refuse("an int is wanted, and this is an expression, without a value yet; .astype('int32') converts it")

    def __iter__(self) -> NoReturn:
        match evaluated():
            case ast.Call(func=ast.Name(id=name)) if name in _OVER_AXES:
                _refuse(f"{name}() goes over numbers, not over an expression; use {_OVER_AXES[name]}")
        _refuse(
            "a loop goes over elements, and these are declared all at once: te.compute(shape, lambda i: ...) has an "
            "index for each, te.reduce_axis runs over what is summed, and te.hybrid.script takes loops as they are"
        )

    def __contains__(self, item: object) -> NoReturn:
        _refuse(
            "`in` asks for elements, which a program does not have yet; compare, and join by te.any(a == 1, a == 2)"
        )

    def __matmul__(self, other: Any) -> NoReturn:
        _refuse("@ multiplies matrices of numbers; use topi.matmul(A, B)")

    def __rmatmul__(self, other: Any) -> NoReturn:
        _refuse("@ multiplies matrices of numbers; use topi.matmul(A, B)")

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        _refuse(
            "elements are not assigned, they are declared: te.compute(shape, lambda i: ...) gives all of them, and "
            "te.hybrid.script takes assignments as they are"
        )

    def __abs__(self) -> NoReturn:
        _refuse("abs() computes numbers, not expressions of a program; use te.abs")

    def __trunc__(self) -> NoReturn:
        _refuse("math.trunc() computes numbers, not expressions of a program; use te.trunc")

    def __round__(self, digits: int | None = None) -> NoReturn:
        _refuse("round() computes numbers, not expressions of a program; use te.round")

    def __pow__(self, power: Any) -> NoReturn:
        _refuse("** computes numbers, not expressions of a program; use te.power, or a product")

    def __rpow__(self, base: Any) -> NoReturn:
        _refuse("** computes numbers, not expressions of a program; use te.power")


_UNKNOWN = "write it with the functions of te"
_OF_TORCH = {"abs": "absolute", "acos": "arccos", "asin": "arcsin", "atan": "arctan", "round": "rint", "clamp": "clip"}
"""Function of torch -> the function of NumPy that does the same, where it has another name."""
_OF_MATH = {"fabs": "abs", "pow": "power"}
"""Function of math -> the function of te, where it has another name."""
_OVER_AXES = {
    "sum": "te.sum(..., axis=k) over k = te.reduce_axis((0, n))",
    "max": "te.max(..., axis=k) over k = te.reduce_axis((0, n)), or te.maximum(a, b)",
    "min": "te.min(..., axis=k) over k = te.reduce_axis((0, n)), or te.minimum(a, b)",
}


def in_place_of(value: object) -> str:
    """What to write in place of a value that is no expression."""
    if isinstance(value, np.ndarray) or type(value).__module__ == "torch":
        shape = tuple(getattr(value, "shape", ()))
        return f"declare the array as te.placeholder({shape}), and give it to the function that build returns"
    if isinstance(value, slice):
        return (
            "each dimension has an index: te.sum(A[i, k], axis=k) goes over k = te.reduce_axis((0, n)), and "
            "topi.strided_slice takes a part of a tensor"
        )
    if isinstance(value, str) and value.isidentifier():
        return f"te.var({value!r}) is a size of that name, te.const(1, 'float32') a number"
    return "expressions are made of numbers, axes and elements, as in A[i] * 2 + i"


def is_iterable(value: object) -> bool:
    """Whether a loop may go over a value: what stands in an expression refuses, in words."""
    return isinstance(value, Iterable) and not isinstance(value, ForeignFunctions)


def explain_index(raised: IndexError) -> None:
    """Refuse an expression as the index of an array, where that was raised: NumPy drops what `__index__` said."""
    match evaluated(raised):
        case ast.Subscript(value=array, slice=index) if "integer" in str(raised):
            parts = (meaning(part, raised) for part in ast.walk(index) if isinstance(part, ast.expr))
            if any(isinstance(p, ForeignFunctions) for part in parts for p in _flat(part)):
                raise ValueWanted(_no_index(array), caller(raised)) from None


not_known: ContextVar[frozenset[int]] = ContextVar("tensorlang_not_known", default=frozenset())
"""Variables of the axes of an operation, by identity, while its elements are declared: nobody knows what they equal."""


def elements(function: Callable[..., Any], variables: Sequence[Any], *first: Any) -> Any:
    """What a function of indices declares; questions about these, and arrays indexed by them, are explained."""
    token = not_known.set(not_known.get() | set(map(id, variables)))
    try:
        return function(*first, *variables)
    except IndexError as error:
        explain_index(error)
        raise
    finally:
        not_known.reset(token)


def no_truth(dtype: str) -> NoReturn:
    """Refuse to test an expression: its value is not known while the program is written."""
    _refuse(f"an expression of dtype {dtype} has no truth value while the program is being written; {_instead()}")


def _instead() -> str:
    """What to write in place of what Python evaluates."""
    match evaluated():
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[_, _] as args):
            return f"use te.{name}imum({_listed(args)}) instead of {name}()"
        case ast.Call(func=ast.Name(id="any" | "all" as name)):
            return f"use te.{name}(a, b, ...) instead of {name}()"
        case ast.BoolOp(op=ast.And(), values=values):
            return f"use te.all({_listed(values)}) instead of `and`"
        case ast.BoolOp(values=values):
            return f"use te.any({_listed(values)}) instead of `or`"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"use ~({ast.unparse(operand)}) instead of `not`"
        case ast.Compare(left=left, ops=[_, _, *_] as ops, comparators=terms):
            pairs = zip([left, *terms], ops, terms, strict=False)
            tests: list[ast.expr] = [ast.Compare(a, [op], [b]) for a, op, b in pairs]
            return f"a chain of comparisons is an `and`: use te.all({_listed(tests)})"
        case ast.Compare() as test:
            return f"use te.if_then_else({ast.unparse(test)}, a, b) instead of `a if test else b` and `if test:`"
    return (
        "use te.if_then_else, te.all, te.any or ~ instead of Python's if, and, or, not, and te.maximum or te.minimum "
        "instead of max() or min()"
    )


def _no_index(array: ast.expr) -> str:
    return (
        f"{ast.unparse(array)} holds values, of which an index of a program picks none; declare the array as "
        "te.placeholder(shape), and index that"
    )


def _refuse_math() -> None:
    """Refuse to be an argument of a function of math, if it is one that is called."""
    match evaluated():
        case ast.Call(func=called, args=args):
            function = meaning(called)
            if isinstance(function, BuiltinFunctionType) and function.__module__ == "math":
                use = _in_place_of_math(function.__name__, args)
                _refuse(f"{ast.unparse(called)} computes numbers, not expressions of a program; {use}")


def _in_place_of_math(function: str, args: Sequence[ast.expr]) -> str:
    name = _OF_MATH.get(function, function)
    match name, args:
        case "log", [_, _]:
            rooms = ("math" if isinstance(meaning(a), int | float) else "te" for a in args)
            return "use " + " / ".join(f"{room}.log({ast.unparse(a)})" for room, a in zip(rooms, args, strict=True))
    return f"use te.{name}({_listed(args)})" if has("te", name) else _UNKNOWN


def _flat(value: object) -> Sequence[object]:
    return value if isinstance(value, tuple | list) else (value,)


def _listed(parts: Sequence[ast.expr]) -> str:
    return ", ".join(map(ast.unparse, parts))


def _boxed(value: ForeignFunctions) -> Any:
    """An expression as an array without dimensions, so that NumPy applies its operators."""
    box = np.empty((), object)
    box[()] = value
    return box


def _refuse(text: str) -> NoReturn:
    raise ValueWanted(text, caller())
