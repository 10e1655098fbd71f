"""Attention: softmax(query @ key.T * scale) @ value, some rows of scores, or a block of them, at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, cast, same, variables
from tensorlang.schedules.cpu.attention import (
    TENSOR_CORE_KEYS,
    TENSOR_CORE_WIDTH,
    is_whole,
    key_block,
    last_seen,
    query_tile,
)
from tensorlang.schedules.gpu.attention_tensor_cores import fits
from tensorlang.schedules.gpu.tensor_cores import multiplies
from tensorlang.schedules.tags import (
    ATTENTION,
    CAUSAL,
    GREATEST,
    INVERSE,
    KEYS,
    MERGED,
    MIXED,
    QUERIES,
    ROUNDED,
    SCALED,
    SCORE,
    TOTAL,
    VALUES,
    WEIGHT,
)
from tensorlang.target.spec import Target
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import Tensor
from tensorlang.te.program import unique
from tensorlang.topi.checked import checked
from tensorlang.topi.operator import Operator
from tensorlang.topi.softmax import LOG2_E, greatest_number

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
    given. Of 16 bits, scores and sums are in float32. In a block `with tensorlang.target.Target("cuda"):` (sm_80 and
    later) such products are declared for tensor cores: blocks of 64 keys, whose weights are rounded to the dtype of
    `value`; there d and v have to be multiples of 16, and fit the registers (up to 192 both do). In a block of keys
    that a query sees some of, a value that is infinite or not a number reaches this query even if it does not see it.

    `scale` is 1 / sqrt(d) unless given. `is_causal`: query i sees key j only if `j <= i + m - n`, so that the last one
    sees all; m may not be below n. The matrix of scores is never in memory as a whole: of some queries at a time, all
    scores are kept, or those of a block of keys where keys are many or their number is symbolic. DefinitionError where
    shapes or dtypes do not fit.
    """
    factor = _checked(query, key, value, scale) * LOG2_E
    n, m = query.shape[-2], key.shape[-2]
    if is_causal and extent_of(m) is not None and (extent_of(n) or 0) > (extent_of(m) or 0):
        raise DefinitionError(f"attention: {n} queries, the first of which would see none of {m} keys (is_causal)")
    rounds = _is_for_tensor_cores(query, value)
    block = TENSOR_CORE_KEYS if rounds else key_block(extent_of(m))
    sizes = {size for tensor in (query, key, value) for extent in tensor.shape for size in variables(extent)}
    asked = _Asked(query, key, value, factor, is_causal, name, frozenset(sizes), out_dtype or query.dtype, rounds)
    return _of_whole_rows(asked) if block is None else _of_blocks(asked, block)


