"""The words of a script that make loops and arrays, as they mean in plain Python.

Every word can be used bare, as in classic te's scripts, as a name of te, or imported from `tensorlang.te.hybrid`.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes

Array = npt.NDArray[Any]
NAMES = ("serial", "parallel", "vectorize", "unroll", "const_range", "bind", "output_tensor", "allocate")


def range_(*bounds: Any) -> builtins.range:
    """A loop that runs in order: `range(end)`, `range(begin, end)` or `range(begin, end, step)`.

    >>> from tensorlang import te
    >>> list(te.range(1, 4))
    [1, 2, 3]
    """
    return builtins.range(*bounds)


def serial(*bounds: Any) -> builtins.range:
    """A loop that runs in order: `range`.

    >>> from tensorlang import te
    >>> list(te.serial(3))
    [0, 1, 2]
    """
    return builtins.range(*bounds)


def parallel(*bounds: Any) -> builtins.range:
    """A loop whose iterations may run at once.

    >>> from tensorlang import te
    >>> list(te.parallel(3))
    [0, 1, 2]
    """
    return builtins.range(*bounds)


def vectorize(*bounds: Any) -> builtins.range:
    """A loop whose iterations are the lanes of a vector.

    >>> from tensorlang import te
    >>> list(te.vectorize(3))
    [0, 1, 2]
    """
    return builtins.range(*bounds)


def unroll(*bounds: Any) -> builtins.range:
    """A loop that is written out.

    >>> from tensorlang import te
    >>> list(te.unroll(3))
    [0, 1, 2]
    """
    return builtins.range(*bounds)


def const_range(*bounds: Any) -> builtins.range:
    """A loop of constant bounds that is written out."""
    return builtins.range(*bounds)


def bind(tag: str, extent: Any) -> builtins.range:
    """A loop over the threads of a tag: `bind("threadIdx.x", 32)`."""
    return builtins.range(extent)


def output_tensor(shape: Any, dtype: Any = "float32") -> Array:
    """An array that the script makes and returns. Elements are written before they are read.

    >>> from tensorlang import te
    >>> te.output_tensor((2, 3), "int32").shape
    (2, 3)
    """
    return np.zeros(shape, dtypes.info(dtypes.canonical(dtype)).numpy)


def allocate(shape: Any, dtype: Any = "float32", scope: str = "global") -> Array:
    """An array of the block around, uninitialised in a kernel. `scope`: global, local or shared.

    >>> from tensorlang import te
    >>> te.allocate((2, 3), "int32").shape
    (2, 3)
    """
    return np.zeros(shape, dtypes.info(dtypes.canonical(dtype)).numpy)
