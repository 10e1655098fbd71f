"""Sparse matrices, whose elements lie row by row with their columns (CSR), or in blocks (BSR), and their products."""

from typing import TYPE_CHECKING, Any

from tensorlang.names import listing, lookup
from tensorlang.topi.sparse.matrices import CSRNDArray, CSRPlaceholder, array, placeholder
from tensorlang.topi.sparse.products import csrmm, csrmv, dense

__all__ = ["CSRNDArray", "CSRPlaceholder", "array", "csrmm", "csrmv", "dense", "placeholder"]


if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang.classic import sparse_data

    utils = sparse_data
else:

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
