"""Products of sparse matrices, element by element in their order: each is multiplied with a row of the other matrix."""

from __future__ import annotations

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast, same
from tensorlang.ir.simplify import simplify
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.computed import computed, rounded_once


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
    """A sparse matrix [rows, k], of elements or of blocks, times a matrix [k, n]; sums are as those of `matmul`."""
    check_matrix(name, data, indices, indptr)
    if dense.ndim != 2 or dense.dtype != data.dtype:
        raise DefinitionError(f"{name} wants a matrix of {data.dtype}, got {dense}")
    high, wide = block_sides(name, data)
    past = binary("floordiv", cast(dense.shape[0], "int64"), wide)

    def element(i: Expr, j: Expr, dtype: str) -> Expr:
        row, r = (i, te.const(0)) if high == 1 else (te.indexdiv(i, high), te.indexmod(i, high))
        at, k = stored(indptr, row)
        column = within(indices(at), past) * wide
        if data.ndim == 1:
            return te.sum(cast(data(at), dtype) * cast(dense(column, j), dtype), axis=k)
        c = te.reduce_axis((0, wide), "c")
        return te.sum(cast(data(at, r, c), dtype) * cast(dense(column + c, j), dtype), axis=[k, c])

    shape = (simplify(indptr.shape[0] - 1) * high, dense.shape[1])
    return rounded_once(name, data.dtype, lambda name, dtype: computed(shape, lambda i, j: element(i, j, dtype), name))


def block_sides(name: str, data: Tensor) -> tuple[int, int]:
    """Height and width of blocks; 1 and 1 of elements."""
    sides = [extent_of(n) for n in data.shape[1:]] or [1, 1]
    if None in sides or 0 in sides:
        raise DefinitionError(f"{name} wants blocks whose sizes are numbers, got {data}")
    return sides[0] or 1, sides[1] or 1


def stored(indptr: Tensor, row: Expr) -> tuple[Expr, Axis]:
    """The places of what is stored of a row, and the axis over them: it ends where the next row begins."""
    k = te.reduce_axis((0, indptr(row + 1) - indptr(row)), "elem_idx")
    return indptr(row) + k, k


def within(column: Expr, past: Expr) -> Expr:
    """A column of blocks that is out of range so, too, when it is multiplied by the width of a block."""
    limited: Expr = te.max(te.min(cast(column, "int64"), past), -1)
    return limited


def begun_elements(k: Expr, indptr: Tensor) -> Expr:
    """Whether an element belongs to a row: there may be room behind the last one."""
    return binary("lt", k, indptr(simplify(indptr.shape[0] - 1)))