@dataclass(frozen=True, slots=True)
class _Asked:
    """An attention to be computed; `factor` is that of scores, `sizes` the names of symbolic sizes.

    `rounds`: weights are rounded to the dtype of the values, as factors of tensor cores are.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    factor: float
    is_causal: bool
    name: str
    sizes: frozenset[str]
    out_dtype: str
    rounds: bool

    @property
    def sums(self) -> str:
        """The dtype of scores and sums."""
        return dtypes.promote(self.query.dtype, "float32")

    @property
    def n(self) -> Expr:
        """The number of queries."""
        return self.query.shape[-2]

    @property
    def m(self) -> Expr:
        """The number of keys."""
        return self.key.shape[-2]

    @property
    def outer(self) -> tuple[Expr, ...]:
        """Batches and heads."""
        return self.query.shape[:-2]

    def along(self, word: str, extent: ExprLike) -> Axis:
        """A reduce axis."""
        return te.reduce_axis((0, extent), name=unique(word, set(self.sizes)))

    def present(self, b: Expr, j: Expr, block: int) -> Expr | None:
        """Whether there is a key j of block b; None where all blocks are whole."""
        return None if is_whole(self.m, block) else b * block + j < self.m

    def near(self, i: Expr, key: Expr) -> Expr | None:
        """Whether queries near query i look at a key; None where all do."""
        if not self.is_causal:
            return None
        return key <= (last_seen(i, self.n, self.m, self.rows) if self.rounds else last_seen(i, self.n, self.m))

    @property
    def rows(self) -> int:
        """Queries of a block on tensor cores."""
        return query_tile(extent_of(self.n))

    def dot(self, a: Expr, b: Expr, axis: Axis, where: Expr | None = None) -> Any:
        """The sum of products along an axis."""
        return te.sum(cast(a, self.sums) * cast(b, self.sums), axis=axis, where=where)

    def part(self, shape: Sequence[ExprLike], element: Callable[..., Any], role: str, word: str) -> Any:
        """A stage of the attention: `role` goes to its tag, `word` to its name."""
        return te.compute(tuple(shape), element, name=f"{self.name}_{word}", tag=ATTENTION + role)

    def whole(self, element: Callable[..., Expr]) -> Tensor:
        """The output."""
        shape = (*self.outer, self.n, self.value.shape[-1])
        made = te.compute(
            shape,
            lambda *x: cast(element(*x), self.out_dtype),
            name=self.name,
            tag=ATTENTION,
            attrs={CAUSAL: self.is_causal},
        )
        assert isinstance(made, Tensor)
        return made


def _of_whole_rows(asked: _Asked) -> Tensor:
    """All scores of a query, their softmax, then the mixed values."""
    query, key, value, m = asked.query, asked.key, asked.value, asked.m
    c, k = asked.along("c", query.shape[-1]), asked.along("k", m)

    def near(i: Expr) -> Expr | None:
        return asked.near(i, k.as_expr())

    def scaled_score(*x: Expr) -> Expr:
        return _seen_only(score(*x) * asked.factor, x[-1] <= x[-2] + (m - asked.n) if asked.is_causal else None)

    rows, scores = query.shape[:-1], (*query.shape[:-1], m)
    score = asked.part(scores, lambda *x: asked.dot(query(*x[:-1], c), key(*x[:-2], x[-1], c), c), SCORE, "score")
    scaled = asked.part(scores, scaled_score, SCALED, "scaled")
    greatest = asked.part(rows, lambda *x: greatest_number(scaled(*x, k), axis=k, where=near(x[-1])), GREATEST, "max")
    weight = asked.part(scores, lambda *x: te.exp2(scaled(*x) - greatest(*x[:-1])), WEIGHT, "weight")
    total = asked.part(rows, lambda *x: te.sum(weight(*x, k), axis=k, where=near(x[-1])), TOTAL, "sum")
    inverse = asked.part(rows, lambda *x: 1.0 / total(*x), INVERSE, "scale")
    mixed = asked.part(
        (*rows, value.shape[-1]),
        lambda *x: asked.dot(weight(*x[:-1], k), value(*x[:-2], k, x[-1]), k, near(x[-2])),
        MIXED,
        "mixed",
    )
    return asked.whole(lambda *x: mixed(*x) * inverse(*x[:-1]))


def _of_blocks(asked: _Asked, block: int) -> Tensor:
    """The online softmax: the same for one block of keys, and what the blocks give merged.

    Axes of a block's stages are batches and heads, b (the block), i (the query) and j (the key in the block).
    """
    query, value, n, m = asked.query, asked.value, asked.n, asked.m
    blocks = _blocks(m, block)
    c, j, b = asked.along("c", query.shape[-1]), asked.along("j", block), asked.along("b", blocks)

    def present(b: Expr, j: Expr) -> Expr | None:
        return asked.present(b, j, block)

    def counts(b: Expr, i: Expr) -> Expr | None:
        tests = [t for t in (present(b, j.as_expr()), asked.near(i, b * block + j)) if t is not None]
        return te.all(*tests) if tests and not asked.rounds else None

    def scaled_score(*x: Expr) -> Expr:
        b, i, j = x[-3:]
        seen = b * block + j <= i + (m - n) if asked.is_causal else present(b, j)
        return _seen_only(score(*x) * asked.factor, seen)

    def mixed_values(*x: Expr) -> Any:
        *outer, b, i, d = x
        element = values(*outer, b, j, d) if asked.rounds else value(*outer, b * block + j, d)
        return asked.dot(rounded(*x[:-1], j), element, j, counts(b, i))

    def merged_element(*x: Expr) -> Any:
        *outer, i, d = x
        of_block = greatest(*outer, b, i), total(*outer, b, i), mixed(*outer, b, i, d)
        return merged(of_block, axis=b, where=asked.near(i, b * block))

    query, count = _whole_rows(asked) if asked.rounds else (query, n)
    rows: tuple[Expr, ...] = (*asked.outer, blocks, count)
    scores: tuple[ExprLike, ...] = (*rows, block)
    keys = _in_blocks(asked, block, asked.key, KEYS, "keys")
    score = asked.part(
        scores, lambda *x: asked.dot(query(*x[:-3], x[-2], c), keys(*x[:-2], x[-1], c), c), SCORE, "score"
    )
    scaled = asked.part(scores, scaled_score, SCALED, "scaled")
    greatest = asked.part(
        rows, lambda *x: greatest_finite(scaled(*x, j), axis=j, where=counts(*x[-2:])), GREATEST, "max"
    )
    weight = asked.part(scores, lambda *x: te.exp2(scaled(*x) - greatest(*x[:-1])), WEIGHT, "weight")
    total = asked.part(rows, lambda *x: te.sum(weight(*x, j), axis=j, where=counts(*x[-2:])), TOTAL, "sum")
    values, rounded = value, weight
    if asked.rounds:
        values = _in_blocks(asked, block, value, VALUES, "values")
        rounded = asked.part(scores, lambda *x: weight(*x).astype(value.dtype), ROUNDED, "rounded")
    mixed = asked.part((*rows, value.shape[-1]), mixed_values, MIXED, "mixed")
    shape = (*asked.outer, count, value.shape[-1])
    _, total_weight, sums = asked.part(shape, merged_element, MERGED, "merged")
    if asked.rounds:
        return asked.whole(lambda *x: sums(*x) * (1.0 / total_weight(*x)))
    return asked.whole(lambda *x: sums(*x) / total_weight(*x))


def _blocks(m: Expr, block: int) -> Expr:
    """How many blocks hold all keys."""
    return te.floordiv(m + (block - 1), block)


def _in_blocks(asked: _Asked, block: int, rows: Tensor, role: str, word: str) -> Tensor:
    """Keys or values by blocks, the last of which is filled up with zeros."""

    def element(*x: Expr) -> Expr:
        *outer, b, j, c = x
        there, element = asked.present(b, j, block), rows(*outer, b * block + j, c)
        return element if there is None else te.select(there, element, te.const(0, element.dtype))

    shape: tuple[ExprLike, ...] = (*asked.outer, _blocks(asked.m, block), block, rows.shape[-1])
    made: Tensor = asked.part(shape, element, role, word)
    return made


def _whole_rows(asked: _Asked) -> tuple[Tensor, Expr]:
    """The queries and their number, filled up with zeros to whole blocks on tensor cores."""
    query, n = asked.query, asked.n
    if is_whole(n, asked.rows):
        return query, n
    count = te.floordiv(n + (asked.rows - 1), asked.rows) * asked.rows

    def element(*x: Expr) -> Expr:
        return te.select(x[-2] < n, query(*x), te.const(0, query.dtype))

    made: Tensor = asked.part((*asked.outer, count, query.shape[-1]), element, QUERIES, "queries")
    return made, count


def _is_for_tensor_cores(query: Tensor, value: Tensor) -> bool:
    """Whether the target in use has tensor cores for both products, and room for what they need."""
    target, depth, width = Target.current(), extent_of(query.shape[-1]), extent_of(value.shape[-1])
    if target is None or not depth or not width or depth % TENSOR_CORE_WIDTH or width % TENSOR_CORE_WIDTH:
        return False
    taken = multiplies(target, query.dtype, value.dtype, "float32")
    return taken and fits(target, extent_of(query.shape[-2]), depth, width)


def _seen_only(score: Expr, seen: Expr | None) -> Expr:
    """A score, minus infinity for a key that the query does not see."""
    return score if seen is None else te.select(seen, score, te.const(float("-inf"), score.dtype))


def _merge(x: Sequence[Expr], y: Sequence[Expr]) -> tuple[Expr, Expr, Expr]:
    change = y[0] - x[0]
    factor, grows = te.exp2(-te.abs(change)), change > 0.0
    old, new = te.select(grows, factor, 1.0), te.select(grows, 1.0, factor)
    return te.select(grows, y[0], x[0]), x[1] * old + y[1] * new, x[2] * old + y[2] * new


merged = te.comm_reducer(_merge, lambda dtype, *_: (dtypes.smallest_float(dtype), 0.0, 0.0), name="merged")
"""Of triples (greatest score, sum of weights, mixed values), whose weights are powers of 2 of the distance of scores to
that greatest one: what two sets of keys give together. One power of 2 serves both, since the other factor is 1."""
greatest_finite = te.comm_reducer(
    lambda x, y: te.select(y > x, y, x), lambda dtype: te.const(dtypes.smallest_float(dtype), dtype), "greatest_finite"
)
"""The maximum from the smallest number on: a query may see no key of a block, whose weights are then 0, not NaN."""


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
