"""Attention: softmax(query @ key.T * scale) @ value, some rows of scores, or a block of them, at a time."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import same
from tensorlang.schedule.rewrites.attention import Attention, of_blocks, of_whole_rows
from tensorlang.schedules.cpu.attention import key_block
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator
from tensorlang.topi.softmax import LOG2_E

Array = npt.NDArray[Any]


@checked
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_causal: bool = False,
    scale: float | None = None,
    name: str = "attention",
    out_dtype: str | None = None,
) -> Tensor:
    """Return softmax(query @ key.T * scale) @ value, of query[..., n, d], key[..., m, d] and value[..., m, v].

    Dtypes are float16, bfloat16, float32 or float64, the same of all three; of the output too, unless `out_dtype` is
    given. Of 16 bits, scores and sums are in float32, and `topi.schedule` puts the products on the tensor cores of its
    target: in blocks of 64 or 128 keys, whose weights are rounded to the dtype of `value`; there d and v have to be
    multiples of 16, and fit the registers (up to 192 both do). In a block of keys that a query sees some of, a value
    that is infinite or not a number reaches this query even if it does not see it.

    `scale` is 1 / sqrt(d) unless given. `is_causal`: query i sees key j only if `j <= i + m - n`, so that the last one
    sees all; m may not be below n. The matrix of scores is never in memory as a whole: of some queries at a time, all
    scores are kept, or those of a block of keys where keys are many or their number is symbolic. DefinitionError where
    shapes or dtypes do not fit.

        >>> from tensorlang import te, topi
        >>> te.evaluate(topi.attention, [[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0]]).round(4)
        array([[1.3302]], dtype=float32)
    """
    factor = _checked(query, key, value, scale) * LOG2_E
    n, m = query.shape[-2], key.shape[-2]
    if is_causal and extent_of(m) is not None and (extent_of(n) or 0) > (extent_of(m) or 0):
        raise DefinitionError(f"attention: {n} queries, the first of which would see none of {m} keys (is_causal)")
    asked = Attention(query, key, value, factor, is_causal, name, out_dtype or query.dtype)
    block = key_block(extent_of(m))
    return of_whole_rows(asked) if block is None else of_blocks(asked, block)


def _checked(query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> float:
    """The factor of scores; DefinitionError where the three do not fit each other."""
    fits = (
        query.ndim == key.ndim == value.ndim >= 2
        and query.dtype == key.dtype == value.dtype in ("float16", "bfloat16", "float32", "float64")
        and all(same(a, b) for a, b in zip(query.shape[:-2], key.shape[:-2], strict=True))
        and all(same(a, b) for a, b in zip(key.shape[:-1], value.shape[:-1], strict=True))
        and same(query.shape[-1], key.shape[-1])
    )
    if not fits:
        wanted = "query[..., n, d], key[..., m, d] and value[..., m, v] of floats of one dtype"
        raise DefinitionError(f"attention wants {wanted}, got {query}, {key}, {value}")
    if scale is not None:
        return float(scale)
    depth = extent_of(query.shape[-1])
    if depth is None:
        raise DefinitionError(f"attention: the depth {query.shape[-1]} is symbolic, so the scale has to be given")
    return 1.0 / sqrt(depth or 1)


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
