"""Sums, products and others of all elements up to each: cumsum, cumprod, scanop, as recurrences along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorlang import te
from tensorlang.ir.expr import Expr, ExprLike
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import replaced, rounded_once
from tensorlang.topi.transform import reshape


@checked
def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool = False, name: str = "cumsum"
) -> Tensor:
    """Return the sums of the elements up to each along an axis (None: of the flattened tensor), in `dtype`.

    `exclusive`: without the element itself, from 0 on. The sums are added up in order, half precision in float32; those
    of few long rows in pieces, unless the schedule is strict.

        >>> from tensorlang import te, topi
        >>> topi.cumsum(te.placeholder((4, 5)), axis=1).shape
        (4, 5)
    """
    return _accumulated(data, axis, dtype, exclusive, te.add, 0, name)


@checked
def cumprod(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool = False, name: str = "cumprod"
) -> Tensor:
    """Return the products of the elements up to each along an axis (None: of the flattened tensor), in `dtype`.

    `exclusive`: without the element itself, from 1 on.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.cumprod, [1, 2, 3])
        array([1, 2, 6], dtype=int32)
    """
    return _accumulated(data, axis, dtype, exclusive, te.multiply, 1, name)


@checked
def scanop(
    data: Tensor,
    binop: Callable[..., Expr],
    identity_value: ExprLike,
    op_name: str = "scan",
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Tensor:
    """Return what `binop` makes of the elements up to each along an axis (None: of the flattened tensor), in order.

    `exclusive`: without the element itself, from `identity_value` on.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.scanop, [1, 3, 2], binop=te.maximum, identity_value=0)
        array([1, 3, 3], dtype=int32)
    """
    return _accumulated(data, axis, dtype, bool(exclusive), binop, identity_value, op_name)


def _accumulated(
    data: Tensor,
    axis: int | None,
    dtype: str | None,
    exclusive: bool,
    combine: Callable[..., Expr],
    start: ExprLike,
    name: str,
) -> Tensor:
    if axis is None and data.ndim == 1:
        axis = 0
    if axis is None:
        return _accumulated(reshape(data, (-1,), name=f"{name}_flat"), 0, dtype, exclusive, combine, start, name)
    where, names = normalized(name, data, axis), [f"i{d}" for d in range(data.ndim)]

    def running(name: str, dtype: str) -> Tensor:
        def element(self: Any, *i: Expr) -> Expr:
            before = replaced(i, where, i[where] - 1)
            new = te.cast(data(*before) if exclusive else data(*i), dtype)
            first = te.cast(start, dtype) if exclusive else new
            return te.if_then_else(i[where] > 0, combine(self[tuple(before)], new), first)

        result = te.recurrence(data.shape, element, name=name, dtype=dtype, varargs_names=names)
        assert isinstance(result, Tensor)
        return result

    return rounded_once(name, dtype or data.dtype, running)
