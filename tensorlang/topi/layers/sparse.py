"""Layers with sparse weights, by TVM's names in `topi.nn`."""

from __future__ import annotations

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, binary, cast
from tensorlang.ir.simplify import simplify
from tensorlang.te.operation import Tensor
from tensorlang.topi.axes import extents
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed, widened
from tensorlang.topi.scatter import scatter_nd
from tensorlang.topi.sparse.rows import begun_elements, block_sides, check_matrix, product, rows_of, stored, within
from tensorlang.topi.transform import transpose


@checked
def sparse_dense_sp_rhs(
    data: Tensor,
    weight_data: Tensor,
    weight_indices: Tensor,
    weight_indptr: Tensor,
    name: str = "sparse_dense_sp_rhs",
) -> Tensor:
    """Return `data[m, k] @ weight[n, k].T` of sparse weights: elements [n] (CSR) or blocks [n, rows, columns] (BSR).

    `weight_indices` are columns (of blocks), `weight_indptr` where rows (of blocks) begin. DefinitionError where shapes
    do not fit; a column that is out of range is an error when the kernel runs.

        >>> from tensorlang import te, topi
        >>> data, indices, indptr = [2.0, 3.0], [0, 1], [0, 1, 2]
        >>> te.evaluate(topi.sparse_dense_sp_rhs, [[1.0, 1.0]], data, indices, indptr)
        array([[2., 3.]], dtype=float32)
    """
    if data.ndim != 2:
        raise DefinitionError(f"{name} wants data [m, k], got {data}")
    if weight_data.ndim == 3:
        return _by_blocks(data, weight_data, weight_indices, weight_indptr, name)
    turned = transpose(data, (1, 0), f"{name}_data")
    made = product(weight_data, weight_indices, weight_indptr, turned, f"{name}_product")
    with te.tag_scope("sparse_dense_sp_rhs_csrmm"):
        return computed((data.shape[0], made.shape[0]), lambda i, j: made(j, i), name)


