"""Checks of what a user writes; every refusal names the user's line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tensorlang import dtypes
from tensorlang.errors import DefinitionError, shown
from tensorlang.ir.expr import Expr, as_expr
from tensorlang.ir.traverse import excess
from tensorlang.location import Location, caller

_AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TENSOR_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_OUTPUT_SUFFIX = re.compile(r"\.v\d+")


def check_axis_name(what: str, name: Any) -> str:
    """Return the name of an axis or a size, after checking that it is an ASCII identifier."""
    if not isinstance(name, str) or not _AXIS_NAME.fullmatch(name):
        raise DefinitionError(f"the name of a {what} must be letters, digits and _, got {name!r}", caller())
    return name


def check_array_name(name: Any) -> str:
    """Return the name of an array, one of several outputs of an operation too: letters, digits, `_` and `.`."""
    if not isinstance(name, str) or not _TENSOR_NAME.fullmatch(name):
        raise DefinitionError(f"a tensor's name must be letters, digits, _ and ., got {name!r}", caller())
    return name


def check_tensor_name(name: Any) -> str:
    """Return the name of an operation: letters, digits, `_` and `.`; `.v0` is kept for one of several outputs."""
    checked = check_array_name(name)
    if _OUTPUT_SUFFIX.search(checked):
        raise DefinitionError(f"the name {name!r} is kept for one of several outputs; choose another", caller())
    return checked


def check_read(name: str, rank: int, index: tuple[Any, ...]) -> tuple[Expr, ...]:
    """Return the index of a read as expressions, after checking its rank and its integer dtype."""
    if len(index) != rank:
        whole = "; index it where an element is wanted; topi has functions of whole tensors (topi.cast)"
        hint = whole if not index else f"; give {rank}, as in {name}[{', '.join(f'i{n}' for n in range(rank))}]"
        raise DefinitionError(f"{name} has {rank} dimensions, indexed with {len(index)}{hint}", caller())
    try:
        parts = tuple(as_expr(i) for i in index)
    except DefinitionError as error:
        usual = f"an index is one that the function takes, or made of these: {name}[i + 1]"
        raise DefinitionError(f"{name} is indexed with {shown(index)}: {error.message}; {usual}", caller()) from None
    for part in parts:
        if not dtypes.info(part.dtype).is_integer:
            usual = "cast it to an integer, as by te.cast(x, 'int32')"
            text = f"{name} is indexed with {part} of dtype {part.dtype}; {usual}"
            raise DefinitionError(text, caller())
    return parts


def check_length(name: str, values: Sequence[Expr], where: Location | None) -> None:
    """Refuse what an operation computes if that is more than can be compiled."""
    wrong = excess(values)
    if wrong:
        advice = "give a part of it a te.compute of its own, or write a sum over te.reduce_axis"
        raise DefinitionError(f"{name} is made of {wrong}; {advice}", where)
