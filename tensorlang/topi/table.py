"""The table of the library: the operators that the command line knows by name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tensorlang.errors import DefinitionError
from tensorlang.topi.checked import ROOMS, checked
from tensorlang.topi.operator import Operator

_NAMES = (
    "activation",
    "attention",
    "broadcast",
    "conv2d",
    "dense",
    "depthwise",
    "gather",
    "mathematics",
    "matmul",
    "narrow_conv2d",
    "narrow_filters",
    "normalization",
    "pooling",
    "quantized",
    "reduction",
    "softmax",
    "transform",
)
"""The modules of the families; by name, since `topi.matmul` is the function."""

FAMILIES = tuple(import_module(f"tensorlang.topi.{name}") for name in _NAMES)
"""Each has `OPERATORS`, a tuple of Operator."""

OPERATORS: Mapping[str, Operator] = {op.name: op for family in FAMILIES for op in family.OPERATORS}


@checked
def operator(name: str) -> Operator:
    """Return the operator of that name, or raise DefinitionError with the nearest one.

    >>> from tensorlang import topi
    >>> topi.operator("matmul").sizes
    ('M', 'N', 'K')
    """
    if name in OPERATORS:
        return OPERATORS[name]
    near = difflib.get_close_matches(name, OPERATORS, 1)
    meant = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(OPERATORS)}"
    raise DefinitionError(f"unknown operator {name!r}{meant} (your own: path/to/file.py:function)")


def functions() -> dict[str, Callable[..., Any]]:
    """The functions of the library by name, those of its rooms as `room.name`."""
    found: dict[str, Callable[..., Any]] = {}
    for room in ("", *ROOMS):
        module = import_module(f"tensorlang.topi.{room}".rstrip("."))
        for name in module.__all__:
            if inspect.isfunction(value := getattr(module, name)):
                found[f"{room}.{name}".lstrip(".")] = value
    return found
