"""Elements chosen by tensors of indices, and indices of elements: gather_nd, adv_index, argwhere, unravel_index."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast, same
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import as_int64, extents, normalized_all
from tensorlang.topi.broadcast import broadcast_shape, element_of
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.creation import full
from tensorlang.topi.scatter import scatter_elements
from tensorlang.topi.transform import reshape
from tensorlang.topi.vision.front import count_of, places_in_front


@checked
def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0, name: str = "gather_nd") -> Tensor:
    """Return the elements or slices of `data` at the points that `indices` names: its first axis runs over coordinates.

    The shape is that of `indices` without the first axis, then that of `data` behind the coordinates; the first
    `batch_dims` axes are common to both. Indices may be floats, whose fractions are left out. An index that is out of
    range is an error when the kernel runs.
    DefinitionError for more coordinates than dimensions.

        >>> from tensorlang import te, topi
        >>> topi.gather_nd(te.placeholder((4, 5, 6)), te.placeholder((2, 7), "int32")).shape
        (7, 6)
    """
    count = extent_of(indices.shape[0]) if indices.ndim else None
    number = indices.dtype != "bool"
    if count is None or not number or batch_dims + count > data.ndim:
        raise DefinitionError(f"gather_nd wants integer indices, with one row for each coordinate of {data}: {indices}")
    if not 0 <= batch_dims < indices.ndim:
        raise DefinitionError(f"gather_nd: {indices} has no {batch_dims} axes of a batch behind the coordinates")
    if not all(map(same, indices.shape[1 : batch_dims + 1], data.shape[:batch_dims])):
        raise DefinitionError(f"gather_nd: the first {batch_dims} axes of {data} are not those of {indices}")
    points, is_float = indices.ndim - 1, dtypes.info(indices.dtype).is_float

    def whole(index: Expr) -> Expr:
        return cast(index, "int64") if is_float else index

    def element(*i: Expr) -> Expr:
        place = [whole(indices(row, *i[:points])) for row in range(count)]
        return data(*i[:batch_dims], *place, *i[points:])

    return computed([*indices.shape[1:], *data.shape[batch_dims + count :]], element, name)


@checked
def adv_index(data: Tensor, indices: Sequence[Tensor], name: str = "adv_index") -> Tensor:
    """Return `data[indices]`, a tensor of indices for each of the first axes; these are broadcast together.

    An index that is out of range is an error when the kernel runs. DefinitionError for too many, or for no integers.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.adv_index, [[1, 2], [3, 4]], ([0, 1], [1, 0]))
        array([2, 3], dtype=int32)
    """
    if not indices or len(indices) > data.ndim or not all(dtypes.info(x.dtype).is_integer for x in indices):
        raise DefinitionError(f"adv_index of {data} wants up to {data.ndim} tensors of integers, got {list(indices)}")
    shape = broadcast_shape("adv_index", indices)

    def element(*i: Expr) -> Expr:
        return data(*[element_of(x, i[: len(shape)]) for x in indices], *i[len(shape) :])

    return computed([*shape, *data.shape[len(indices) :]], element, name)


@checked
def unravel_index(indices: Tensor, shape: Tensor | Sequence[int], name: str = "unravel_index") -> Tensor:
    """Return the coordinates of places in a flattened tensor of a shape, a row for each of its dimensions.

    The shape may be data, a vector of integers. DefinitionError for indices that are no integers.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.unravel_index, [5], shape=(2, 3))
        array([[1],
               [2]], dtype=int32)
    """
    known = _extents_of_data(name, shape) if isinstance(shape, Tensor) else list(shape)
    if not dtypes.info(indices.dtype).is_integer or not known or any(isinstance(n, int) and n < 0 for n in known):
        wanted = "integers, and a shape of at least one dimension, none of them negative"
        raise DefinitionError(f"unravel_index wants {wanted}; got {indices} and {shape}")
    sizes = [max(n, 1) if isinstance(n, int) else te.maximum(n, te.const(1, "int64")) for n in known]

    def element(*i: Expr) -> Expr:
        place, rows = indices(*i[1:]), list[Expr]()
        rest = as_int64(place) if isinstance(shape, Tensor) else place
        for extent in reversed(sizes):
            rows.insert(0, binary("floormod", rest, extent))
            rest = binary("floordiv", rest, extent)
        made = rows[-1]
        for number in range(len(rows) - 1):
            made = te.select(i[0] == number, rows[number], made)
        return cast(made, indices.dtype)

    return computed([len(sizes), *indices.shape], element, name)


def _extents_of_data(name: str, shape: Tensor) -> list[int | Expr]:
    """The extents that a vector of integers holds; none where it is no such vector."""
    if shape.ndim != 1 or not dtypes.info(shape.dtype).is_integer:
        return []
    return [as_int64(shape(d)) for d in range(extents(name, shape)[0])]


@checked
def invert_permutation(data: Tensor, name: str = "invert_permutation") -> Tensor:
    """Return where each number is in a permutation; one that is out of range is an error when the kernel runs.

    DefinitionError for anything but a vector of integers.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.invert_permutation, [2, 0, 1])
        array([1, 2, 0], dtype=int32)
    """
    if data.ndim != 1 or not dtypes.info(data.dtype).is_integer:
        raise DefinitionError(f"{name} wants a vector of integers, got {data}")
    start = full(extents(name, data), data.dtype, 0, f"{name}_start")
    places = computed(data.shape, lambda i: te.cast(i, data.dtype), f"{name}_places")
    (n,) = extents(name, data)

    def place(k: Expr) -> Expr:
        """A number; negative ones, which a scatter would count from the end, are out of range."""
        at = as_int64(data(k))
        return te.select(binary("lt", at, 0), te.const(n, "int64"), at)

    return scatter_elements(start, computed((n,), place, f"{name}_at"), places, 0, "update", name)


@checked
def argwhere(
    output_shape: Sequence[int] | Tensor | None, condition: Tensor, with_count: bool = False, name: str = "argwhere"
) -> Tensor | list[Tensor]:
    """Return the coordinates of the elements that are true (not zero), int32[n, dimensions] in order, -1 behind them.

    `output_shape`, also as a tensor of it, bounds their number, at most that of all elements (None); `with_count`: also
    the number itself, int32[1]. DefinitionError for other shapes.

        >>> from tensorlang import te, topi
        >>> topi.argwhere(None, te.placeholder((4, 5), "bool")).shape
        (20, 2)
    """
    shape = extents(name, condition)
    most = math.prod(shape)
    if isinstance(output_shape, Tensor):
        output_shape = extents(name, output_shape)
    made = (most, len(shape)) if output_shape is None else tuple(output_shape)
    if len(made) != 2 or made[1] != len(shape) or not made[0] >= 0 or not shape:
        raise DefinitionError(f"{name} of {condition} has the shape (n, {len(shape)}), got {made}")
    wanted = condition if condition.dtype == "bool" else computed(shape, lambda *i: condition(*i) != 0, f"{name}_true")
    flat = reshape(wanted, (1, most), f"{name}_flat")
    places = places_in_front(flat, f"{name}_places")

    def coordinate(k: Expr, d: Expr) -> Expr:
        place = places(0, te.minimum(k, max(most - 1, 0)))
        found: Expr = te.const(-1, "int32")
        for axis, extent in enumerate(shape):
            behind = math.prod(shape[axis + 1 :])
            own = binary("floormod", binary("floordiv", place, max(behind, 1)), max(extent, 1))
            found = te.select(binary("eq", d, axis), own, found)
        there = te.all(binary("lt", k, most), binary("ge", place, 0))
        return te.if_then_else(there, found, te.const(-1, "int32"))

    result = computed(made, coordinate, name) if most else full(made, "int32", -1, name)
    return [result, count_of(flat, f"{name}_count")] if with_count else result


@checked
def expand_like(a: Tensor, shape_like: Tensor, axis: Sequence[int], name: str = "expand_like") -> Tensor:
    """Return `a` repeated along new axes, in the shape of another tensor; DefinitionError where it does not fit.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.expand_like, [1, 2], [[0, 0], [0, 0]], axis=[0])
    array([[1, 2],
           [1, 2]], dtype=int32)
    """
    new = normalized_all(name, shape_like, axis)
    rest = [extent for d, extent in enumerate(shape_like.shape) if d not in new]
    if len(rest) != a.ndim or not all(map(same, rest, a.shape)):
        raise DefinitionError(f"{name}: {a} with the axes {new} has not the shape of {shape_like}")
    return computed(shape_like.shape, lambda *i: a(*[v for d, v in enumerate(i) if d not in new]), name)
