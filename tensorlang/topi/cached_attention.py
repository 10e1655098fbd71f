"""Attention of the newest tokens of sequences to a cache of keys and values: what a language model does for each token.

Heads of queries share a head of keys, as many as there are more of them. Caches lie by heads, of one capacity for all
sequences, or in pages that a table gives to them; in floats, or in bytes with a scale for each key and each value.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import dtypes, te
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Expr, ExprLike, as_expr, cast
from tensorlang.schedule.rewrites.attention import greatest_finite, merged
from tensorlang.te.axis import extent_of
from tensorlang.te.operation import Tensor
from tensorlang.te.tags import CACHED, GREATEST, KEYS, MERGED, MIXED, SCALED, SCORE, SHARES, TOTAL, VALUES, WEIGHT
from tensorlang.topi.checked import checked
from tensorlang.topi.softmax import LOG2_E

Array = npt.NDArray[Any]
_BLOCK, _EVEN = 512, 16
"""Keys of a block, at most, half of it where the last one is mostly not whole; a multiple of so many."""
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
    bfloat16, weights of values are rounded to bfloat16, so that CPUs multiply pairs. DefinitionError where shapes or
    dtypes do not fit.

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

    def scored(x: int, g: Expr, block: Expr, i: Expr, key: Expr) -> Any:
        row = query(x, g * heads + te.floordiv(i, n), te.floormod(i, n), c)
        return te.sum(cast(row, sums) * cast(in_blocks(x, g, block, key, c), sums), axis=c)

    def scaled_score(*x: Expr) -> Expr:
        batch, group, block, row, key = x
        made = score(*x) * factor
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
    shares = weight
    if len(cache.arrays) > 3:
        shares = part((*rows, size), lambda *x: weight(*x) * cast(cache.element(3, *x[:3], x[-1]), sums), SHARES)
    elif query.dtype == cache.arrays[1].dtype == "bfloat16":
        shares = part((*rows, size), lambda *x: cast(weight(*x), "bfloat16"), SHARES)
    valued = part((batches, groups, blocks, size, width), lambda *x: cache.element(1, *x), VALUES)

    def mixed_values(*x: Expr) -> Any:
        *outer, row, d = x
        return te.sum(cast(shares(*outer, row, j), sums) * cast(valued(*outer, j, d), sums), axis=j)

    mixed = part((*rows, width), mixed_values, MIXED)

    def merged_blocks(*x: Expr) -> Any:
        batch, group, row, d = x
        at = (batch, group, b, row)
        return merged((greatest(*at), total(*at), mixed(*at, d)), axis=b)

    _, weights, values = part((batches, groups, count, width), merged_blocks, MERGED)
    made = te.compute(
        (batches, groups, count, width),
        lambda *x: cast(values(*x) / weights(*x), out_dtype),
        name=f"{name}_rows",
        tag=CACHED,
    )
    return _by_heads(cache, made, name)


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
