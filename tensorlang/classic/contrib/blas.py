"""`tvm.contrib.cblas`: products by the BLAS that NumPy calls, as stages of `te.extern`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.location import caller
from tensorlang.nd import NDArray
from tensorlang.te.operation import Tensor
from tensorlang.te.packed import call_packed, register_func


@register_func("tvm.contrib.cblas.matmul", override=True)
def _multiplied(a: NDArray, b: NDArray, out: NDArray, transa: bool = False, transb: bool = False) -> None:
    """Write the product of two arrays of matrices, some of them turned, to a third."""
    left, right = (np.swapaxes(x.data, -1, -2) if turned else x.data for x, turned in ((a, transa), (b, transb)))
    np.matmul(left, right, out=out.data)


register_func("tvm.contrib.cblas.batch_matmul", _multiplied, override=True)


def matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, **kwargs: Any) -> Tensor:
    """Return the product of two matrices, `lhs` or `rhs` turned first, by a call of NumPy when the kernel runs.

    `topi.matmul` is scheduled, tuned and exported; this is not. Further arguments are those of te.extern.
    DefinitionError for other dimensions than two, and different dtypes.
    """
    return _product("cblas.matmul", 2, (lhs, rhs), (transa, transb), kwargs)


def batch_matmul(
    lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False, iterative: bool = False, **kwargs: Any
) -> Tensor:
    """Return the products of two arrays of matrices, as matmul; `iterative` is accepted for TVM's sake."""
    del iterative
    return _product("cblas.batch_matmul", 3, (lhs, rhs), (transa, transb), kwargs)


def _product(
    name: str, rank: int, factors: tuple[Tensor, Tensor], turned: tuple[bool, bool], options: dict[str, Any]
) -> Tensor:
    lhs, rhs = factors
    if lhs.ndim != rank or rhs.ndim != rank or lhs.dtype != rhs.dtype:
        raise DefinitionError(
            f"{name} wants two tensors of {rank} dimensions and one dtype, got {lhs}, {rhs}", caller()
        )
    shape = (*lhs.shape[:-2], lhs.shape[-1 if turned[0] else -2], rhs.shape[-2 if turned[1] else -1])
    made = te.extern(
        shape,
        [lhs, rhs],
        lambda ins, outs: call_packed(f"tvm.contrib.{name}", ins[0], ins[1], outs[0], *turned),
        **{"name": "C", "dtype": lhs.dtype, **options},
    )
    assert isinstance(made, Tensor)
    return made