def _by_blocks(data: Tensor, blocks: Tensor, indices: Tensor, indptr: Tensor, name: str) -> Tensor:
    """The product of data and the transpose of blocks, in two stages: schedules of classic te know their tags."""
    check_matrix(name, blocks, indices, indptr)
    if data.dtype != blocks.dtype:
        raise DefinitionError(f"{name} wants a matrix of {blocks.dtype}, got {data}")
    high, wide = block_sides(name, blocks)
    past = binary("floordiv", cast(data.shape[1], "int64"), wide)

    def block(i: Expr, nb_j: Expr, j: Expr) -> Expr:
        at, k = stored(indptr, nb_j)
        c = te.reduce_axis((0, wide), "c")
        factor = data(i, within(indices(at), past) * wide + c)
        return te.sum(widened(blocks(at, j, c)) * widened(factor), axis=[k, c])

    rows, count = data.shape[0], simplify(indptr.shape[0] - 1)
    with te.tag_scope("sparse_dense_sp_rhs_bsrmm_block"):
        made = computed((rows, count, high), block, f"{name}_block")
    with te.tag_scope("sparse_dense_sp_rhs_bsrmm"):
        return computed((rows, count * high), lambda m, n: cast(made(m, n // high, n % high), data.dtype), name)


@checked
def sparse_dense_sp_lhs(
    data_data: Tensor, data_indices: Tensor, data_indptr: Tensor, weight: Tensor, name: str = "sparse_dense_sp_lhs"
) -> Tensor:
    """Return `data[m, k] @ weight[n, k].T` of sparse data, otherwise as sparse_dense_sp_rhs.

    >>> from tensorlang import te, topi
    >>> data, indices, indptr = [2.0, 3.0], [0, 1], [0, 1, 2]
    >>> te.evaluate(topi.sparse_dense_sp_lhs, data, indices, indptr, [[1.0, 1.0]])
    array([[2.],
           [3.]], dtype=float32)
    """
    if weight.ndim != 2:
        raise DefinitionError(f"{name} wants weights [n, k], got {weight}")
    return product(data_data, data_indices, data_indptr, transpose(weight, (1, 0), f"{name}_weight"), name)


@checked
def sparse_dense(
    dense_data: Tensor,
    sparse_data: Tensor,
    sparse_indices: Tensor,
    sparse_indptr: Tensor,
    sparse_lhs: bool = False,
    name: str = "sparse_dense",
) -> Tensor:
    """Return the product of a matrix with the transpose of a sparse one, or with `sparse_lhs` the other way around.

    >>> from tensorlang import te, topi
    >>> x, data, at = te.placeholder((3, 8)), te.placeholder((5, 2, 4)), te.placeholder((5,), "int32")
    >>> topi.nn.sparse_dense(x, data, at, te.placeholder((4,), "int32")).shape
    (3, 6)
    """
    if sparse_lhs:
        return sparse_dense_sp_lhs(sparse_data, sparse_indices, sparse_indptr, dense_data, name)
    return sparse_dense_sp_rhs(dense_data, sparse_data, sparse_indices, sparse_indptr, name)


@checked
def sparse_add(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor, name: str = "sparse_add"
) -> Tensor:
    """Return the sum of a matrix and a sparse one of elements; DefinitionError where shapes do not fit.

    A column that is out of range is an error when the kernel runs.

        >>> from tensorlang import te, topi
        >>> dense, data = te.placeholder((3, 4)), te.placeholder((5,))
        >>> indices, indptr = te.placeholder((5,), "int32"), te.placeholder((4,), "int32")
        >>> topi.sparse_add(dense, data, indices, indptr).shape
        (3, 4)
    """
    check_matrix(name, sparse_data, sparse_indices, sparse_indptr)
    shape = extents(name, dense_data)
    if len(shape) != 2 or sparse_data.ndim != 1 or extents(name, sparse_indptr) != (shape[0] + 1,):
        raise DefinitionError(f"{name}: {sparse_data} and {sparse_indptr} do not fit {dense_data}")
    if 0 in shape:
        return computed(shape, dense_data, name)
    rows = rows_of(sparse_indptr, sparse_data.shape[0], f"{name}_rows")

    def place(d: Expr, k: Expr) -> Expr:
        """The row and the column of an element; a scatter would count negative ones from the end."""
        column = cast(sparse_indices(k), "int64")
        column = te.select(binary("lt", column, 0), te.const(shape[1], "int64"), column)
        own = te.select(d < 1, cast(rows(k), "int64"), column)
        return te.if_then_else(begun_elements(k, sparse_indptr), own, te.const(0, "int64"))

    def value(k: Expr) -> Expr:
        return te.if_then_else(begun_elements(k, sparse_indptr), sparse_data(k), te.const(0, sparse_data.dtype))

    at = computed((2, sparse_data.shape[0]), place, f"{name}_at")
    return scatter_nd(dense_data, at, computed(sparse_data.shape, value, f"{name}_new"), "add", name)


@checked
def sparse_transpose(
    sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor, name: str = "sparse_transpose"
) -> list[Tensor]:
    """Return elements, columns and begins of rows of the transpose of a sparse square matrix of elements.

    DefinitionError where shapes do not fit.

        >>> from tensorlang import te, topi
        >>> data, at, begins = te.placeholder((9,)), te.placeholder((9,), "int32"), te.placeholder((5,), "int32")
        >>> [x.shape for x in topi.nn.sparse_transpose(data, at, begins)]
        [(9,), (9,), (5,)]
    """
    check_matrix(name, sparse_data, sparse_indices, sparse_indptr)
    if sparse_data.ndim != 1:
        raise DefinitionError(f"{name} takes elements [n], got the blocks {sparse_data}")
    (nonzeros,), (ends,) = extents(name, sparse_data), extents(name, sparse_indptr)
    rows = rows_of(sparse_indptr, sparse_data.shape[0], f"{name}_rows")
    dtype, kind, n = sparse_data.dtype, sparse_indices.dtype, ends - 1

    def transposed(data, indices, indptr, rows):  # type: ignore[no-untyped-def]
        made = te.output_tensor((nonzeros,), dtype)
        columns = te.output_tensor((nonzeros,), kind)
        begins = te.output_tensor((ends,), kind)
        free = te.allocate((ends,), kind, "local")
        for k in range(nonzeros):
            made[k] = 0
            columns[k] = 0
        for i in range(ends):
            free[i] = 0
        for k in range(nonzeros):
            if k < indptr[n]:
                free[indices[k] + 1] = free[indices[k] + 1] + 1
        for i in range(1, ends):
            free[i] = free[i] + free[i - 1]
        for i in range(ends):
            begins[i] = free[i]
        for k in range(nonzeros):
            if k < indptr[n]:
                made[free[indices[k]]] = data[k]
                columns[free[indices[k]]] = te.cast(rows[k], kind)
                free[indices[k]] = free[indices[k]] + 1
        return made, columns, begins

    found: tuple[Tensor, ...] = te.hybrid.script(name=name)(transposed)(
        sparse_data, sparse_indices, sparse_indptr, rows
    )
    return list(found)
