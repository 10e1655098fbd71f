"""A tensor of the library's: te.compute of one output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, ExprLike
from tensorlang.te.operation import Tensor


def computed(shape: Sequence[ExprLike], element: Callable[..., ExprLike], name: str) -> Tensor:
    """Return the tensor of a shape whose elements a function of their indices gives."""
    made = te.compute(tuple(shape), element, name=name)
    assert isinstance(made, Tensor)
    return made


def widened(value: Expr) -> Expr:
    """A value as sums take it: narrow floats in float32."""
    return value.astype(dtypes.at_least_float32(value.dtype))


def replaced(index: Sequence[Expr], where: int, other: ExprLike) -> list[ExprLike]:
    """An index with another value at a place."""
    return [*index[:where], other, *index[where + 1 :]]
