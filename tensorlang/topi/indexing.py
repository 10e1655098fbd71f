"""Elements chosen by tensors of indices: gather_nd, advanced indices, places as coordinates."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, same
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.broadcast import broadcast_shape, element_of
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed


@checked
def gather_nd(data: Tensor, indices: Tensor, batch_dims: int = 0, name: str = "gather_nd") -> Tensor:
    """Return the elements or slices of `data` at the points that `indices` names: its first axis runs over coordinates.

    The shape is that of `indices` without the first axis, then that of `data` behind the coordinates; the first
    `batch_dims` axes are common to both. An index that is out of range is an error when the kernel runs.
    DefinitionError for more coordinates than dimensions.

        >>> from tensorlang import te, topi
        >>> topi.gather_nd(te.placeholder((4, 5, 6)), te.placeholder((2, 7), "int32")).shape
        (7, 6)
    """
    count = extent_of(indices.shape[0]) if indices.ndim else None
    if count is None or not dtypes.info(indices.dtype).is_integer or batch_dims + count > data.ndim:
        raise DefinitionError(f"gather_nd wants integer indices, with one row for each coordinate of {data}: {indices}")
    if not 0 <= batch_dims < indices.ndim:
        raise DefinitionError(f"gather_nd: {indices} has no {batch_dims} axes of a batch behind the coordinates")
    if not all(map(same, indices.shape[1 : batch_dims + 1], data.shape[:batch_dims])):
        raise DefinitionError(f"gather_nd: the first {batch_dims} axes of {data} are not those of {indices}")
    points = indices.ndim - 1

    def element(*i: Expr) -> Expr:
        place = [indices(row, *i[:points]) for row in range(count)]
        return data(*i[:batch_dims], *place, *i[points:])

    return computed([*indices.shape[1:], *data.shape[batch_dims + count :]], element, name)


@checked
def adv_index(data: Tensor, indices: Sequence[Tensor], name: str = "adv_index") -> Tensor:
    """Return `data[indices]`, a tensor of indices for each of the first axes; these are broadcast together.

    An index that is out of range is an error when the kernel runs. DefinitionError for too many, or for no integers.
    """
    if not indices or len(indices) > data.ndim or not all(dtypes.info(x.dtype).is_integer for x in indices):
        raise DefinitionError(f"adv_index of {data} wants up to {data.ndim} tensors of integers, got {list(indices)}")
    shape = broadcast_shape("adv_index", indices)

    def element(*i: Expr) -> Expr:
        return data(*[element_of(x, i[: len(shape)]) for x in indices], *i[len(shape) :])

    return computed([*shape, *data.shape[len(indices) :]], element, name)


@checked
def unravel_index(indices: Tensor, shape: Sequence[int], name: str = "unravel_index") -> Tensor:
    """Return the coordinates of places in a flattened tensor of a shape, a row for each of its dimensions.

    DefinitionError for indices that are no integers.
    """
    if not dtypes.info(indices.dtype).is_integer or min(shape, default=-1) < 0:
        wanted = "integers, and a shape of at least one dimension, none of them negative"
        raise DefinitionError(f"unravel_index wants {wanted}; got {indices} and {shape}")

    def element(*i: Expr) -> Expr:
        rest, rows = indices(*i[1:]), list[Expr]()
        for extent in reversed(shape):
            rows.insert(0, binary("floormod", rest, max(extent, 1)))
            rest = binary("floordiv", rest, max(extent, 1))
        made = rows[-1]
        for number in range(len(shape) - 1):
            made = te.select(i[0] == number, rows[number], made)
        return made

    return computed([len(shape), *indices.shape], element, name)
