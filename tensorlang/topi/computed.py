"""A tensor of the library's: te.compute of one output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr, ExprLike, cast
from tensorlang.te.operation import Tensor


def computed(shape: Sequence[ExprLike], element: Callable[..., ExprLike], name: str) -> Tensor:
    """Return the tensor of a shape whose elements a function of their indices gives."""
    made = te.compute(tuple(shape), element, name=name)
    assert isinstance(made, Tensor)
    return made


def widened(value: Expr) -> Expr:
    """A value as sums take it: narrow floats in float32."""
    return value.astype(dtypes.at_least_float32(value.dtype))


def rounded_once(name: str, dtype: str, sums: Callable[[str, str], Tensor]) -> Tensor:
    """What `sums(name, dtype)` adds up: of a narrow float dtype in float32, and rounded once, by a stage of its own."""
    wide = dtypes.at_least_float32(dtype)
    if wide == dtype:
        return sums(name, dtype)
    total = sums(f"{name}_sum", wide)
    names = [axis.name for axis in total.op.axis]
    made = te.compute(total.shape, lambda *i: cast(total(*i), dtype), name=name, varargs_names=names)
    assert isinstance(made, Tensor)
    return made


def replaced(index: Sequence[Expr], where: int, other: ExprLike) -> list[ExprLike]:
    """An index with another value at a place."""
    return [*index[:where], other, *index[where + 1 :]]
