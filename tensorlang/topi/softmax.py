"""Softmax and log-softmax along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.schedule.rewrites.attention import greatest_number
from tensorlang.te.operation import Tensor
from tensorlang.te.tags import SHIFT
from tensorlang.topi.axes import at, normalized, without
from tensorlang.topi.checked import checked
from tensorlang.topi.computed import widened
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]

LOG2_E = 1.4426950408889634
"""exp2 of a multiple is cheaper than exp, and as exact where arguments are not above 0."""


@checked
def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """Return `exp(x) / sum(exp(x))` along an axis, computed without overflow, in the dtype of `x` (a float).

    Half precision is computed in float32. A row that holds NaN or infinity gives NaN. DefinitionError for a wrong axis.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.softmax, [[1.0, 2.0], [3.0, 5.0]], axis=1).round(4)
        array([[0.2689, 0.7311],
               [0.1192, 0.8808]], dtype=float32)
    """
    where = _checked("softmax", x, axis)
    greatest = _greatest(x, where, name)
    exps = te.compute(
        x.shape,
        lambda *i: te.exp2((widened(x(*i)) - greatest(*without(i, where))) * LOG2_E),
        name=f"{name}_exp",
    )
    k = te.reduce_axis((0, x.shape[where]), name="k")
    rest = tuple(without(x.shape, where))
    total = te.compute(rest, lambda *i: te.sum(exps(*at(i, where, k)), axis=k), name=f"{name}_sum")
    scale = te.compute(rest, lambda *i: 1.0 / total(*i), name=f"{name}_scale")
    made = te.compute(
        x.shape,
        lambda *i: (exps(*i) * scale(*without(i, where))).astype(x.dtype),
        name=name,
    )
    assert isinstance(made, Tensor)
    return made


@checked
def fast_softmax(x: Tensor, axis: int = -1, name: str = "fast_softmax") -> Tensor:
    """Return the softmax along an axis: powers are polynomials in softmax, too, and it is as fast.

    >>> from tensorlang import te, topi
    >>> te.evaluate(topi.nn.fast_softmax, [[0.0, 0.0]])
    array([[0.5, 0.5]], dtype=float32)
    """
    return softmax(x, axis, name)


@checked
def log_softmax(x: Tensor, axis: int = -1, name: str = "log_softmax") -> Tensor:
    """Return `x - log(sum(exp(x)))` along an axis, computed without overflow, in the dtype of `x` (a float).

    Half precision is computed in float32. A row that holds NaN or infinity gives NaN. DefinitionError for a wrong axis.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.log_softmax, [[1.0, 2.0], [3.0, 5.0]], axis=1).round(4)
        array([[-1.3133, -0.3133],
               [-2.1269, -0.1269]], dtype=float32)
    """
    where = _checked("log_softmax", x, axis)
    greatest = _greatest(x, where, name)
    k = te.reduce_axis((0, x.shape[where]), name="k")
    rest = tuple(without(x.shape, where))
    total = te.compute(
        rest,
        lambda *i: te.sum(te.exp2((widened(x(*at(i, where, k))) - greatest(*i)) * LOG2_E), axis=k),
        name=f"{name}_sum",
    )
    log = te.compute(rest, lambda *i: te.log(total(*i)), name=f"{name}_log")
    made = te.compute(
        x.shape,
        lambda *i: (widened(x(*i)) - greatest(*without(i, where)) - log(*without(i, where))).astype(x.dtype),
        name=name,
    )
    assert isinstance(made, Tensor)
    return made


def _checked(operator: str, x: Tensor, axis: int) -> int:
    if not dtypes.info(x.dtype).is_float:
        raise DefinitionError(f"{operator} wants floats, got {x.dtype}; cast the tensor first")
    return normalized(operator, x, axis)


def _greatest(x: Tensor, where: int, name: str) -> Tensor:
    k = te.reduce_axis((0, x.shape[where]), name="k")
    made = te.compute(
        tuple(without(x.shape, where)),
        lambda *i: greatest_number(widened(x(*at(i, where, k))), axis=k),
        name=f"{name}_max",
        attrs={SHIFT: True},
    )
    assert isinstance(made, Tensor)
    return made


def softmax_reference(x: Array) -> list[Array]:
    """Along the last axis, in float64."""
    return [np.exp(_log_softmax(x)).astype(x.dtype)]


def log_softmax_reference(x: Array) -> list[Array]:
    """Along the last axis, in float64."""
    return [_log_softmax(x).astype(x.dtype)]


def _log_softmax(x: Array) -> Array:
    shifted = x.astype(np.float64) - x.max(axis=-1, keepdims=True).astype(np.float64)
    made: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return made


def softmax_numpy(x: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def log_softmax_numpy(x: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.subtract(out, np.log(np.exp(out).sum(axis=-1, keepdims=True)), out=out)


def _softmax_workload(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
    x = te.placeholder((n, m), name="X", dtype=dtype)
    return [x, softmax(x)]


def _log_softmax_workload(n: int, m: int, dtype: str = "float32") -> list[Tensor]:
    x = te.placeholder((n, m), name="X", dtype=dtype)
    return [x, log_softmax(x)]


OPERATORS = (
    Operator("softmax", ("N", "M"), _softmax_workload, softmax_reference, softmax_numpy),
    Operator("log_softmax", ("N", "M"), _log_softmax_workload, log_softmax_reference, log_softmax_numpy),
)
