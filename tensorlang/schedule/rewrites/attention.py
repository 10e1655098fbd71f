"""Attention in te: all scores of some queries at a time, or blocks of keys merged by an online softmax.

What tensor cores take is a rewrite of either: blocks of a size, whose weights are rounded to the dtype of the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.ir.expr import Binary, Cast, Const, Expr, ExprLike, cast, variables, walk
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.forms import form_of
from tensorlang.te.operation import ComputeOp, Operation, Read, Reduce, Tensor
from tensorlang.te.program import canonical, unique
from tensorlang.te.tags import (
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

TOGETHER = 16
"""Queries that look at as many keys as the last of them: what each must not see among these weighs nothing."""

greatest_number = te.comm_reducer(
    lambda x, y: te.select(y > x, y, x), lambda dtype: te.const(float("-inf"), dtype), name="greatest_number"
)
"""The maximum of what is not NaN: one instruction. A NaN reaches every element of its row by the sum."""


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention to be computed; `factor` is that of scores, for weights that are powers of 2.

    `rows`: queries of a block, where weights are rounded to the dtype of the values, as factors of tensor cores are.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    factor: float
    is_causal: bool
    name: str
    out_dtype: str
    rows: int | None = None

    @property
    def sums(self) -> str:
        """The dtype of scores and sums."""
        return dtypes.promote(self.query.dtype, "float32")

    @property
    def scales_late(self) -> bool:
        """Whether scores are scaled where weights are made of them: the greatest stays so, and finite."""
        return self.rows is not None and 0 < self.factor <= 1

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
        given = (size for tensor in (self.query, self.key, self.value) for size in tensor.shape)
        return te.reduce_axis((0, extent), name=unique(word, {name for size in given for name in variables(size)}))

    def present(self, b: Expr, j: Expr, block: int) -> Expr | None:
        """Whether there is a key j of block b; None where all blocks are whole."""
        return None if is_whole(self.m, block) else b * block + j < self.m

    def near(self, i: Expr, key: Expr) -> Expr | None:
        """Whether queries near query i look at a key; None where all do."""
        if not self.is_causal:
            return None
        return key <= last_seen(i, self.n, self.m, self.rows or TOGETHER)

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


def of_whole_rows(asked: Attention) -> Tensor:
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


def of_blocks(asked: Attention, block: int) -> Tensor:
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
        return te.all(*tests) if tests and not asked.rows else None

    def scaled_score(*x: Expr) -> Expr:
        b, i, j = x[-3:]
        seen = b * block + j <= i + (m - n) if asked.is_causal else present(b, j)
        return _seen_only(score(*x) if asked.scales_late else score(*x) * asked.factor, seen)

    def top(*x: ExprLike) -> Any:
        return greatest(*x) * asked.factor if asked.scales_late else greatest(*x)

    def weight_of(*x: Expr) -> Expr:
        own = scaled(*x) * asked.factor if asked.scales_late else scaled(*x)
        return (normal_power if asked.rows else te.exp2)(own - top(*x[:-1]))

    def mixed_values(*x: Expr) -> Any:
        *outer, b, i, d = x
        element = values(*outer, b, j, d) if asked.rows else value(*outer, b * block + j, d)
        return asked.dot(rounded(*x[:-1], j), element, j, counts(b, i))

    def merged_element(*x: Expr) -> Any:
        *outer, i, d = x
        of_block = top(*outer, b, i), total(*outer, b, i), mixed(*outer, b, i, d)
        return merged(of_block, axis=b, where=asked.near(i, b * block))

    query, count = (query, n) if asked.rows is None else _whole_rows(asked, asked.rows)
    rows: tuple[Expr, ...] = (*asked.outer, blocks, count)
    scores: tuple[ExprLike, ...] = (*rows, block)
    keys = _in_blocks(asked, block, asked.key, KEYS, "keys")
    score = asked.part(
        scores, lambda *x: asked.dot(query(*x[:-3], x[-2], c), keys(*x[:-2], x[-1], c), c), SCORE, "score"
    )
    scaled = asked.part(scores, scaled_score, SCALED, "scaled")
    reducer = greatest_of_finite if asked.rows else greatest_finite
    greatest = asked.part(rows, lambda *x: reducer(scaled(*x, j), axis=j, where=counts(*x[-2:])), GREATEST, "max")
    weight = asked.part(scores, weight_of, WEIGHT, "weight")
    total = asked.part(rows, lambda *x: te.sum(weight(*x, j), axis=j, where=counts(*x[-2:])), TOTAL, "sum")
    values, rounded = value, weight
    if asked.rows:
        values = _in_blocks(asked, block, value, VALUES, "values")
        rounded = asked.part(scores, lambda *x: weight(*x).astype(value.dtype), ROUNDED, "rounded")
    mixed = asked.part((*rows, value.shape[-1]), mixed_values, MIXED, "mixed")
    shape = (*asked.outer, count, value.shape[-1])
    _, total_weight, sums = asked.part(shape, merged_element, MERGED, "merged")
    if asked.rows:
        return asked.whole(lambda *x: sums(*x) * (1.0 / total_weight(*x)))
    return asked.whole(lambda *x: sums(*x) / total_weight(*x))


def _blocks(m: Expr, block: int) -> Expr:
    """How many blocks hold all keys."""
    return te.floordiv(m + (block - 1), block)


def _in_blocks(asked: Attention, block: int, rows: Tensor, role: str, word: str) -> Tensor:
    """Keys or values by blocks, the last of which is filled up with zeros."""

    def element(*x: Expr) -> Expr:
        *outer, b, j, c = x
        there, element = asked.present(b, j, block), rows(*outer, b * block + j, c)
        return element if there is None else te.select(there, element, te.const(0, element.dtype))

    shape: tuple[ExprLike, ...] = (*asked.outer, _blocks(asked.m, block), block, rows.shape[-1])
    made: Tensor = asked.part(shape, element, role, word)
    return made


def _whole_rows(asked: Attention, rows: int) -> tuple[Tensor, Expr]:
    """The queries and their number, filled up with zeros to whole blocks."""
    query, n = asked.query, asked.n
    if is_whole(n, rows):
        return query, n
    count = te.floordiv(n + (rows - 1), rows) * rows

    def element(*x: Expr) -> Expr:
        return te.select(x[-2] < n, query(*x), te.const(0, query.dtype))

    made: Tensor = asked.part((*asked.outer, count, query.shape[-1]), element, QUERIES, "queries")
    return made, count


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


greatest_of_finite = te.comm_reducer(
    te.max, lambda dtype: te.const(dtypes.smallest_float(dtype), dtype), "greatest_of_finite"
)
"""The same where NaN is the greatest: one instruction of GPUs."""

_LEAST_EXPONENT = -126.0
"""The power of 2 that is the smallest normal float32."""


def normal_power(x: Expr) -> Expr:
    """2 to the power x, or 0 where that is not normal in float32: one instruction of GPUs."""
    return te.select(x < _LEAST_EXPONENT, te.const(0, x.dtype), te.exp2(x))


def last_seen(i: Expr, n: Expr, m: Expr, step: int = TOGETHER) -> Expr:
    """The last key, of m, that the queries near query i, of n, look at."""
    return te.floordiv(i, step) * step + (step - 1) + (m - n)


def is_whole(keys: Expr, block: int | None) -> bool:
    """Whether the last block is known to be as long as the others."""
    known = extent_of(keys)
    return block is not None and known is not None and known % block == 0


def attention_of(op: ComputeOp) -> Attention | None:
    """The attention that a declared operation is the output of, with those that it reads; None where it is none.

    What is read off the operations is proven: declared anew, it has to give the same program.
    """
    part = _parts(op)
    if not {SCORE, SCALED, MIXED} <= part.keys() or ROUNDED in part:
        return None
    (query, key), (_, value) = _factors(part[SCORE]), _factors(part[MIXED])
    products = (node for body in part[SCALED].body for node in walk(body) if isinstance(node, Binary))
    scaled = (node.b for node in products if node.op == "mul" and isinstance(node.a, Read))
    factor = next((factor.value for factor in scaled if isinstance(factor, Const)), 0)
    block = None
    if KEYS in part:
        key, block = part[KEYS].input_tensors[0], extent_of(part[KEYS].axes[-2].extent)
    found = Attention(query, key, value, float(factor), bool(op.attrs.get(CAUSAL)), op.name, op.dtype)
    again = of_whole_rows(found) if block is None else of_blocks(found, block)
    return found if _form(again.op) == _form(op) else None


def in_rounded_blocks(asked: Attention, keys: int, rows: int) -> Tensor:
    """The attention in blocks of keys and of queries that are filled up with zeros, with rounded weights."""
    return of_blocks(replace(asked, rows=rows), keys)


def _parts(op: ComputeOp) -> dict[str, ComputeOp]:
    """The operations of an attention before its output, by the role that their tags tell."""
    found: dict[str, ComputeOp] = {}
    pending = [op]
    while pending:
        for tensor in pending.pop().input_tensors:
            source = tensor.op
            if isinstance(source, ComputeOp) and source.tag.startswith(f"{ATTENTION}."):
                found[source.tag.removeprefix(ATTENTION)] = source
                pending.append(source)
    return found


def _factors(op: ComputeOp) -> tuple[Tensor, Tensor]:
    """The tensors of which a stage sums products."""
    match op.body[0]:
        case Reduce(sources=(Binary(a=Cast(value=Read(tensor=a)), b=Cast(value=Read(tensor=b))),)):
            return a, b
        case _:
            first, *rest = op.input_tensors
            return first, rest[-1] if rest else first


def _form(root: Operation) -> str:
    """The program that computes an operation, whatever its names."""
    return form_of(canonical([root])[0].text).text
