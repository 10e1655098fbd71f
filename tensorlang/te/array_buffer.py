"""Arrays of arguments, as classic programs declare them: their layout is that of kernels, the only one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorlang import dtypes
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, Var, as_expr, same
from tensorlang.ir.simplify import simplify
from tensorlang.location import caller


@dataclass(frozen=True, slots=True)
class ArrayBuffer:
    """An array of a symbolic shape. Strides and offsets that are variables are those of arrays without gaps: a call
    takes no others."""

    shape: tuple[Expr, ...]
    dtype: str
    name: str
    strides: tuple[Expr, ...] = ()


def array_buffer(shape: Sequence[Any], dtype: Any, name: str, strides: Sequence[Any] | None) -> ArrayBuffer:
    """Declare an array; DefinitionError for another number of strides."""
    extents, steps = (tuple(map(as_expr, numbers or ())) for numbers in (shape, strides))
    if steps and len(steps) != len(extents):
        raise DefinitionError(
            f"{name} needs one stride (a number or a te.var) per dimension, got {strides!r}", caller()
        )
    return ArrayBuffer(extents, dtypes.canonical(dtype or "float32"), name, steps)


def check_buffer(what: str, shape: Sequence[Expr], dtype: str, buffer: Any) -> None:
    """DefinitionError where an array is declared that is not the one of a tensor, or that has gaps."""
    declared = tuple(map(as_expr, getattr(buffer, "shape", ())))
    fits = len(declared) == len(shape) and all(map(same, map(simplify, declared), map(simplify, shape)))
    if not fits or getattr(buffer, "dtype", None) != dtype:
        wanted = ", ".join(map(str, shape))
        raise DefinitionError(
            f"the array of {what} has the shape ({wanted}) and the dtype {dtype}, got {buffer}", caller()
        )
    compact: Expr = as_expr(1)
    for extent, stride in zip(reversed(shape), reversed(buffer.strides), strict=False):
        plain = isinstance(stride, Var) or same(simplify(as_expr(stride)), simplify(compact))
        if not plain and not (isinstance(extent, Const) and extent.value == 1):
            raise DefinitionError(f"kernels take arrays without gaps; {buffer.name} has the stride {stride}", caller())
        compact = compact * extent
