"""Scalar expressions on NumPy arrays, with the exact meaning of each dtype.

Every operand is an array, or a NumPy scalar, of its expression's dtype; indices broadcast against each other, so an
expression costs as much as the axes that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError, KernelError
from tensorlang.ir.expr import Binary, Call, Cast, Const, Expr, Load, Select, Unary, Var
from tensorlang.ir.intrinsics import TABLE
from tensorlang.ir.numpy_math import converted, truncated_quotient
from tensorlang.ir.traverse import Asking, unwound

Array = npt.NDArray[Any]


def _truncdiv(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.asarray(truncated_quotient(a, b))
    quotient = np.floor_divide(a, b)
    rest = a - quotient * b
    return np.where((b != 0) & (rest != 0) & ((a < 0) != (b < 0)), quotient + a.dtype.type(1), quotient)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floordiv": np.floor_divide, "floormod": np.remainder, "truncdiv": _truncdiv, "truncmod": np.fmod,
    "min": np.minimum, "max": np.maximum,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
    "shl": np.left_shift, "shr": np.right_shift, "and": np.logical_and, "or": np.logical_or,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNARY: dict[str, Callable[[Any], Any]] = {"neg": np.negative, "not": np.logical_not, "invert": np.invert}


@dataclass(frozen=True, slots=True)
class Grid:
    """Where an expression is evaluated: index arrays of the axes, symbolic sizes, and the arrays it may load."""

    variables: Mapping[str, Array]
    arrays: Mapping[str, Array]


def value(expr: Expr, grid: Grid, mask: Array | None = None) -> Array:
    """Return the expression's values, which broadcast to the grid.

    Only points where `mask` holds need a value: elsewhere out-of-range loads give the nearest element (0 of an empty
    array). Raises KernelError for an out-of-range load at a point that needs it.
    """
    return unwound(_value, expr, grid, mask)


def _value(expr: Expr, grid: Grid, mask: Array | None) -> Asking[Array]:
    match expr:
        case Const():
            return np.asarray(expr.value, dtypes.info(expr.dtype).numpy)
        case Var():
            return grid.variables[expr.name].astype(dtypes.info(expr.dtype).numpy, copy=False)
        case Select():
            cond = yield expr.cond, grid, mask
            then = yield expr.then, grid, both(mask, cond)
            orelse = yield expr.orelse, grid, both(mask, np.logical_not(cond))
            return np.where(cond, then, orelse)
    parts = []
    for child in expr.children():
        parts.append((yield child, grid, mask))
    match expr:
        case Unary():
            return np.asarray(_UNARY[expr.op](*parts))
        case Binary():
            return np.asarray(_BINARY[expr.op](*parts))
        case Cast():
            return np.asarray(converted(parts[0], expr.dtype))
        case Call():
            return np.asarray(TABLE[expr.name].numpy(*parts))
        case Load():
            return _load(expr, grid, mask, parts)
    raise InternalError(f"the reference cannot evaluate {type(expr).__name__} {expr}")


def extent(expr: Expr, sizes: Mapping[str, int]) -> int:
    """Return the value of a size expression."""
    return int(value(expr, Grid({name: np.asarray(size, np.int64) for name, size in sizes.items()}, {})))


def both(a: Array | None, b: Array | None) -> Array | None:
    """The conjunction of two masks, where None holds everywhere."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(np.logical_and(a, b))


def _load(expr: Load, grid: Grid, mask: Array | None, parts: list[Array]) -> Array:
    source = grid.arrays[expr.buffer.name]
    index = []
    for dim, part in enumerate(parts):
        position, extent = part.astype(np.int64), source.shape[dim]
        outside = (position < 0) | (position >= extent)
        if outside.any():
            needed = both(mask, outside)
            if needed is not None and needed.any():
                wrong = int(np.broadcast_to(position, needed.shape)[needed][0])
                raise KernelError(f"{expr} reads index {wrong} of dimension {dim} of {expr.buffer.name}, of {extent}")
            position = np.clip(position, 0, max(0, extent - 1))
        index.append(position)
    if source.size == 0:
        shape = np.broadcast_shapes(*(p.shape for p in index))
        return np.zeros(shape, source.dtype)
    return np.asarray(source[tuple(index)])
