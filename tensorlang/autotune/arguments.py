"""Arguments of the functions that make programs, as records and logs spell them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from tensorlang import te
from tensorlang.ir.expr import Const
from tensorlang.te.operation import Tensor

Argument = int | float | str
TENSOR = "TENSOR"
_OPENING = ("(", "[", "None")


def spelt(args: Iterable[Any]) -> tuple[Argument, ...]:
    """Arguments as a record holds them: numbers and texts, the rest as Python text."""
    return tuple(a if isinstance(a, int | float | str) else repr(_described(a)) for a in args)


def meant(words: Iterable[Argument]) -> tuple[Any, ...]:
    """The arguments that a record spells: texts of tuples, lists and None are what they say."""
    return tuple(_meant(word) for word in words)


def with_tensors(function: Callable[..., Any], args: Iterable[Any]) -> list[Any]:
    """Arguments with an input for each `("TENSOR", shape, dtype)`, which is how TVM's logs write one.

    An input is named after the parameter that takes it: programs of other names are others.
    """
    names = _parameters(function)
    made: list[Any] = []
    for number, arg in enumerate(args):
        match arg:
            case [str(word), [*shape], str(dtype)] if word == TENSOR:
                name = names[number] if number < len(names) else f"arg{number}"
                made.append(te.placeholder(tuple(shape), dtype, name=name))
            case _:
                made.append(arg)
    return made


def _parameters(function: Callable[..., Any]) -> list[str]:
    """The names of the parameters of a function that are passed by place; none where Python does not tell."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _described(arg: Any) -> Any:
    if not isinstance(arg, Tensor):
        return arg
    return TENSOR, tuple(n.value if isinstance(n, Const) else n for n in arg.shape), arg.dtype


def _meant(word: Argument) -> Any:
    if not isinstance(word, str) or not word.startswith(_OPENING):
        return word
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word
