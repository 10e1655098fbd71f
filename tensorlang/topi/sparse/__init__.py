"""Sparse matrices, whose elements lie row by row with their columns (CSR), or in blocks (BSR), and their products."""

from tensorlang.topi.sparse.matrices import CSRNDArray, CSRPlaceholder, array, placeholder
from tensorlang.topi.sparse.products import csrmm, csrmv, dense

__all__ = ["CSRNDArray", "CSRPlaceholder", "array", "csrmm", "csrmv", "dense", "placeholder"]
