"""Elements again and in other orders: tile, repeat, stack, flip, roll, reversed sequences."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, as_expr, binary
from tensorlang.ir.simplify import simplify
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import new_place, normalized, normalized_all
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, replaced
from tensorlang.topi.transform import concatenate, expand_dims, reshape


@checked
def tile(a: Tensor, reps: Sequence[int], name: str = "tile") -> Tensor:
    """Return `a` beside itself, so often along each dimension; the shorter of both counts from the last dimension.

    >>> from tensorlang import te, topi
    >>> topi.tile(te.placeholder((4, 5)), (2, 3, 1)).shape
    (2, 12, 5)
    """
    if any(n < 0 for n in reps):
        raise DefinitionError(f"tile wants numbers of at least 0, got {list(reps)}")
    rank = max(a.ndim, len(reps))
    times = [1] * (rank - len(reps)) + list(reps)
    extents = [as_expr(1)] * (rank - a.ndim) + list(a.shape)
    own = rank - a.ndim

    def element(*i: Expr) -> Expr:
        return a(*[_within(k, n, r) for k, n, r in zip(i[own:], a.shape, times[own:], strict=True)])

    return computed([simplify(n * r) for n, r in zip(extents, times, strict=True)], element, name)


def _within(index: Expr, extent: Expr, times: int) -> Expr:
    return index if times <= 1 else binary("floormod", index, te.maximum(extent, 1))


@checked
def repeat(a: Tensor, repeats: int, axis: int, name: str = "repeat") -> Tensor:
    """Return `a` with each element along an axis so often in a row.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.repeat, [1, 2], repeats=2, axis=0)
    array([1, 1, 2, 2], dtype=int32)
    """
    where = normalized("repeat", a, axis)
    if repeats < 1:
        raise DefinitionError(f"repeat wants a number of at least 1, got {repeats}")
    shape = replaced(a.shape, where, simplify(a.shape[where] * repeats))
    return computed(shape, lambda *i: a(*replaced(i, where, binary("floordiv", i[where], repeats))), name)


@checked
def stack(tensors: Sequence[Tensor], axis: int = 0, name: str = "stack") -> Tensor:
    """Return tensors of one shape side by side along a new axis; DefinitionError where they differ.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.stack, ([1, 2], [3, 4]), axis=0)
    array([[1, 2],
           [3, 4]], dtype=int32)
    """
    if not tensors:
        raise DefinitionError("stack wants at least one tensor, got none")
    place = new_place("stack", tensors[0], axis)
    return concatenate([expand_dims(x, place, name=f"{name}_{k}") for k, x in enumerate(tensors)], place, name)


@checked
def flip(a: Tensor, axis: int | Sequence[int] = 0, name: str = "flip") -> Tensor:
    """Return `a` with the elements along some axes in reverse order.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.flip, [1, 2, 3], axis=0)
    array([3, 2, 1], dtype=int32)
    """
    turned = normalized_all("flip", a, axis)

    def element(*i: Expr) -> Expr:
        return a(*[n - 1 - k if d in turned else k for d, (k, n) in enumerate(zip(i, a.shape, strict=True))])

    return computed(a.shape, element, name)


@checked
def roll(a: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None, name: str = "roll") -> Tensor:
    """Return `a` with its elements moved on along some axes, those beyond the end to the beginning.

    Without an axis the flattened tensor is rolled, as in NumPy. DefinitionError where shifts and axes differ in number.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.roll, [1, 2, 3], shift=1, axis=0)
        array([3, 1, 2], dtype=int32)
    """
    if axis is None:
        flat = reshape(a, (-1,), name=f"{name}_flat")
        return reshape(roll(flat, shift, 0, name), a.shape, name=f"{name}_shaped")
    axes, steps = ([x] if isinstance(x, int) else list(x) for x in (axis, shift))
    if len(steps) == 1:
        steps *= len(axes)
    if len(steps) != len(axes):
        raise DefinitionError(f"roll wants a shift for each axis, got {steps} and {axes}")
    moved = dict.fromkeys(range(a.ndim), 0)
    for one, step in zip(axes, steps, strict=True):
        moved[normalized("roll", a, one)] += step

    def element(*i: Expr) -> Expr:
        ends = zip(i, a.shape, strict=True)
        index: list[ExprLike] = [
            binary("floormod", k - moved[d], te.maximum(n, 1)) if moved[d] else k for d, (k, n) in enumerate(ends)
        ]
        return a(*index)

    return computed(a.shape, element, name)


@checked
def reverse_sequence(
    a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0, name: str = "reverse_sequence"
) -> Tensor:
    """Return `a` with the first elements of each sequence in reverse order, so many as `seq_lengths` says.

    DefinitionError for lengths that are no vector, and for one axis given twice.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.reverse_sequence, [[1, 2, 3]], [2], seq_axis=1, batch_axis=0)
        array([[2, 1, 3]], dtype=int32)
    """
    time, batch = normalized("reverse_sequence", a, seq_axis), normalized("reverse_sequence", a, batch_axis)
    if time == batch or seq_lengths.ndim != 1:
        raise DefinitionError(f"reverse_sequence wants two axes and a vector, got {time}, {batch} and {seq_lengths}")

    def element(*i: Expr) -> Expr:
        most = te.cast(a.shape[time], "int64")
        length = te.cast(te.minimum(te.cast(seq_lengths(i[batch]), "int64"), most), i[time].dtype)
        return a(*replaced(i, time, te.select(i[time] < length, length - 1 - i[time], i[time])))

    return computed(a.shape, element, name)
