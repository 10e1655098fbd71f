"""Products of sparse matrices with vectors and matrices, by TVM's names in `topi.sparse`."""

from __future__ import annotations

from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, same
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import computed
from tensorlang.topi.sparse.matrices import CSRPlaceholder
from tensorlang.topi.sparse.rows import product
from tensorlang.topi.transform import transpose


@checked
def csrmv(a: CSRPlaceholder, x: Tensor, y: Tensor | None = None, name: str = "csrmv") -> Tensor:
    """Return the product of a sparse matrix [m, k] with a vector [k, 1], plus `y` [m], or [1], of shape [m, 1].

    DefinitionError where shapes or dtypes do not fit.

        >>> from tensorlang import te, topi
        >>> A = topi.sparse.placeholder((4, 6), nonzeros=9, name="A")
        >>> topi.sparse.csrmv(A, te.placeholder((6, 1))).shape
        (4, 1)
    """
    _check(name, a, x, y, x.ndim == 2 and extent_of(x.shape[1]) == 1)
    total = product(a.data, a.indices, a.indptr, x, name if y is None else f"{name}_product")
    if y is None:
        return total
    one = extent_of(y.shape[0]) == 1
    return computed(total.shape, lambda i, j: total(i, j) + (y(0) if one else y(i)), name)


@checked
def csrmm(a: CSRPlaceholder, b: Tensor, c: Tensor | None = None, name: str = "csrmm") -> Tensor:
    """Return the product of a sparse matrix [m, k] with a matrix [k, n], plus `c` [m] of each row, of shape [m, n].

    DefinitionError where shapes or dtypes do not fit.

        >>> from tensorlang import te, topi
        >>> A = topi.sparse.placeholder((4, 6), nonzeros=9, name="A")
        >>> topi.sparse.csrmm(A, te.placeholder((6, 2))).shape
        (4, 2)
    """
    _check(name, a, b, c, b.ndim == 2)
    total = product(a.data, a.indices, a.indptr, b, name if c is None else f"{name}_product")
    return total if c is None else computed(total.shape, lambda i, j: total(i, j) + c(i), name)


@checked
def dense(
    data: Tensor | CSRPlaceholder, weight: Tensor | CSRPlaceholder, bias: Tensor | None = None, name: str = "dense"
) -> Tensor:
    """Return `data[m, k] @ weight[n, k].T + bias[n]` of shape [m, n], one of both a sparse matrix.

    DefinitionError where shapes or dtypes do not fit, and for two matrices of a kind.

        >>> from tensorlang import te, topi
        >>> weight = topi.sparse.placeholder((4, 6), nonzeros=9, name="weight")
        >>> topi.sparse.dense(te.placeholder((2, 6)), weight).shape
        (2, 4)
    """
    if isinstance(data, CSRPlaceholder) == isinstance(weight, CSRPlaceholder):
        raise DefinitionError(f"{name} of topi.sparse wants one sparse matrix, as topi.sparse.placeholder makes it")
    if isinstance(data, CSRPlaceholder):
        assert isinstance(weight, Tensor)
        turned = transpose(weight, (1, 0), f"{name}_weight") if weight.ndim == 2 else weight
        _check(name, data, turned, bias, weight.ndim == 2)
        total = product(data.data, data.indices, data.indptr, turned, f"{name}_product")
    else:
        assert isinstance(weight, CSRPlaceholder)
        turned = transpose(data, (1, 0), f"{name}_data") if data.ndim == 2 else data
        _check(name, weight, turned, bias, data.ndim == 2)
        made = product(weight.data, weight.indices, weight.indptr, turned, f"{name}_product")
        total = transpose(made, (1, 0), f"{name}_turned")

    def element(i: Expr, j: Expr) -> Expr:
        return total(i, j) if bias is None else total(i, j) + bias(j)

    return computed(total.shape, element, name)


def _check(name: str, a: CSRPlaceholder, b: Tensor, c: Tensor | None, fits: bool) -> None:
    columns, rows = extent_of(a.shape[1]), extent_of(b.shape[0])
    fits = fits and (same(a.shape[1], b.shape[0]) or columns is None or rows is None)
    if not fits or (c is not None and c.ndim != 1):
        raise DefinitionError(f"{name}: {b}{'' if c is None else f' and {c}'} do not fit a matrix of shape {a.shape}")
    if any(x.dtype != a.dtype for x in (b, *([] if c is None else [c]))):
        raise DefinitionError(f"{name} wants tensors of {a.dtype}, as the matrix has it; got {b}")
