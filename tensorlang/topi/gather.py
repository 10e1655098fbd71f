"""Elements and rows chosen by indices that are data: take, gather, embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, same
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import normalized
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator
from tensorlang.topi.transform import reshape

Array = npt.NDArray[Any]
_MODES = ("clip", "wrap", "fast")


@checked
def take(
    a: Tensor,
    indices: Tensor,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
    name: str = "take",
) -> Tensor:
    """Return the slices of `a` that `indices` name along an axis (None: of the flattened tensor).

    The shape of `indices` takes the place of the axis; its first `batch_dims` axes are those of `a`. An index out of
    range is brought to the nearest element (`clip`), counted around (`wrap`), or an error when the kernel runs
    (`fast`). DefinitionError for anything else.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.take, [10, 20, 30], [2, 0])
        array([30, 10], dtype=int32)
    """
    if mode not in _MODES or not dtypes.info(indices.dtype).is_integer:
        raise DefinitionError(f"take wants integer indices and a mode of {_MODES}, got {indices} and {mode!r}")
    if axis is None:
        return take(reshape(a, (-1,), name=f"{name}_flat"), indices, 0, batch_dims, mode, name)
    where = normalized("take", a, axis)
    if not 0 <= batch_dims <= min(where, indices.ndim) or not all(
        map(same, a.shape[:batch_dims], indices.shape[:batch_dims])
    ):
        raise DefinitionError(f"take: {a} and {indices} have not {batch_dims} axes in common before axis {where}")
    end = where + indices.ndim - batch_dims

    def element(*i: Expr) -> Expr:
        at = indices(*i[:batch_dims], *i[where:end])
        return a(*i[:where], _within(at, a.shape[where], mode), *i[end:])

    made = te.compute((*a.shape[:where], *indices.shape[batch_dims:], *a.shape[where + 1 :]), element, name=name)
    assert isinstance(made, Tensor)
    return made


@checked
def embedding(table: Tensor, indices: Tensor, name: str = "embedding") -> Tensor:
    """Return the row of `table` for each index; one that is out of range is brought to the nearest row.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.embedding, [[1, 2], [3, 4]], [1, 1])
    array([[3, 4],
           [3, 4]], dtype=int32)
    """
    return take(table, indices, axis=0, name=name)


@checked
def gather(data: Tensor, axis: int, indices: Tensor, mode: str = "clip", name: str = "gather") -> Tensor:
    """Return `data` with its index along an axis replaced by `indices`, a tensor of the same rank, at each element.

    `mode` as for take. DefinitionError where the shapes differ off the axis.

        >>> import numpy as np
        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.gather, [[1, 2], [3, 4]], axis=1, indices=np.array([[1], [0]]))
        array([[2],
               [3]], dtype=int32)
    """
    where = normalized("gather", data, axis)
    fits = indices.ndim == data.ndim and all(
        same(a, b) for d, (a, b) in enumerate(zip(data.shape, indices.shape, strict=False)) if d != where
    )
    if not fits or mode not in _MODES or not dtypes.info(indices.dtype).is_integer:
        wanted = f"integer indices that differ from {data} along axis {where} only, and a mode of {_MODES}"
        raise DefinitionError(f"gather wants {wanted}; got {indices} and {mode!r}")

    def element(*i: Expr) -> Expr:
        return data(*i[:where], _within(indices(*i), data.shape[where], mode), *i[where + 1 :])

    made = te.compute(indices.shape, element, name=name)
    assert isinstance(made, Tensor)
    return made


def _within(index: Expr, extent: Expr, mode: str) -> Expr:
    count = extent.astype(index.dtype)
    if mode == "clip":
        return te.maximum(te.minimum(index, count - 1), 0)
    return te.floormod(index, count) if mode == "wrap" else index


def _embedding_workload(n: int, m: int, k: int, dtype: str = "float32") -> list[Tensor]:
    table, indices = te.placeholder((n, m), name="T", dtype=dtype), te.placeholder((k,), name="I", dtype="int32")
    return [table, indices, embedding(table, indices)]


def embedding_reference(table: Array, indices: Array) -> list[Array]:
    """Rows by index."""
    return [table[np.clip(indices, 0, len(table) - 1)]]


def embedding_numpy(table: Array, indices: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.take(table, indices, axis=0, out=out, mode="clip")


OPERATORS = (Operator("embedding", ("N", "M", "K"), _embedding_workload, embedding_reference, embedding_numpy),)
