"""Reductions along any axes: sums, products, extremes, means, and where the extremes are."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, as_expr, same
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized_all, sizes
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, rounded_once
from tensorlang.topi.operator import Operator
from tensorlang.topi.transform import reshape

Array = npt.NDArray[Any]
Axes = int | Sequence[int] | None


@checked
def sum(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "sum") -> Tensor:  # noqa: A001
    """Return the sums along some axes (None: all), in the dtype of `data`; half precision is added up in float32.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.sum, [[1.0, 2.0], [3.0, 5.0]], axis=1)
    array([3., 8.], dtype=float32)
    """
    return rounded_once(name, data.dtype, lambda name, dtype: _reduced(data, axis, keepdims, te.sum, name, dtype))


@checked
def prod(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "prod") -> Tensor:
    """Return the products along some axes (None: all); those of half precision are made in float32.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.prod, [[1.0, 2.0], [3.0, 5.0]], axis=1)
    array([ 2., 15.], dtype=float32)
    """
    return rounded_once(name, data.dtype, lambda name, dtype: _reduced(data, axis, keepdims, te.prod, name, dtype))


@checked
def max(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "max") -> Tensor:  # noqa: A001
    """Return the largest elements along some axes (None: all); NaN where one is.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.max, [[1.0, 2.0], [3.0, 5.0]], axis=1)
    array([2., 5.], dtype=float32)
    """
    return _reduced(data, axis, keepdims, te.max, name)


@checked
def min(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "min") -> Tensor:  # noqa: A001
    """Return the smallest elements along some axes (None: all); NaN where one is.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.min, [[1.0, 2.0], [3.0, 5.0]], axis=1)
    array([1., 3.], dtype=float32)
    """
    return _reduced(data, axis, keepdims, te.min, name)


@checked
def any(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "any") -> Tensor:  # noqa: A001
    """Return whether one of the elements along some axes (None: all) is true (not zero), as bool.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.any, [[True, False], [True, True]], axis=1)
    array([ True,  True])
    """
    return _reduced(_true(data, name), axis, keepdims, te.any, name)


@checked
def all(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "all") -> Tensor:  # noqa: A001
    """Return whether all elements along some axes (None: all) are true (not zero), as bool.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.all, [[True, False], [True, True]], axis=1)
    array([False,  True])
    """
    return _reduced(_true(data, name), axis, keepdims, te.all, name)


@checked
def logsumexp(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "logsumexp") -> Tensor:
    """Return the logarithms of the sums of powers of e along some axes (None: all) of floats.

    The largest element is taken out of the powers, so none overflows; half precision is added up in float32.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.logsumexp, [[1.0, 2.0], [3.0, 5.0]], axis=1).round(4)
        array([2.3133, 5.1269], dtype=float32)
    """
    if not dtypes.info(data.dtype).is_float:
        raise DefinitionError(f"logsumexp wants floats, got {data.dtype}; topi.cast the tensor first")
    axes = normalized_all("logsumexp", data, axis)
    largest = _reduced(data, axis, True, te.max, f"{name}_max")
    wide = dtypes.at_least_float32(data.dtype)

    def top(*i: Expr) -> Expr:
        found = te.cast(largest(*i), wide)
        return te.select(te.isfinite(found), found, 0)

    def power(*i: Expr) -> Expr:
        at = [as_expr(0) if d in axes else k for d, k in enumerate(i)]
        return te.exp(te.cast(data(*i), wide) - top(*at))

    powers = te.compute(data.shape, power, name=f"{name}_powers")
    total = _reduced(powers, axis, keepdims, te.sum, f"{name}_sum")
    kept = [d for d in range(data.ndim) if keepdims or d not in axes]

    def element(*i: Expr) -> Expr:
        at = [i[kept.index(d)] if d in kept and d not in axes else as_expr(0) for d in range(data.ndim)]
        return te.cast(te.log(total(*i)) + top(*at), data.dtype)

    made = te.compute(total.shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


def _true(data: Tensor, name: str) -> Tensor:
    """Where a tensor is not zero."""
    if data.dtype == "bool":
        return data
    made = te.compute(data.shape, lambda *i: data(*i) != 0, name=f"{name}_of")
    assert isinstance(made, Tensor)
    return made


@checked
def mean(data: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "mean") -> Tensor:
    """Return the means along some axes (None: all) of floats; half precision is added up in float32.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.mean, [[1.0, 2.0], [3.0, 5.0]], axis=1)
    array([1.5, 4. ], dtype=float32)
    """
    if not dtypes.info(data.dtype).is_float:
        raise DefinitionError(f"mean wants floats, got {data.dtype}; topi.cast the tensor first")
    total = _reduced(data, axis, keepdims, te.sum, f"{name}_sum", dtypes.at_least_float32(data.dtype))
    extents = [as_expr(data.shape[d]) for d in normalized_all("mean", data, axis)]
    count = reduce(mul, extents, as_expr(1, "int32"))
    made = te.compute(total.shape, lambda *i: (total(*i) / count.astype(total.dtype)).astype(data.dtype), name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def collapse_sum(data: Tensor, target_shape: Sequence[ExprLike], name: str = "collapse_sum") -> Tensor:
    """Return `data` added up to the shape that was broadcast to its own: the way back of a broadcast.

    Sums run over axes that the shape lacks in front, and over those of which it has 1. DefinitionError for a shape
    that is not broadcast to that of `data`.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.collapse_sum, [[1.0, 2.0], [3.0, 5.0]], target_shape=(1,))
        array([11.], dtype=float32)
    """
    shape, wanted, more = data.shape, sizes(name, target_shape), data.ndim - len(target_shape)
    kept = [same(*pair) for pair in zip(wanted, shape[builtins.max(more, 0) :], strict=False)]
    if more < 0 or not builtins.all(one or extent_of(n) == 1 for one, n in zip(kept, wanted, strict=True)):
        raise DefinitionError(f"{name}: the shape {tuple(target_shape)} is not broadcast to that of {data}")
    axes = [d for d in range(data.ndim) if d < more or not kept[d - more]]
    if not axes:
        return computed(shape, data, name)
    return reshape(sum(data, axes, name=f"{name}_of"), tuple(wanted), name=name)


@checked
def argmax(
    data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False, name: str = "argmax"
) -> Tensor:
    """Return where the largest elements are along an axis (None: in the flattened tensor), as int32.

    Along several axes: their place in these, flattened. The first of several equal ones, or with `select_last_index`
    the last; a NaN counts as the largest of all.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.argmax, [[1.0, 2.0], [3.0, 5.0]], axis=1)
        array([1, 1], dtype=int32)
    """
    return _place(data, axis, keepdims, name, largest=True, last=select_last_index)


@checked
def argmin(
    data: Tensor, axis: Axes = None, keepdims: bool = False, select_last_index: bool = False, name: str = "argmin"
) -> Tensor:
    """Return where the smallest elements are along an axis (None: in the flattened tensor), as int32.

    Along several axes: their place in these, flattened. The first of several equal ones, or with `select_last_index`
    the last; a NaN counts as the smallest of all.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.argmin, [[1.0, 2.0], [3.0, 5.0]], axis=1)
        array([0, 0], dtype=int32)
    """
    return _place(data, axis, keepdims, name, largest=False, last=select_last_index)


def _reduced(
    data: Tensor, axis: Axes, keepdims: bool, reducer: Callable[..., Expr], name: str, dtype: str = ""
) -> Tensor:
    axes = normalized_all(name, data, axis)
    inner = [te.reduce_axis((0, data.shape[d]), name=f"k{d}") for d in axes]

    def element(*i: Expr) -> Expr:
        value = data(*_index(data, axes, keepdims, i, inner)).astype(dtype or data.dtype)
        return reducer(value, axis=inner) if inner else value

    made = te.compute(_shape(data, axes, keepdims), element, name=name)
    assert isinstance(made, Tensor)
    return made


def _place(data: Tensor, axis: Axes, keepdims: bool, name: str, largest: bool, last: bool) -> Tensor:
    """The first place of the best value, or the last: two reductions of one value each are faster than one of pairs.

    Where one is NaN, so is the best value, and the places of these count.
    """
    axes = normalized_all(name, data, axis)
    best = _reduced(data, axis, True, te.max if largest else te.min, f"{name}_value")
    inner = [te.reduce_axis((0, data.shape[d]), name=f"k{d}") for d in axes]
    choose, none = (te.max, te.min_value("int32")) if last else (te.min, te.max_value("int32"))

    def element(*i: Expr) -> Expr:
        place = reduce(lambda outer, k: outer * k.extent + k, inner, as_expr(0)).astype("int32")
        index = _index(data, axes, keepdims, i, inner)
        value = data(*index)
        found = value == best(*(as_expr(0) if d in axes else n for d, n in enumerate(index)))
        if dtypes.info(data.dtype).is_float:
            found = te.any(found, te.isnan(value))
        return choose(te.select(found, place, none), axis=inner) if inner else place

    made = te.compute(_shape(data, axes, keepdims), element, name=name)
    assert isinstance(made, Tensor)
    return made


def _shape(data: Tensor, axes: Sequence[int], keepdims: bool) -> tuple[Expr, ...]:
    one = as_expr(1, "int32")
    return tuple(one if d in axes else n for d, n in enumerate(data.shape) if keepdims or d not in axes)


def _index(
    data: Tensor, axes: Sequence[int], keepdims: bool, outside: Sequence[Expr], inside: Sequence[Axis]
) -> list[Expr]:
    kept = [i for d, i in enumerate(outside) if d not in axes] if keepdims else list(outside)
    from_inside, from_outside = iter(inside), iter(kept)
    return [next(from_inside).as_expr() if d in axes else next(from_outside) for d in range(data.ndim)]


def _operator(name: str, function: Callable[..., Tensor], numpy: Callable[..., Array]) -> Operator:
    def compute(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
        x = te.placeholder((n, m), name="X", dtype=dtype)
        return [x, function(x, axis=-1)]

    def reference(x: Array) -> list[Array]:
        """Along the last axis, in float64."""
        exact = x.astype(np.float64) if dtypes.info(dtypes.canonical(x.dtype)).is_float else x
        made = numpy(exact, axis=-1)
        return [np.asarray(made).astype(np.int32 if name.startswith("arg") else x.dtype)]

    def competitor(x: Array, out: Array) -> None:
        out[...] = numpy(x, axis=-1)

    return Operator(name, ("N", "M"), compute, reference, competitor)


OPERATORS = (
    _operator("sum", sum, np.sum),
    _operator("prod", prod, np.prod),
    _operator("max", max, np.max),
    _operator("min", min, np.min),
    _operator("mean", mean, np.mean),
    _operator("argmax", argmax, np.argmax),
    _operator("argmin", argmin, np.argmin),
)
