"""Tensors that are made of numbers: full, arange, grids, one-hot rows, masks of matrices, shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const, Expr, ExprLike, as_expr
from tensorlang.ir.simplify import simplify
from tensorlang.location import caller
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import at, new_place, sizes
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed

_WIDE = ("int64", "uint64", "uint32", "float64")


@checked
def full(shape: Sequence[ExprLike], dtype: str, fill_value: ExprLike, name: str = "full") -> Tensor:
    """Return a tensor that has `fill_value` everywhere, as `dtype`.

    >>> from tensorlang import te, topi
    >>> te.evaluate(lambda: topi.full((2,), "int32", 7))
    array([7, 7], dtype=int32)
    """
    value = te.cast(fill_value, dtype)
    return computed(sizes("full", shape), lambda *i: value, name)


@checked
def full_like(x: Tensor, fill_value: ExprLike, name: str = "full_like") -> Tensor:
    """Return a tensor of the shape and dtype of `x` that has `fill_value` everywhere.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.full_like, [1, 2], fill_value=7)
    array([7, 7], dtype=int32)
    """
    return full(x.shape, x.dtype, fill_value, name)


@checked
def arange(
    start: ExprLike, stop: ExprLike | None = None, step: ExprLike = 1, dtype: str = "float32", name: str = "arange"
) -> Tensor:
    """Return `start`, `start + step`, ... up to, without, `stop`; from 0 to `start` where there is no `stop`.

    DefinitionError for a step of 0, and for bounds of floats that are no numbers yet.

        >>> from tensorlang import topi
        >>> topi.arange(2, 9, 3, "int32").shape
        (3,)
    """
    first, end = (0, start) if stop is None else (start, stop)
    numbers = [value.value if isinstance(value, Const) else value for value in (first, end, step)]
    if numbers[2] == 0:
        raise DefinitionError("arange: the step is 0, and would never reach the end", caller())
    known = [n for n in numbers if isinstance(n, int | float)]
    if len(known) == len(numbers):
        count: ExprLike = _count(*known)
    else:
        count = simplify(te.maximum(te.ceildiv(as_expr(end) - first, step), 0))
    at_first, by = (te.cast(n, dtype) if dtype in _WIDE else as_expr(n) for n in (first, step))
    (extent,) = sizes("arange", [count])
    return computed([extent], lambda i: te.cast(at_first + te.cast(i, by.dtype) * by, dtype), name)


def _count(first: float, end: float, step: float) -> int:
    """How many numbers there are; exact for whole ones."""
    if all(isinstance(n, int) for n in (first, end, step)):
        return max(0, int(-((first - end) // step)))
    try:
        return max(0, math.ceil((end - first) / step))
    except (OverflowError, ValueError):
        raise DefinitionError(f"arange: from {first} to {end} by {step} there is no end", caller()) from None


@checked
def meshgrid(a_tuple: Sequence[Tensor], indexing: str = "ij", name: str = "meshgrid") -> list[Tensor]:
    """Return the coordinates of a grid over vectors, a tensor for each; `xy` swaps the first two dimensions.

    DefinitionError for tensors that are no vectors.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.meshgrid, ([1, 2], [3, 4]), indexing="ij")
        (array([[1, 1],
               [2, 2]], dtype=int32), array([[3, 4],
               [3, 4]], dtype=int32))
    """
    if indexing not in ("ij", "xy") or any(x.ndim > 1 for x in a_tuple):
        raise DefinitionError(f"meshgrid wants vectors and indexing 'ij' or 'xy', got {list(a_tuple)}, {indexing!r}")
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    extents = [a_tuple[d].shape[0] if a_tuple[d].ndim else as_expr(1) for d in order]

    def coordinates(number: int) -> Tensor:
        x, place = a_tuple[number], order.index(number)
        return computed(extents, lambda *i: x(i[place]) if x.ndim else x(), f"{name}_{number}")

    return [coordinates(number) for number in range(len(a_tuple))]


@checked
def one_hot(
    indices: Tensor,
    on_value: ExprLike,
    off_value: ExprLike,
    depth: ExprLike,
    axis: int = -1,
    dtype: str = "float32",
    name: str = "one_hot",
) -> Tensor:
    """Return `on_value` where the new axis, of extent `depth`, is at the index, and `off_value` elsewhere.

    An index outside of 0..depth gives `off_value` alone. `axis` is where the new axis stands in the result.

        >>> from tensorlang import te, topi
        >>> topi.one_hot(te.placeholder((4,), "int32"), 1, 0, depth=10).shape
        (4, 10)
    """
    place = new_place("one_hot", indices, axis)
    on, off = te.cast(on_value, dtype), te.cast(off_value, dtype)

    def element(*i: Expr) -> Expr:
        index, own = _places(indices(*i[:place], *i[place + 1 :]), i[place])
        return te.select(index == own, on, off)

    return computed(at(list(indices.shape), place, sizes("one_hot", [depth])[0]), element, name)


def _places(number: Expr, place: Expr) -> tuple[Expr, Expr]:
    """A number and a place in one dtype, in which no place wraps around."""
    own = dtypes.info(number.dtype)
    dtype = own.name if own.is_float or own.bits > 32 else "int64"
    return te.cast(number, dtype), te.cast(place, dtype)


@checked
def eye(n: ExprLike, m: ExprLike | None = None, k: int = 0, dtype: str = "float32", name: str = "eye") -> Tensor:
    """Return the matrix of `n` rows and `m` columns (None: as many) with ones on diagonal `k`, zeros elsewhere.

    >>> from tensorlang import te, topi
    >>> te.evaluate(lambda: topi.eye(2))
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    one, zero = te.cast(1, dtype), te.cast(0, dtype)
    return computed(sizes("eye", [n, n if m is None else m]), lambda i, j: te.select(j - i == k, one, zero), name)


