"""Elements in order: sort, argsort, topk, and the places of values in sorted rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, same
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized, within
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, replaced
from tensorlang.topi.ordering import places_in_order, shape_of

_cast: Any = te.cast  # of numbers and of expressions


@checked
def argsort(
    data: Tensor,
    valid_count: Tensor | None = None,
    axis: int = -1,
    is_ascend: bool = True,
    dtype: str = "float32",
    name: str = "argsort",
) -> Tensor:
    """Return the places of the elements in order along an axis, as `dtype` (TVM's default is a float).

    Equal elements keep their order, and what is not a number is above all numbers. DefinitionError for symbolic
    extents, and for a `valid_count`: slice the data instead.

        >>> from tensorlang import te, topi
        >>> topi.argsort(te.placeholder((4, 5)), axis=0).shape
        (4, 5)
    """
    if valid_count is not None:
        raise DefinitionError("argsort takes no valid_count; cut the data with topi.strided_slice")
    where = normalized("argsort", data, axis)
    return _places(data, where, shape_of(data)[where], is_ascend, dtype, name)


@checked
def sort(data: Tensor, axis: int = -1, is_ascend: bool = True, name: str = "sort") -> Tensor:
    """Return the elements in order along an axis, what is not a number above all numbers.

    DefinitionError for symbolic extents.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.sort, [3.0, 1.0, 2.0])
        array([1., 2., 3.], dtype=float32)
    """
    where = normalized("sort", data, axis)
    places = _places(data, where, shape_of(data)[where], is_ascend, "int32", f"{name}_argsort")
    return _taken(data, where, places, name)


@checked
def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: bool = False,
    dtype: str = "int64",
    name: str = "topk",
) -> Any:
    """Return the first `k` elements in order along an axis, and their places as `dtype` (k < 1: all).

    `ret_type`: "both" for a list of two, "values" or "indices" for one tensor. DefinitionError for more than there are,
    and symbolic extents.

        >>> from tensorlang import te, topi
        >>> [x.shape for x in topi.topk(te.placeholder((4, 500)), 3)]
        [(4, 3), (4, 3)]
    """
    where = normalized("topk", data, axis)
    most = shape_of(data)[where]
    if ret_type not in ("both", "values", "indices") or k > most:
        raise DefinitionError(
            f"topk wants ret_type both, values or indices and k of at most {most}, got {ret_type!r}, {k}"
        )
    wanted = most if k < 1 else k
    places = _places(data, where, wanted, is_ascend, "int32", f"{name}_places")
    values = _taken(data, where, places, f"{name}_values")
    indices = computed(places.shape, lambda *i: te.cast(places(*i), dtype), f"{name}_indices")
    return {"both": [values, indices], "values": values, "indices": indices}[ret_type]


@checked
def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: str = "int64", name: str = "searchsorted"
) -> Tensor:
    """Return where each value would be inserted in a sorted row, so that it stays sorted: before equal ones, or behind.

    What is not a number is above all numbers, as `sort` has it. The sequence is a vector, or has a row for each row of
    `values`. DefinitionError for other shapes.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.searchsorted, [1, 3, 5], [3, 4])
        array([1, 2])
    """
    shape, shared = values.shape, sorted_sequence.ndim == 1
    rows = sorted_sequence.shape[:-1]
    fits = shared or (values.ndim == len(rows) + 1 and all(map(same, rows, shape[:-1])))
    extent = extent_of(sorted_sequence.shape[-1]) if sorted_sequence.ndim else None
    if not fits or extent is None:
        raise DefinitionError(f"searchsorted wants a vector, or a row for each of {values}, got {sorted_sequence}")
    axis = te.reduce_axis((0, extent), "k")

    def element(*i: Expr) -> Expr:
        one, value = sorted_sequence(*(() if shared else i[:-1]), axis), values(*i)
        before = one <= value if right else one < value
        if dtypes.info(value.dtype).is_float:  # what is not a number is above all numbers
            before = before | (te.isnan(value) if right else te.isnan(value) & ~te.isnan(one))
        return te.sum(te.cast(before, dtype), axis=axis)

    return computed(shape, element, name)


def _places(data: Tensor, axis: int, wanted: int, ascending: bool, dtype: str, name: str) -> Tensor:
    """The places of the first elements in order, in the shape of `data` along other axes."""
    if not dtypes.info(data.dtype).is_float and not dtypes.info(data.dtype).is_integer:
        raise DefinitionError(f"numbers are put in order, got {data.dtype}; topi.cast the tensor first")
    shape = shape_of(data)
    if shape[axis] - 1 > _greatest(dtype):
        raise DefinitionError(f"{dtype} does not hold all places of {shape[axis]} elements; give a wider dtype")
    found = places_in_order(data, axis, not ascending, wanted, name)

    def element(*i: Expr) -> Expr:
        return te.cast(
            found(_number(i[:axis], shape[:axis]), _number(i[axis + 1 :], shape[axis + 1 :]), i[axis]), dtype
        )

    return computed([*shape[:axis], wanted, *shape[axis + 1 :]], element, name)


def _greatest(dtype: str) -> int:
    """The largest number up to which a dtype has all whole ones."""
    info = dtypes.info(dtype)
    if info.is_float:
        return int(2 / float(np.spacing(np.ones((), info.numpy))))
    return int(np.iinfo(info.numpy).max) if info.is_integer else 1


def _number(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """The number of an element among those of a shape."""
    flat = te.const(0, "int32") + 0
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


def _taken(data: Tensor, axis: int, places: Tensor, name: str) -> Tensor:
    """The elements at places along an axis."""
    extent = shape_of(data)[axis]
    return computed(places.shape, lambda *i: data(*replaced(i, axis, within(places(*i), extent))), name)
