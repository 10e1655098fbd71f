"""Products of sparse matrices, element by element in their order: each is multiplied with a row of the other matrix."""

from __future__ import annotations

from typing import Any

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.computed import computed

_cast: Any = te.cast  # of numbers and of expressions


def rows_of(indptr: Tensor, nonzeros: Expr, name: str) -> Tensor:
    """The row of each element, int32[nonzeros]: how many later rows have begun."""
    rows = simplify(indptr.shape[0] - 1)

    def begun(indptr, rows, nonzeros):  # type: ignore[no-untyped-def]
        made = te.output_tensor((nonzeros,), "int32")
        for k in range(nonzeros):
            made[k] = 0
        for r in range(1, rows):
            if indptr[r] < nonzeros:
                made[indptr[r]] = made[indptr[r]] + 1
        for k in range(1, nonzeros):
            made[k] = made[k] + made[k - 1]
        return made

    found = te.hybrid.script(name=name)(begun)(indptr, rows, nonzeros)
    assert isinstance(found, Tensor)
    return found


def check_matrix(name: str, data: Tensor, indices: Tensor, indptr: Tensor) -> None:
    """DefinitionError for what are no elements (or blocks of them), columns and begins of rows."""
    integers = indices.dtype == indptr.dtype and indptr.dtype in ("int32", "int64")
    fits = data.ndim in (1, 3) and indices.ndim == indptr.ndim == 1 and same(data.shape[0], indices.shape[0])
    if not integers or not fits or (extent_of(indptr.shape[0]) or 1) < 1:
        wanted = "elements [n] or blocks [n, rows, columns], their columns [n], and where rows begin"
        raise DefinitionError(f"{name} wants {wanted}; got {data}, {indices} and {indptr}")


def product(data: Tensor, indices: Tensor, indptr: Tensor, dense: Tensor, name: str) -> Tensor:
    """A sparse matrix [rows, k], of elements or of blocks, times a matrix [k, n]; sums are in the dtype of both."""
    check_matrix(name, data, indices, indptr)
    if dense.ndim != 2 or dense.dtype != data.dtype:
        raise DefinitionError(f"{name} wants a matrix of {data.dtype}, got {dense}")
    blocks = data if data.ndim == 3 else computed((data.shape[0], 1, 1), lambda k, r, c: data(k), f"{name}_blocks")
    sides = [extent_of(n) for n in blocks.shape[1:]]
    if None in sides or 0 in sides:
        raise DefinitionError(f"{name} wants blocks whose sizes are numbers, got {data}")
    high, wide = (n or 1 for n in sides)
    dtype = data.dtype
    rows = rows_of(indptr, blocks.shape[0], f"{name}_rows")
    count, n = simplify(indptr.shape[0] - 1), dense.shape[1]
    past = binary("floordiv", cast(dense.shape[0], "int64"), wide)

    def multiplied(blocks, indices, indptr, rows, dense, count, nonzeros, n, past):  # type: ignore[no-untyped-def]
        made = te.output_tensor((count * high, n), dtype)
        for i in range(count * high):
            for j in range(n):
                made[i, j] = 0
        for k in range(nonzeros):
            if k < indptr[count]:
                # Columns out of range stay so when they are multiplied by the width of a block.
                column = max(min(_cast(indices[k], "int64"), past), -1) * wide
                for r in range(high):
                    for c in range(wide):
                        for j in range(n):
                            made[rows[k] * high + r, j] = (
                                made[rows[k] * high + r, j] + blocks[k, r, c] * dense[column + c, j]
                            )
        return made

    found = te.hybrid.script(name=name)(multiplied)(
        blocks, indices, indptr, rows, dense, count, blocks.shape[0], n, past
    )
    assert isinstance(found, Tensor)
    return found


def begun_elements(k: Expr, indptr: Tensor) -> Expr:
    """Whether an element belongs to a row: there may be room behind the last one."""
    return binary("lt", k, indptr(simplify(indptr.shape[0] - 1)))
