"""Checks of what a user writes; every refusal names the user's line."""

from __future__ import annotations

from typing import Any

from tensorlang import dtypes
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, as_expr
from tensorlang.location import caller


def check_read(name: str, rank: int, index: tuple[Any, ...]) -> tuple[Expr, ...]:
    """Return the index of a read as expressions, after checking its rank and its integer dtype."""
    if len(index) != rank:
        raise DefinitionError(f"{name} has {rank} dimensions, indexed with {len(index)}", caller())
    parts = tuple(as_expr(i) for i in index)
    for part in parts:
        if not dtypes.info(part.dtype).is_integer:
            text = f"{name} is indexed with {part} of dtype {part.dtype}; cast it to an integer"
            raise DefinitionError(text, caller())
    return parts
