"""What the library's functions are given, held against their signatures before anything is made of it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from tensorlang import dtypes
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import AsExpr, Const, Expr
from tensorlang.location import caller
from tensorlang.target.spec import Target
from tensorlang.te import math
from tensorlang.te.examples import with_example
from tensorlang.te.operation import Tensor
from tensorlang.topi.examples import EXAMPLES

P = ParamSpec("P")
R = TypeVar("R")
_ALSO = {
    "Filter": ("weight", "kernel"),
    "Input": ("data",),
    "a": ("data", "tensors"),
    "current_layout": ("src_layout",),
    "desired_layout": ("dst_layout",),
    "filter": ("weight",),
    "inp": ("data",),
    "input": ("data",),
    "kernel": ("weight",),
    "lhs": ("x",),
    "n": ("rhs",),
    "out_dtype": ("dtype",),
    "rhs": ("y",),
    "stride": ("strides",),
    "strides": ("stride",),
    "tensor": ("array",),
    "tensor_a": ("a",),
    "tensor_b": ("b",),
    "transp_a": ("transpose_a",),
    "transp_b": ("transpose_b",),
    "weight": ("kernel",),
    "x": ("lhs", "data"),
    "y": ("rhs",),
}
"""Words that programs of classic te call parameters by, and what they are here where they are no parameters."""
_DTYPES = ("dtype", "out_dtype")
"""Parameters that name a dtype: whatever NumPy takes for one will do."""
ROOMS = ("random", "sparse", "vision")
"""Rooms of the library with names of their own: `topi.vision.non_max_suppression`."""
_UNFIT = object()
_WORDS: dict[Any, tuple[str, str]] = {
    Tensor: ("a tensor", "tensors"),
    bool: ("True or False", "truth values"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a word", "words"),
    Target: ("a target", "targets"),
    Expr: ("an expression", "expressions"),
    types.NoneType: ("None", "None"),
}
"""How messages name the kinds of arguments: one of them, several."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The function, for arguments of the kinds that it declares; DefinitionError for others, with what to do."""
    signature = inspect.signature(function)
    function.__doc__ = with_example(function.__name__, function.__doc__ or "", EXAMPLES)

    @wraps(function)
    def held(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **_renamed(kwargs, signature))
        except TypeError:
            return function(*args, **kwargs)  # Python says what is missing, or too much
        hints = _hints(function)
        for name, value in given.arguments.items():
            given.arguments[name] = _argument(function, name, value, hints[name], given.arguments.values())
        return function(*given.args, **given.kwargs)

    return held


def _renamed(kwargs: dict[str, Any], signature: inspect.Signature) -> dict[str, Any]:
    """Arguments by the names that parameters have here."""
    known = signature.parameters
    if all(name in known for name in kwargs):
        return kwargs
    free = {name: [word for word in _ALSO.get(name, ()) if word in known and word not in kwargs] for name in kwargs}
    return {name if name in known or not free[name] else free[name][0]: value for name, value in kwargs.items()}


def named(name: str, doc: str, function: Callable[P, R]) -> Callable[P, R]:
    """A checked function that a table makes, under the name and with the text that users see."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return checked(function)


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(function, localns={"Expr": Expr, "AsExpr": AsExpr})
    several = (p for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_POSITIONAL)
    return hints | {p.name: types.GenericAlias(Sequence, (hints[p.name],)) for p in several}


def _argument(function: Callable[..., Any], name: str, value: Any, hint: Any, given: Iterable[Any]) -> Any:
    if name in _DTYPES and value is not None and hint is not Tensor:
        return dtypes.canonical(value)
    found = fitted(value, hint)
    if found is _UNFIT:
        wanted, got = _words(hint), f"{type(value).__name__} {' '.join(shown(value).split())}"
        advice = _advice(function, name, value, wanted, given)
        raise DefinitionError(f"{_path(function)} takes {wanted} for {name}, got {got}; {advice}", caller())
    return found


def fitted(value: Any, hint: Any) -> Any:
    """A value as a parameter of that type takes it: constants and NumPy's numbers become Python's."""
    if get_origin(hint) in (Union, types.UnionType):
        found = (fitted(value, one) for one in get_args(hint))
        return next((one for one in found if one is not _UNFIT), _UNFIT)
    if get_origin(hint) is Callable:
        return value if callable(value) else _UNFIT
    if get_origin(hint) is not None:
        return _fitted_sequence(value, get_args(hint)[0])
    plain = value.value if isinstance(value, Const) else value.item() if isinstance(value, np.generic) else value
    if hint is bool:
        return plain if isinstance(plain, int) and plain in (0, 1) else _UNFIT
    if hint is int:
        return plain if isinstance(plain, int) and not isinstance(plain, bool) else _UNFIT
    if hint is float:
        return plain if isinstance(plain, int | float) and not isinstance(plain, bool) else _UNFIT
    return value if isinstance(value, hint) else _UNFIT


def _fitted_sequence(value: Any, item: Any) -> Any:
    if isinstance(value, np.ndarray) and item is not Tensor:
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str):
        return _UNFIT
    found = [fitted(one, item) for one in value]
    return _UNFIT if any(one is _UNFIT for one in found) else tuple(found) if isinstance(value, tuple) else found


def _words(hint: Any, several: bool = False) -> str:
    parts = get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint][several]
    if get_origin(hint) is Callable:
        return "functions" if several else "a function"
    if isinstance(hint, type) and not parts:
        return hint.__name__
    if get_origin(hint) not in (Union, types.UnionType):
        return f"a sequence of {_words(parts[0], several=True)}"
    if Expr in parts:
        parts = (float, Expr, *(part for part in parts if get_origin(part)))
    return " or ".join(_words(part, several) for part in parts)


def _advice(function: Callable[..., Any], name: str, value: Any, wanted: str, given: Iterable[Any]) -> str:
    called = f"{_path(function)}({', '.join(map(_written, inspect.signature(function).parameters.values()))})"
    if "tensor" not in wanted:
        return f"call {called}"
    if isinstance(value, np.ndarray):
        declared = f'te.placeholder({value.shape}, name="{name}", dtype="{value.dtype}")'
        return f"declare {declared}, and give the array to the function that tensorlang.build returns"
    if hasattr(value, "__dlpack__"):
        return f"arrays are what tensorlang.kernel({_path(function)}) takes, tensors are what te.placeholder returns"
    word = next((x.name for x in given if isinstance(x, Tensor)), None)
    if word and isinstance(value, int | float | np.generic) and hasattr(math, function.__name__):
        return f"for a number write te.compute({word}.shape, lambda *i: te.{function.__name__}({word}(*i), ...))"
    return f"call {called} with what te.placeholder, te.compute or a function of topi returned"


def _path(function: Callable[..., Any]) -> str:
    """The name by which a function of the library is called: topi.exp, topi.vision.roi_pool_nchw."""
    room = next((room for room in ROOMS if function.__module__.startswith(f"tensorlang.topi.{room}.")), None)
    return f"topi.{room}.{function.__name__}" if room else f"topi.{function.__name__}"


def _written(parameter: inspect.Parameter) -> str:
    value = parameter.default
    word = f"te.{value.__name__}" if inspect.isfunction(value) else repr(value)
    return parameter.name if value is parameter.empty else f"{parameter.name}={word}"
