"""Attention: softmax(query @ key.T * scale) @ value, some rows of scores at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, same
from tensorlang.te.operation import Tensor
from tensorlang.topi.attention_schedule import (
    CAUSAL,
    GREATEST,
    INVERSE,
    MIXED,
    SCALED,
    SCORE,
    TOTAL,
    WEIGHT,
    last_seen,
    schedule_attention,
)
from tensorlang.topi.operator import Operator, Rule, extent_of
from tensorlang.topi.softmax import LOG2_E, greatest_number

Array = npt.NDArray[Any]
_TAG = "attention"


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    name: str = "attention",
) -> Tensor:
    """Return softmax(query @ key.T * scale) @ value, of query[..., n, d], key[..., m, d] and value[..., m, v].

    `scale` is 1 / sqrt(d) unless given. `is_causal`: query i sees key j only if `j <= i + m - n`, so that the last one
    sees all; m may not be below n. The matrix of scores is never in memory as a whole. DefinitionError where shapes or
    dtypes do not fit.
    """
    factor = _checked(query, key, value, scale) * LOG2_E
    n, m = query.shape[-2], key.shape[-2]
    if is_causal and extent_of(m) is not None and (extent_of(n) or 0) > (extent_of(m) or 0):
        raise DefinitionError(f"attention: {n} queries, the first of which would see none of {m} keys (is_causal)")
    scaled = _scores(query, key, factor, is_causal, name)
    k = te.reduce_axis((0, m), name="k")

    def near(i: Expr) -> Expr | None:
        return k.as_expr() <= last_seen(i, n, m) if is_causal else None

    greatest = _part(
        query.shape[:-1],
        lambda *x: greatest_number(scaled(*x, k), axis=k, where=near(x[-1])),
        f"{name}_max",
        GREATEST,
    )
    weight = _part(scaled.shape, lambda *x: te.exp2(scaled(*x) - greatest(*x[:-1])), f"{name}_weight", WEIGHT)
    total = _part(query.shape[:-1], lambda *x: te.sum(weight(*x, k), axis=k, where=near(x[-1])), f"{name}_sum", TOTAL)
    inverse = _part(query.shape[:-1], lambda *x: 1.0 / total(*x), f"{name}_scale", INVERSE)
    mixed = _part(
        (*query.shape[:-1], value.shape[-1]),
        lambda *x: te.sum(weight(*x[:-1], k) * value(*x[:-2], k, x[-1]), axis=k, where=near(x[-2])),
        f"{name}_mixed",
        MIXED,
    )
    made = te.compute(
        mixed.shape, lambda *x: mixed(*x) * inverse(*x[:-1]), name=name, tag=_TAG, attrs={CAUSAL: is_causal}
    )
    assert isinstance(made, Tensor)
    return made


def _scores(query: Tensor, key: Tensor, factor: float, is_causal: bool, name: str) -> Tensor:
    """Scores times a factor, minus infinity where a query does not see the key."""
    n, m = query.shape[-2], key.shape[-2]
    c = te.reduce_axis((0, query.shape[-1]), name="c")
    score = _part(
        (*query.shape[:-1], m),
        lambda *x: te.sum(query(*x[:-1], c) * key(*x[:-2], x[-1], c), axis=c),
        f"{name}_score",
        SCORE,
    )

    def scaled(*x: Expr) -> Expr:
        value = score(*x) * factor
        return te.select(x[-1] <= x[-2] + (m - n), value, te.const(float("-inf"), value.dtype)) if is_causal else value

    return _part(score.shape, scaled, f"{name}_scaled", SCALED)


def _part(shape: Sequence[Expr], element: Callable[..., Expr], name: str, role: str) -> Tensor:
    made = te.compute(tuple(shape), element, name=name, tag=_TAG + role)
    assert isinstance(made, Tensor)
    return made


def _checked(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> float:
    """The factor of scores; DefinitionError where the three do not fit each other."""
    fits = (
        query.ndim == key.ndim == value.ndim >= 2
        and query.dtype == key.dtype == value.dtype in ("float32", "float64")
        and all(same(a, b) for a, b in zip(query.shape[:-2], key.shape[:-2], strict=True))
        and all(same(a, b) for a, b in zip(key.shape[:-1], value.shape[:-1], strict=True))
        and same(query.shape[-1], key.shape[-1])
    )
    if not fits:
        wanted = "query[..., n, d], key[..., m, d] and value[..., m, v] in float32 or float64"
        raise DefinitionError(f"attention wants {wanted}, got {query}, {key}, {value}")
    if scale is not None:
        return float(scale)
    depth = extent_of(query.shape[-1])
    if depth is None:
        raise DefinitionError(f"attention: the depth {query.shape[-1]} is symbolic, so the scale has to be given")
    return 1.0 / sqrt(depth)


def attention_reference(query: Array, key: Array, value: Array, is_causal: bool = False) -> list[Array]:
    """The whole matrix of scores, in float64."""
    q, k, v = (a.astype(np.float64) for a in (query, key, value))
    scores = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    if is_causal:
        n, m = scores.shape[-2:]
        scores = np.where(np.tri(n, m, m - n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return [(weights @ v / weights.sum(axis=-1, keepdims=True)).astype(query.dtype)]


def attention_numpy(query: Array, key: Array, value: Array, out: Array) -> None:
    """What a NumPy user writes; the competitor of the tables."""
    scores = query @ np.swapaxes(key, -1, -2)
    scores *= query.dtype.type(query.shape[-1] ** -0.5)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    np.matmul(scores, value, out=out)


def _workload(h: int, n: int, m: int, d: int, dtype: str = "float32") -> list[Tensor]:
    q = te.placeholder((h, n, d), name="Q", dtype=dtype)
    k, v = (te.placeholder((h, m, d), name=name, dtype=dtype) for name in "KV")
    return [q, k, v, attention(q, k, v)]


OPERATORS = (Operator("attention", ("H", "N", "M", "D"), _workload, attention_reference, attention_numpy),)
RULES: dict[str, Rule] = {"attention": schedule_attention}
