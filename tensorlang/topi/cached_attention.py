"""Attention of the newest tokens of sequences to a cache of keys and values: what a language model does for each token.

Heads of queries share a head of keys, as many as there are more of them. Caches lie by heads, of one capacity for all
sequences, or in pages that a table gives to them; in floats, or in bytes with a scale for each key and each value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, as_expr, cast
from tensorlang.schedule.rewrites.attention import greatest_finite, merged
from tensorlang.te.axis import Axis, extent_of
from tensorlang.te.operation import Tensor
from tensorlang.te.tags import (
    CACHED,
    CODES,
    GREATEST,
    KEYS,
    LARGEST,
    LARGEST_SHARE,
    MERGED,
    MIXED,
    SCALED,
    SCORE,
    SHARE_CODES,
    SHARES,
    TOTAL,
    VALUES,
    WEIGHT,
)
from tensorlang.topi.checked import checked
from tensorlang.topi.softmax import LOG2_E

Array = npt.NDArray[Any]
_BLOCK, _EVEN = 512, 16
"""Keys of a block, at most, half of it where the last one is mostly not whole; a multiple of so many."""
_CODE, _FEW = 32767, 16
"""The largest code of 16 bits; the terms of a sum for each of the queries that are made codes."""
_SMALL, _LARGER = 2.0**-60, 2.0**80
"""What is below the first is made larger by the second: the inverse of a subnormal number is infinite."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@checked
def cached_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    table: Tensor | None = None,
    most: ExprLike | None = None,
    window: int | None = None,
    scale: float | None = None,
    name: str = "cached_attention",
    out_dtype: str | None = None,
) -> Tensor:
    """Return softmax(query @ keys.T * scale) @ values for the last n tokens of each sequence, [batch, heads, n, v].

    `query` [batch, heads, n, d]; `keys` [batch, groups, capacity, d] and `values` [batch, groups, capacity, v], where
    heads are a multiple of groups: neighbours share one. `lengths` int32[batch]: keys that a sequence has, those of
    its n newest tokens among them. A token sees the keys up to its own, and of those the last `window` ones if that
    is given. Keys beyond `most` are not looked at (an extent, which may be symbolic, so that the work grows with it;
    the capacity unless given). What lies in a cache beyond a sequence's length has to be finite numbers.

    Caches are floats; or int8 with `key_scales` and `value_scales`, floats [batch, groups, capacity], by which each key
    and value is multiplied. With a `table` int32[batch, count] they are pages [pages, groups, tokens, d], as are their
    scales: key j of a sequence lies in the page `table[batch, j // tokens]`. Any other number is brought to the
    nearest page.

    `scale` is 1 / sqrt(d) unless given. Scores and sums are in float32 at least; of queries and caches that are both
    bfloat16, weights of values are rounded to bfloat16, so that CPUs multiply pairs. Where at most d / 16 queries share
    int8 keys of 512 numbers or less, each query, and the weights of a block of keys times their scales, are rounded to
    16 bits: to 32767ths of the largest one. Their sums are whole numbers, and exact. The error is about a hundredth of
    that of numbers that are rounded to int8. DefinitionError where shapes or dtypes do not fit.

        >>> from tensorlang import te, topi
        >>> query = te.placeholder((1, 4, 1, 8))
        >>> keys, values = (te.placeholder((1, 2, 16, 8), name=name) for name in ("keys", "values"))
        >>> topi.cached_attention(query, keys, values, te.placeholder((1,), "int32")).shape
        (1, 4, 1, 8)
    """
    caches = [tensor for tensor in (keys, values, key_scales, value_scales) if tensor is not None]
    cache = _Cache(query, lengths, caches, table, window, _BLOCK if most is None else _BLOCK // 2)
    _check(cache, name)
    depth = extent_of(query.shape[-1])
    if scale is None and depth is None:
        raise DefinitionError(f"{name}: the depth {query.shape[-1]} is symbolic, so the scale has to be given")
    factor = (1.0 / sqrt(depth or 1) if scale is None else float(scale)) * LOG2_E
    return _attended(cache, as_expr(cache.capacity if most is None else most), factor, name, out_dtype or query.dtype)


@dataclass(frozen=True, slots=True)
class _Cache:
    """What is attended to: keys, values, and their scales if they have some."""

    query: Tensor
    lengths: Tensor
    arrays: list[Tensor]
    table: Tensor | None
    window: int | None
    block: int

    @property
    def page(self) -> Expr:
        """Tokens of a page; without a table all."""
        return self.arrays[0].shape[2]

    @property
    def capacity(self) -> Expr:
        """The keys that a sequence can have."""
        return self.page if self.table is None else self.table.shape[1] * self.page

    @property
    def heads(self) -> int:
        """The heads of queries that share one of keys."""
        of_queries, groups = (extent_of(t.shape[1]) or 0 for t in (self.query, self.arrays[0]))
        return of_queries // groups if groups and of_queries % groups == 0 else 0

    @property
    def is_coded(self) -> bool:
        """Whether queries and weights become whole numbers of 16 bits: few of them, and sums that fit 32 bits."""
        depth, n = extent_of(self.query.shape[3]), extent_of(self.query.shape[2])
        if self.arrays[0].dtype != "int8" or depth is None or n is None or self.query.dtype == "float64":
            return False
        return self.heads * n * _FEW <= depth <= _BLOCK

    def read(self, array: int, batch: Expr, group: Expr, key: Expr, *column: Expr) -> Expr:
        """An element of keys, values, key scales or value scales."""
        cache = self.arrays[array]
        if self.table is None:
            return cache(batch, group, key, *column)
        last = cast(cache.shape[0], self.table.dtype) - 1
        page = te.max(te.min(self.table(batch, te.floordiv(key, self.page)), last), 0)
        return cache(page, group, te.floormod(key, self.page), *column)

    @property
    def size(self) -> int:
        """Keys of a block: so that all blocks are whole, where that can be."""
        held = extent_of(self.capacity) or 0
        whole = (n for n in range(self.block, 0, -_EVEN) if held % n == 0)
        return next(whole, min(self.block, -(-held // _EVEN) * _EVEN))

    def element(self, array: int, *x: Expr) -> Expr:
        """An element of a block, zero after the last."""
        batch, group, block, key, *column = x
        place, held = block * self.size + key, extent_of(self.capacity) or 0
        found = self.read(array, batch, group, place, *column)
        return found if held % self.size == 0 else te.select(place < held, found, te.const(0, found.dtype))

    def seen(self, batch: Expr, row: Expr, key: Expr, most: Expr) -> Expr:
        """Whether a row of queries sees a key, of `most`."""
        n = self.query.shape[2]
        own = self.lengths(batch) - cast(n, "int32") + cast(te.floormod(row, n), "int32")
        last, key = te.min(own, cast(most, "int32") - 1), cast(key, "int32")
        return key <= last if self.window is None else te.all(key <= last, key > own - self.window)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that are multiplied with a cache: `numbers` as they are, or as codes, parts of the `largest` of their row.

    `sums`: the dtype of products and of their sums; `made`: that of scores and of the result.
    """

    numbers: Callable[..., Expr]
    sums: str
    made: str
    largest: Tensor | None = None

    def product(self, row: tuple[ExprLike, ...], cached: Expr, along: Axis) -> Any:
        """The sum of products of a row and what is cached, along an axis."""
        return te.sum(cast(self.numbers(*row, along), self.sums) * cast(cached, self.sums), axis=along)

    def scaled(self, product: Expr, row: tuple[ExprLike, ...], factor: float = 1.0) -> Expr:
        """What a product of a row is, times a factor."""
        if self.largest is None:
            return product if factor == 1.0 else product * factor
        return cast(product, self.made) * te.const(factor / _CODE, self.made) * self.largest(*row)


_Part = Callable[[tuple[ExprLike, ...], Any, str], Any]


def _coded(part: _Part, rows: _Rows, shape: tuple[ExprLike, ...], along: Axis, roles: tuple[str, str]) -> _Rows:
    """Rows as codes of 16 bits: what is largest along an axis, and of how many parts of it all numbers are."""

    def code(*x: Expr) -> Expr:
        most, number = largest(*x[:-1]), cast(rows.numbers(*x), rows.made)
        larger = te.select(most < _SMALL, te.const(_LARGER, rows.made), te.const(1, rows.made))
        parts = te.select(most > 0, te.const(_CODE, rows.made) / (most * larger), te.const(0, rows.made))
        return te.max(te.min(te.round(number * larger * parts), float(_CODE)), -float(_CODE)).astype("int16")

    def most(*x: Expr) -> Any:
        return te.max(te.abs(cast(rows.numbers(*x, along), rows.made)), axis=along)

    largest = part(shape[:-1], most, roles[0])
    return _Rows(part(shape, code, roles[1]), "int32", rows.made, largest)


def _attended(cache: _Cache, most: Expr, factor: float, name: str, out_dtype: str) -> Tensor:
    """The online softmax over blocks of keys; rows are the queries of the heads that share a head of keys."""
    query, heads, groups = cache.query, cache.heads, cache.arrays[0].shape[1]
    batches, _, n, depth = query.shape
    sums, width = dtypes.promote(query.dtype, "float32"), cache.arrays[1].shape[3]
    size, count = cache.size, heads * n
    blocks = te.min(te.floordiv(most + (size - 1), size), -(-(extent_of(cache.capacity) or 0) // size))
    c, j, b = (te.reduce_axis((0, extent), w) for extent, w in ((depth, "c"), (size, "j"), (blocks, "b")))

    def part(shape: tuple[ExprLike, ...], body: Any, role: str) -> Any:
        return te.compute(shape, body, name=f"{name}_{role[1:]}", tag=f"{CACHED}{role}")

    def row_of_query(x: int, g: Expr, i: Expr, column: Expr) -> Expr:
        return query(x, g * heads + te.floordiv(i, n), te.floormod(i, n), column)

    asked = _Rows(row_of_query, sums, sums)
    if cache.is_coded:
        asked = _coded(part, asked, (batches, groups, count, depth), c, (LARGEST, CODES))

    def scored(x: Expr, g: Expr, block: Expr, i: Expr, key: Expr) -> Any:
        return asked.product((x, g, i), in_blocks(x, g, block, key, c), c)

    def scaled_score(*x: Expr) -> Expr:
        batch, group, block, row, key = x
        made = asked.scaled(score(*x), (batch, group, row), factor)
        if len(cache.arrays) > 2:
            made = made * cast(cache.element(2, batch, group, block, key), sums)
        seen = cache.seen(batch, row, block * size + key, most)
        return te.select(seen, made, te.const(float("-inf"), sums))

    rows: tuple[ExprLike, ...] = (batches, groups, blocks, count)
    in_blocks = part((batches, groups, blocks, size, depth), lambda *x: cache.element(0, *x), KEYS)
    score = part((*rows, size), scored, SCORE)
    scaled = part((*rows, size), scaled_score, SCALED)
    greatest = part(rows, lambda *x: greatest_finite(scaled(*x, j), axis=j), GREATEST)
    weight = part((*rows, size), lambda *x: te.exp2(scaled(*x) - greatest(*x[:-1])), WEIGHT)
    total = part(rows, lambda *x: te.sum(weight(*x, j), axis=j), TOTAL)
    shares = _shares(cache, part, weight, j)
    valued = part((batches, groups, blocks, size, width), lambda *x: cache.element(1, *x), VALUES)
    mixed = part((*rows, width), lambda *x: shares.product(x[:-1], valued(*x[:-2], j, x[-1]), j), MIXED)

    def merged_blocks(*x: Expr) -> Any:
        batch, group, row, d = x
        at = (batch, group, b, row)
        return merged((greatest(*at), total(*at), shares.scaled(mixed(*at, d), at)), axis=b)

    _, weights, values = part((batches, groups, count, width), merged_blocks, MERGED)
    made = te.compute(
        (batches, groups, count, width),
        lambda *x: cast(values(*x) / weights(*x), out_dtype),
        name=f"{name}_rows",
        tag=CACHED,
    )
    return _by_heads(cache, made, name)


def _shares(cache: _Cache, part: _Part, weight: Tensor, key: Axis) -> _Rows:
    """What the values of a block are multiplied with: weights, times their scales where they have some."""
    made = weight.dtype

    def rounded(*x: Expr) -> Expr:
        return cast(weight(*x), "bfloat16")

    def by_scales(*x: Expr) -> Expr:
        return weight(*x) * cast(cache.element(3, *x[:3], x[-1]), made)

    if len(cache.arrays) <= 3:
        narrow = cache.query.dtype == cache.arrays[1].dtype == "bfloat16"
        return _Rows(part(weight.shape, rounded, SHARES) if narrow else weight, made, made)
    shares = _Rows(part(weight.shape, by_scales, SHARES), made, made)
    return _coded(part, shares, weight.shape, key, (LARGEST_SHARE, SHARE_CODES)) if cache.is_coded else shares


def _by_heads(cache: _Cache, rows: Tensor, name: str) -> Tensor:
    """The rows of the heads that share a head of keys, as heads of queries."""
    heads, n = cache.heads, cache.query.shape[2]
    made: Tensor = te.compute(
        (*cache.query.shape[:3], rows.shape[-1]),
        lambda x, h, i, d: rows(x, te.floordiv(h, heads), te.floormod(h, heads) * n + i, d),
        name=name,
    )
    return made


def _check(cache: _Cache, name: str) -> None:
    keys, values, *scales = cache.arrays
    four = all(tensor.ndim == 4 for tensor in (cache.query, keys, values))
    if not four or (cache.table is not None and cache.table.ndim != 2):
        got = ", ".join(map(str, (cache.query, keys, values, *([cache.table] if cache.table else []))))
        raise DefinitionError(f"{name} wants queries, keys and values of 4 dimensions, and a table of 2, got {got}")
    batches = cache.query.shape[0] if cache.table is None else keys.shape[0]
    known = [*(extent_of(e) for t in (keys, values) for e in t.shape[1:]), extent_of(cache.capacity)]
    own = [[extent_of(e) for e in t.shape] for t in (keys, values, *scales)]
    is_narrow = keys.dtype == "int8"
    fits = (
        None not in known
        and own[0][:3] == own[1][:3]
        and all(one == own[0][:3] for one in own[2:])
        and (cache.table is not None or own[0][0] == extent_of(batches))
        and own[0][3] == extent_of(cache.query.shape[3])
        and bool(cache.heads)
    )
    if not fits:
        wanted = "query[batch, heads, n, d], keys[batch, groups, capacity, d], values[batch, groups, capacity, v]"
        raise DefinitionError(
            f"{name} wants {wanted} and heads that are a multiple of groups, got {cache.query}, {keys}, {values}"
        )
    if cache.query.dtype not in _FLOATS or keys.dtype != values.dtype or keys.dtype not in (*_FLOATS, "int8"):
        raise DefinitionError(f"{name} wants caches of floats of one dtype or of int8, got {keys} and {values}")
    if len(scales) != 2 * is_narrow or any(not dtypes.info(t.dtype).is_float for t in scales):
        raise DefinitionError(f"{name}: int8 keys and values have scales of floats, both of them, and floats have none")
    of_batch = [("lengths", cache.lengths, 1), *([("table", cache.table, 2)] if cache.table is not None else [])]
    for what, tensor, rank in of_batch:
        if (
            tensor.ndim != rank
            or tensor.dtype != "int32"
            or extent_of(tensor.shape[0]) != extent_of(cache.query.shape[0])
        ):
            shape = "batch" if rank == 1 else "batch, pages of a sequence"
            raise DefinitionError(f"{name}: {what} are int32[{shape}], got {tensor}")
    if cache.window is not None and cache.window < 1:
        raise DefinitionError(f"{name}: a window of {cache.window} keys sees none; give 1 or more")


def cached_attention_reference(
    query: Array,
    keys: Array,
    values: Array,
    lengths: Array,
    window: int | None = None,
) -> Array:
    """The whole matrix of scores in float64, of float caches [batch, groups, capacity, d]; float64 of query's shape."""
    batches, heads, n, depth = query.shape
    made = np.empty((batches, heads, n, values.shape[-1]))
    for b in range(batches):
        for h in range(heads):
            group = h // (heads // keys.shape[1])
            scores = query[b, h].astype(np.float64) @ keys[b, group].astype(np.float64).T / sqrt(depth)
            last = int(lengths[b]) - n + np.arange(n)[:, None]
            place = np.arange(keys.shape[2])
            seen = (place <= last) & (place > last - (window or place.size + n))
            weights = np.exp(np.where(seen, scores - scores.max(-1, where=seen, initial=-1e30, keepdims=True), -np.inf))
            made[b, h] = weights @ values[b, group].astype(np.float64) / weights.sum(-1, keepdims=True)
    return made
