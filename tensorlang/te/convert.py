"""runtime.convert: Python values as what programs are made of."""

from __future__ import annotations

from typing import Any

from tensorlang.ir.expr import as_expr


def convert(value: Any) -> Any:
    """Return numbers as constants, lists and tuples as tuples of converted values, anything else as it is."""
    match value:
        case bool() | int() | float():
            return as_expr(value)
        case list() | tuple():
            return tuple(convert(v) for v in value)
        case dict():
            return {k: convert(v) for k, v in value.items()}
    return value
