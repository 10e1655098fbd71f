"""Reductions on NumPy arrays, block by block, in the lexicographic order of the reduce axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes
from tensorlang.te.numpy_eval import Grid, value
from tensorlang.te.operation import Reduce, Reducer
from tensorlang.te.reducer import BUILTIN, builtin

Array = npt.NDArray[Any]

_UFUNC = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
    "all": np.logical_and, "any": np.logical_or,
}  # fmt: skip


class Accumulator:
    """The running values of one reduction at every point of a spatial block."""

    def __init__(self, reduction: Reduce, start: tuple[Array, ...]) -> None:
        self._reducer = reduction.reducer
        self._types = tuple(s.dtype for s in reduction.sources)
        self._ufunc = _ufunc(reduction.reducer)
        self._values = start
        wide = reduction.reducer.name in ("sum", "prod") and dtypes.info(self._types[0]).is_float
        if self._ufunc is not None and wide:
            self._values = tuple(s.astype(np.float64) for s in start)

    def add(self, sources: tuple[Array, ...], keep: Array | None) -> None:
        """Combine a block of elements (its last axis enumerates the reduction) where `keep` holds."""
        if self._ufunc is None:
            self._values = _in_order(self._reducer, self._values, sources, keep)
            return
        (total,), (source,) = self._values, sources
        if keep is not None:
            (identity,) = (value(i, Grid({}, {})) for i in self._reducer.identity)
            source = np.where(keep, source, identity)
        self._values = (self._ufunc(total, self._ufunc.reduce(source, axis=-1, dtype=total.dtype)),)

    def result(self) -> tuple[Array, ...]:
        """The reduced values, rounded to the element dtypes."""
        return tuple(v.astype(dtypes.info(t).numpy) for v, t in zip(self._values, self._types))


def _ufunc(reducer: Reducer) -> Any:
    if reducer.name in BUILTIN and reducer == builtin(reducer.name, reducer.lhs[0].dtype):
        return _UFUNC[reducer.name]
    return None


def _in_order(
    reducer: Reducer, start: tuple[Array, ...], sources: tuple[Array, ...], keep: Array | None
) -> tuple[Array, ...]:
    """Combine neighbours until one element is left: the sequential result, since combiners are associative."""
    parts = list(sources)
    held = np.ones((1,) * parts[0].ndim, bool) if keep is None else keep
    held = np.broadcast_to(held, parts[0].shape)
    while parts[0].shape[-1] > 1:
        even = parts[0].shape[-1] // 2 * 2
        left, right = tuple(p[..., 0:even:2] for p in parts), tuple(p[..., 1:even:2] for p in parts)
        merged = _combine(reducer, left, held[..., 0:even:2], right, held[..., 1:even:2])
        parts = [np.concatenate((m, p[..., even:]), axis=-1) for m, p in zip(merged, parts)]
        held = np.concatenate((held[..., 0:even:2] | held[..., 1:even:2], held[..., even:]), axis=-1)
    last = tuple(p[..., 0] for p in parts)
    return _combine(reducer, start, np.ones_like(held[..., 0]), last, held[..., 0])


def _combine(
    reducer: Reducer, left: tuple[Array, ...], has_left: Array, right: tuple[Array, ...], has_right: Array
) -> tuple[Array, ...]:
    names = [v.name for v in (*reducer.lhs, *reducer.rhs)]
    grid = Grid(dict(zip(names, (*left, *right))), {})
    merged = (value(r, grid) for r in reducer.result)
    return tuple(np.where(has_left & has_right, m, np.where(has_left, x, y)) for m, x, y in zip(merged, left, right))
