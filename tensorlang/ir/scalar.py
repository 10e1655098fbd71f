"""The value of one scalar operation, as NumPy defines it. What the interpreter's generated Python calls.

Integers are Python ints inside the range of their dtype, bools are Python or NumPy bools, floats are NumPy
scalars of their dtype. Integer division by zero gives 0; so does a shift by the width or more (-1 for a
negative number shifted right).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.ir.numpy_math import truncated_quotient


def floordiv(a: int, b: int) -> int:
    """The quotient rounded down."""
    return a // b if b else 0


def floormod(a: int, b: int) -> int:
    """The remainder with the sign of `b`."""
    return a % b if b else 0


def truncdiv(a: int, b: int) -> int:
    """The quotient rounded towards zero."""
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def truncmod(a: int, b: int) -> int:
    """The remainder with the sign of `a`."""
    return a - truncdiv(a, b) * b if b else 0


def shl(a: int, b: int, bits: int) -> int:
    """`a << b` before wrapping."""
    return a << b if 0 <= b < bits else 0


def shr(a: int, b: int, bits: int) -> int:
    """`a >> b`, copying the sign."""
    return a >> b if 0 <= b < bits else -(a < 0)


def least(a: Any, b: Any) -> Any:
    """The smaller of two floats; NaN if one is NaN."""
    return a if a < b or a != a else b


def greatest(a: Any, b: Any) -> Any:
    """The larger of two floats; NaN if one is NaN."""
    return a if a > b or a != a else b


def truncdiv_float(a: Any, b: Any) -> Any:
    """The float quotient rounded towards zero."""
    return truncated_quotient(a, b)


def converter(source: str, target: str) -> Callable[[Any], Any]:
    """A function that converts one value between dtypes; floats to integers truncate and saturate, NaN gives 0."""
    from_type, to_type = dtypes.info(source).numpy.type, dtypes.info(target)
    storage = to_type.numpy
    if to_type.is_float:
        return lambda x: from_type(x).astype(storage)
    if to_type.is_integer and dtypes.info(source).is_float:
        return partial(_saturated, *map(int, dtypes.limits(target)))
    return lambda x: from_type(x).astype(storage).item()


def _saturated(low: int, high: int, x: Any) -> int:
    number = float(x)
    if not low <= number < high + 1:
        return 0 if number != number else high if number > low else low
    return int(number)


def unwritten(dtype: str) -> Any:
    """What fresh scratch memory holds, to make a read before the first write visible."""
    d = dtypes.info(dtype)
    if d.is_float:
        return float("nan")
    if d.kind == "bool":
        return True
    pattern = int.from_bytes(b"\xa5" * d.bytes, "little")
    return pattern - (1 << d.bits) if d.kind == "int" else pattern


NAMES: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (floordiv, floormod, truncdiv, truncmod, shl, shr, least, greatest, truncdiv_float)
} | {"fmod": np.fmod}
