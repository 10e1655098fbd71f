"""Sparse tensors as the places of their elements, of other shapes: sparse_reshape, sparse_fill_empty_rows."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import as_int64, extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed

Shape = Sequence[int] | None


@checked
def sparse_reshape(
    sparse_indices: Tensor,
    prev_shape: Tensor,
    new_shape: Tensor,
    new_sparse_indices_shape: Shape = None,
    new_shape_shape: Shape = None,
    name: str = "sparse_reshape",
) -> list[Tensor]:
    """Return the places of the elements of a sparse tensor in another shape, and that shape, -1 in it replaced.

    `sparse_indices` are places [n, dimensions] in a tensor of `prev_shape`, which is data as `new_shape` is. The last
    two arguments follow from the others, and are compared. Shapes of different sizes are not found out.
    DefinitionError for other dimensions and dtypes.

        >>> from tensorlang import te, topi
        >>> at, old, new = te.placeholder((5, 3), "int32"), te.placeholder((3,), "int32"), te.placeholder((2,), "int32")
        >>> [x.shape for x in topi.sparse_reshape(at, old, new)]
        [(5, 2), (2,)]
    """
    (many, rank), (old,), (wanted,) = _three(name, sparse_indices, prev_shape, new_shape)
    if rank != old or not rank or not wanted:
        raise DefinitionError(f"{name}: {sparse_indices} has no coordinates of a shape {prev_shape}")
    _compare(name, new_sparse_indices_shape, (many, wanted))
    _compare(name, new_shape_shape, (wanted,))
    place = computed((many,), lambda i: _flat(sparse_indices, prev_shape, i, rank), f"{name}_place")
    one = te.const(1, "int64")

    def extent(j: Expr) -> Expr:
        total: Expr = one
        known: Expr = one
        for d in range(rank):
            total = total * as_int64(prev_shape(d))
        for d in range(wanted):
            size = as_int64(new_shape(d))
            known = known * te.select(binary("eq", size, -1), one, size)
        own = as_int64(new_shape(j))
        rest = te.floordiv(total, te.select(binary("eq", known, 0), one, known))
        return te.select(binary("eq", own, -1), rest, own)

    sizes = computed((wanted,), extent, f"{name}_sizes")

    def coordinate(i: Expr, j: Expr) -> Expr:
        rest = place(i)
        made: Expr = te.const(0, "int64")
        for d in reversed(range(wanted)):
            size = te.maximum(sizes(d), one)
            made = te.select(binary("eq", j, d), te.floormod(rest, size), made)
            rest = te.floordiv(rest, size)
        return cast(made, sparse_indices.dtype)

    shape = computed((wanted,), lambda j: cast(sizes(j), prev_shape.dtype), f"{name}_shape")
    return [computed((many, wanted), coordinate, name), shape]


def _three(name: str, indices: Tensor, prev_shape: Tensor, new_shape: Tensor) -> list[tuple[int, ...]]:
    """The shapes of places and of two shapes; DefinitionError where they are none."""
    given = [indices, prev_shape, new_shape]
    found = [extents(name, x) for x in given]
    if [len(x) for x in found] != [2, 1, 1] or not all(dtypes.info(x.dtype).is_integer for x in given):
        raise DefinitionError(f"{name} wants places [n, dimensions] and two shapes, all integers; got {given}")
    return found


def _flat(indices: Tensor, shape: Tensor, i: Expr, rank: int) -> Expr:
    """The number of a place among those of a shape."""
    made: Expr = te.const(0, "int64")
    for d in range(rank):
        made = made * as_int64(shape(d)) + as_int64(indices(i, d))
    return made


def _compare(name: str, given: Shape, made: tuple[int, ...]) -> None:
    if given is not None and tuple(given) != made:
        raise DefinitionError(f"{name} makes the shape {made}, and {tuple(given)} was asked for")


@checked
def sparse_fill_empty_rows(
    sparse_indices: Tensor,
    sparse_values: Tensor,
    dense_shape: Tensor | Sequence[int],
    default_value: Tensor,
    new_sparse_indices_shape: Shape = None,
    new_sparse_values_shape: Shape = None,
    empty_row_indicator_shape: Shape = None,
    with_count: bool = False,
    name: str = "sparse_fill_empty_rows",
) -> list[Tensor]:
    """Return a sparse tensor that has `default_value` first in rows without elements, and which rows had none.

    `sparse_indices` are places [n, dimensions] in rising order, `default_value` is () or [1]. Places, values and a 1
    for each empty row: int64, but for the values. There is room for n elements and one for each row, or for as many as
    the shapes say, behind the last one -1 and 0; with `with_count` also how many there are, int32[1]. The rows are the
    first of `dense_shape`, or those of `empty_row_indicator_shape` where that is data. More elements than there is room
    for, and rows out of range, are an error when the kernel runs. DefinitionError for other shapes and dtypes.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> fill = lambda at, values, default: topi.sparse_fill_empty_rows(at, values, [3, 4], default)
        >>> places, values, empty = te.evaluate(fill, np.array([[1, 2]]), [5.0], [7.0])
        >>> places.tolist(), values.tolist(), empty.tolist()
        ([[0, 0], [1, 2], [2, 0], [-1, -1]], [7.0, 5.0, 7.0, 0.0], [1, 0, 1])
    """
    at, (many, *_) = extents(name, sparse_indices), (*extents(name, sparse_values), 0)
    rows = _rows(name, dense_shape, empty_row_indicator_shape)
    one = extents(name, default_value) in ((), (1,)) and default_value.dtype == sparse_values.dtype
    fits = len(at) == 2 and sparse_values.ndim == 1 and at[0] == many and at[1] >= 1
    if not fits or not one or not dtypes.info(sparse_indices.dtype).is_integer:
        wanted = "places [n, dimensions], their values [n], and one more value"
        raise DefinitionError(f"{name} wants {wanted}; got {sparse_indices}, {sparse_values} and {default_value}")
    asked = [*(new_sparse_values_shape or ()), *(new_sparse_indices_shape or ())]
    room = asked[0] if asked else many + rows
    _compare(name, new_sparse_values_shape, (room,))
    _compare(name, new_sparse_indices_shape, (room, at[1]))
    default = computed((1,), lambda i: default_value(*(i,)[: default_value.ndim]), f"{name}_default")
    made = _filled(sparse_indices, sparse_values, default, (rows, room, at[1], many), name)
    return list(made if with_count else made[:3])


def _rows(name: str, dense_shape: Tensor | Sequence[int], indicator: Shape) -> int:
    """How many rows there are."""
    known = None if isinstance(dense_shape, Tensor) else tuple(dense_shape)[:1]
    found = known if indicator is None else tuple(indicator)
    if not found or len(found) != 1 or found[0] < 0 or known not in (None, found):
        raise DefinitionError(f"{name} is of rows whose number is known: got {dense_shape} and {indicator}")
    return found[0]


def _filled(
    indices: Tensor, values: Tensor, default: Tensor, sizes: tuple[int, int, int, int], name: str
) -> tuple[Tensor, ...]:
    """Elements one after the other, behind those of empty rows before them; then those of empty rows."""
    rows, room, rank, many = sizes
    dtype = values.dtype

    def filled(indices, values, default):  # type: ignore[no-untyped-def]
        places = te.output_tensor((room, rank), "int64")
        made = te.output_tensor((room,), dtype)
        empty = te.output_tensor((rows,), "int64")
        count = te.output_tensor((1,), "int32")
        begins = te.allocate((rows,), "int32", "local")
        own = te.allocate((rows,), "int32", "local")
        for r in range(rows):
            empty[r] = te.cast(1, "int64")
            own[r] = 1
        for i in range(many):
            if empty[indices[i, 0]] == 1:
                empty[indices[i, 0]] = te.cast(0, "int64")
            else:
                own[indices[i, 0]] = own[indices[i, 0]] + 1
        count[0] = 0
        for r in range(rows):
            begins[r] = count[0]
            count[0] = count[0] + own[r]
            own[r] = 0
        for k in range(room):
            made[k] = te.cast(0, dtype)
            for d in range(rank):
                places[k, d] = te.cast(-1, "int64")
        for i in range(many):
            for d in range(rank):
                places[begins[indices[i, 0]] + own[indices[i, 0]], d] = te.cast(indices[i, d], "int64")
            made[begins[indices[i, 0]] + own[indices[i, 0]]] = values[i]
            own[indices[i, 0]] = own[indices[i, 0]] + 1
        for r in range(rows):
            if empty[r] == 1:
                made[begins[r]] = default[0]
                for d in range(rank):
                    places[begins[r], d] = te.cast(r if d == 0 else 0, "int64")
        return places, made, empty, count

    found: tuple[Tensor, ...] = te.hybrid.script(name=name)(filled)(indices, values, default)
    return found