@checked
def trilu(data: Tensor, k: int = 0, upper: bool = True, name: str = "trilu") -> Tensor:
    """Return matrices with zeros below diagonal `k` (`upper`), or above it.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.trilu, [[1, 2], [3, 4]], k=0, upper=True)
    array([[1, 2],
           [0, 4]], dtype=int32)
    """
    if data.ndim < 2:
        raise DefinitionError(f"trilu wants matrices, got {data}")

    def element(*i: Expr) -> Expr:
        kept = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
        return te.select(kept, data(*i), te.cast(0, data.dtype))

    return computed(data.shape, element, name)


@checked
def matrix_set_diag(data: Tensor, diagonal: Tensor, k: int = 0, name: str = "matrix_set_diag") -> Tensor:
    """Return matrices whose diagonal `k` has the elements of `diagonal`, whose last dimension runs along it.

    DefinitionError where the shapes do not fit.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.matrix_set_diag, [[1, 2], [3, 4]], [0, 9])
        array([[0, 2],
               [3, 9]], dtype=int32)
    """
    if data.ndim < 2 or diagonal.ndim != data.ndim - 1:
        raise DefinitionError(f"matrix_set_diag wants matrices and a diagonal for each, got {data} and {diagonal}")
    rows, columns = data.shape[-2:]
    wanted = simplify(te.minimum(rows + min(k, 0), columns - max(k, 0)))
    if isinstance(wanted, Const) and not (wanted == diagonal.shape[-1]):
        raise DefinitionError(f"matrix_set_diag: diagonal {k} of {data} has {wanted} elements, got {diagonal}")

    def element(*i: Expr) -> Expr:
        return te.select(i[-1] - i[-2] == k, diagonal(*i[:-2], i[-1] - max(k, 0)), data(*i))

    return computed(data.shape, element, name)


@checked
def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: float = 0.0, axis: int = 0, name: str = "sequence_mask"
) -> Tensor:
    """Return sequences with `mask_value` from their valid length on; `axis`, 0 or 1, is time, the other one the batch.

    DefinitionError for another axis, or lengths that are no vector.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.sequence_mask, [[1.0], [2.0], [3.0]], [2])
        array([[1.],
               [2.],
               [0.]], dtype=float32)
    """
    if axis not in (0, 1) or data.ndim < 2 or valid_length.ndim != 1:
        raise DefinitionError(f"sequence_mask wants an axis 0 or 1 and a vector of lengths, got {axis}, {valid_length}")
    value = te.cast(mask_value, data.dtype)

    def element(*i: Expr) -> Expr:
        length, own = _places(valid_length(i[1 - axis]), i[axis])
        return te.select(own >= length, value, data(*i))

    return computed(data.shape, element, name)


@checked
def shape(array: Tensor, dtype: str = "int32", name: str = "shape") -> Tensor:
    """Return the extents of a tensor as a vector.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.shape, [[1, 2, 3]])
    array([1, 3], dtype=int32)
    """

    def element(i: Expr) -> Expr:
        extents = [te.cast(n, dtype) for n in array.shape]
        return reduce(lambda rest, k: te.select(i == k, extents[k], rest), range(array.ndim - 1), extents[-1])

    if not array.ndim:
        raise DefinitionError(f"shape: {array} has no dimensions")
    return computed([array.ndim], element, name)


@checked
def ndarray_size(array: Tensor, dtype: str = "int32", name: str = "ndarray_size") -> Tensor:
    """Return the number of elements of a tensor, as a tensor of shape ().

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.ndarray_size, [[1, 2, 3]])
    array(3, dtype=int32)
    """
    count = reduce(lambda a, b: a * b, array.shape, as_expr(1))
    return computed((), lambda: te.cast(count, dtype), name)
