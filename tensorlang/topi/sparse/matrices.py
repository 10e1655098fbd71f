"""Sparse matrices as three arrays: elements, their columns, and where rows begin. TVM has them in `contrib.sparse`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked


@dataclass(frozen=True, slots=True)
class CSRPlaceholder:
    """A sparse matrix that is an input: `data`, `indices` (columns) and `indptr` (where rows begin) are its tensors."""

    shape: tuple[Expr, ...]
    data: Tensor
    indices: Tensor
    indptr: Tensor
    stype: str = "csr"

    @property
    def dtype(self) -> str:
        """The dtype of the elements."""
        return self.data.dtype


@dataclass(frozen=True, slots=True)
class CSRNDArray:
    """A sparse matrix of numbers: what a kernel takes for the three tensors of a CSRPlaceholder."""

    shape: tuple[int, ...]
    data: npt.NDArray[Any]
    indices: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    stype: str = "csr"

    def numpy(self) -> npt.NDArray[Any]:
        """The matrix with its zeros."""
        made = np.zeros(self.shape, self.data.dtype)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        made[rows, self.indices[: len(rows)]] = self.data[: len(rows)]
        return made

    asnumpy = numpy


@checked
def placeholder(
    shape: Sequence[ExprLike],
    nonzeros: ExprLike | None = None,
    dtype: str = "float32",
    name: str = "placeholder",
    stype: str = "csr",
) -> CSRPlaceholder:
    """Return a sparse matrix as an input, with so many elements; DefinitionError for other ranks and kinds.

    >>> from tensorlang import topi
    >>> topi.sparse.placeholder((4, 6), nonzeros=9, name="A").indptr.shape
    (5,)
    """
    if len(shape) != 2 or nonzeros is None or stype != "csr":
        raise DefinitionError(f"a sparse matrix has rows, columns, nonzeros and the stype csr, got {shape}, {nonzeros}")
    rows, columns = te.placeholder(tuple(shape), name=name).shape
    data = te.placeholder((nonzeros,), dtype, f"{name}_data")
    indices = te.placeholder((nonzeros,), "int32", f"{name}_indices")
    return CSRPlaceholder((rows, columns), data, indices, te.placeholder((rows + 1,), "int32", f"{name}_indptr"))


def array(source_array: npt.ArrayLike, device: Any = None) -> CSRNDArray:
    """Return the sparse matrix of a matrix: what is not 0, row by row. `device` is that of its kernels: the CPU's.

    DefinitionError for what is no matrix of numbers.

    >>> from tensorlang import topi
    >>> topi.sparse.array([[0, 2], [3, 0]]).indices
    array([1, 0], dtype=int32)
    """
    del device
    try:
        dense = np.asarray(source_array)
    except ValueError as error:
        raise DefinitionError(f"a sparse matrix is made of rows of one length: {error}") from error
    if dense.dtype.name not in dtypes.TABLE:
        raise DefinitionError(f"a sparse matrix is made of numbers ({', '.join(dtypes.TABLE)}), got {dense.dtype}")
    if dense.ndim != 2:
        raise DefinitionError(f"a sparse matrix is made of a matrix, got an array of shape {dense.shape}")
    rows, columns = np.nonzero(dense)
    begins = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
    return CSRNDArray(dense.shape, dense[rows, columns], columns.astype(np.int32), begins.astype(np.int32))
