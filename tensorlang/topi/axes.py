"""Axes as the library's operators take them: numbers, negative ones counted from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, binary, cast
from tensorlang.te.axis import extent_of
from tensorlang.te.domain import integer
from tensorlang.te.operation import Tensor

T = TypeVar("T")


def normalized(operator: str, x: Tensor, axis: int) -> int:
    """An axis of a tensor, counted from the front; DefinitionError when the tensor has none of that number."""
    if isinstance(axis, bool) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        raise DefinitionError(f"{operator}: {x.name} has {x.ndim} dimensions, so no axis {axis!r}")
    return axis % x.ndim


def normalized_all(operator: str, x: Tensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """Several axes in rising order, all of them for None; DefinitionError when one is given twice."""
    if axis is None:
        return tuple(range(x.ndim))
    given = [axis] if isinstance(axis, int) else list(axis)
    found = [normalized(operator, x, a) for a in given]
    if len(set(found)) < len(found):
        raise DefinitionError(f"{operator}: axes {given} of {x.name} name a dimension twice")
    return tuple(sorted(found))


def new_place(operator: str, x: Tensor, axis: int) -> int:
    """Where a new axis stands, counted from the front; DefinitionError when the tensor has no such place."""
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise DefinitionError(f"{operator}: {x.name} has {x.ndim} dimensions, so no place {axis} for another one")
    return axis if axis >= 0 else axis + x.ndim + 1


def without(items: Sequence[T], where: int) -> list[T]:
    """The items but for the one at a place."""
    return [item for place, item in enumerate(items) if place != where]


def at(items: Sequence[T], where: int, item: T) -> list[T]:
    """The items with one more at a place."""
    return [*items[:where], item, *items[where:]]


def sizes(operator: str, shape: Sequence[ExprLike]) -> list[Expr]:
    """A shape as expressions, whatever integers it is written in; DefinitionError for what is none."""
    return [integer(extent, f"extent {n} of {operator}") for n, extent in enumerate(shape)]


def extents(operator: str, x: Tensor) -> tuple[int, ...]:
    """The shape of a tensor as numbers; DefinitionError where an extent is none."""
    found = [extent_of(extent) for extent in x.shape]
    if any(n is None for n in found):
        raise DefinitionError(f"{operator} wants extents that are numbers, got {x}")
    return tuple(n for n in found if n is not None)


def as_int64(index: Expr) -> Expr:
    """An integer as int64; one of uint64 that does not fit is the largest, which no array has an element for."""
    if index.dtype == "uint64":
        index = te.minimum(index, te.const((1 << 63) - 1, "uint64"))
    return cast(index, "int64")


def within(index: Expr, extent: int) -> Expr:
    """An index that counts from the end where it is negative, kept inside of its array."""
    index = te.select(binary("lt", index, te.const(0, index.dtype)), index + te.const(extent, index.dtype), index)
    return te.maximum(te.minimum(index, te.const(extent - 1, index.dtype)), te.const(0, index.dtype))
