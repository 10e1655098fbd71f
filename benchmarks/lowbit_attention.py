"""Attention of one token to a cache, for `python -m benchmarks lowbit`: 32 heads of queries by 8 of keys, depth 128.

Queries are float32, but bfloat16 where the cache is. Paged caches are pages of 16 keys, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorlang
from benchmarks.peers import ggml
from tensorlang import dtypes, nd, te, topi
from tensorlang.target.spec import Target

Array = npt.NDArray[Any]

_PAGED, _PAGE = "paged-", 16
NAMES = {
    **{f"attention-{dtype}": dtype for dtype in ("float32", "float16", "bfloat16", "int8")},
    **{f"attention-{_PAGED}{dtype}": f"{_PAGED}{dtype}" for dtype in ("float32", "bfloat16")},
}
"""The contestants, and the cache of each: its dtype, and whether it lies in pages."""
PEERS = {f"ggml-attention-{dtype}": dtype for dtype in ("float32", "float16", "bfloat16")}
"""The same of ggml."""
_HEADS, _GROUPS, _DEPTH = 32, 8, 128
_BYTES = 1 << 26
"""Bytes of caches of one turn, about: those of several layers, which no cache of a CPU holds."""


def filled(tensors: Sequence[te.Tensor], numbers: Callable[[te.Tensor], Any]) -> list[Array]:
    """Arrays of numbers for tensors, together in huge pages."""
    arrays = nd.empty_together(tensors)
    for array, tensor in zip(arrays, tensors, strict=True):
        array[...] = numbers(tensor)
    return arrays


def attention(cache: str, keys: int, target: Target) -> tuple[Callable[[], object], int, float]:
    """A turn: one token attends to `keys` keys of some layers; the bytes that it reads, and its operations."""
    dtype, pages = cache.removeprefix(_PAGED), -(-keys // _PAGE)
    query = te.placeholder((1, _HEADS, 1, _DEPTH), dtype if dtype == "bfloat16" else "float32", "query")
    shape = (pages, _GROUPS, _PAGE, _DEPTH) if cache.startswith(_PAGED) else (1, _GROUPS, keys, _DEPTH)
    caches = [te.placeholder(shape, dtype, name) for name in ("keys", "values")]
    scales = [te.placeholder(shape[:3], "float32", f"{t.name}_scales") for t in caches] if dtype == "int8" else []
    table = te.placeholder((1, pages), "int32", "table") if cache.startswith(_PAGED) else None
    lengths = te.placeholder((1,), "int32", "lengths")
    by_key, by_value = scales or (None, None)
    out = topi.cached_attention(query, caches[0], caches[1], lengths, by_key, by_value, table)
    arguments = [query, *caches, *scales, *([] if table is None else [table]), lengths, out]
    kernel = tensorlang.build(topi.schedule(out, target), arguments, target)
    rng = np.random.default_rng(0)

    def numbers(tensor: te.Tensor) -> Array:
        size = [int(str(e)) for e in tensor.shape]
        if tensor.dtype == "int8":
            return rng.integers(-127, 128, size).astype(np.int8)
        return np.asarray(rng.standard_normal(size, np.float32)).astype(dtypes.info(tensor.dtype).numpy)

    one = sum(int(np.prod(shape[: len(t.shape)])) * dtypes.info(t.dtype).bytes for t in (*caches, *scales))
    layers = [filled((*caches, *scales), numbers) for _ in range(_layers(one))]
    asked, seen = numbers(query), np.array([keys], np.int32)
    order = [] if table is None else [rng.permutation(pages).astype(np.int32)[None]]
    made = np.empty(asked.shape, asked.dtype)

    def turn() -> None:
        for arrays in layers:
            kernel(asked, *arrays, *order, seen, made)

    return turn, one * len(layers), _operations(keys) * len(layers)


def peer(cache: str, keys: int, threads: int) -> tuple[Callable[[], object], int, float] | str:
    """The same by ggml's flash attention, if it is there."""
    layers = _layers(2 * keys * _GROUPS * _DEPTH * dtypes.info(cache).bytes)
    made = ggml.attention(cache, (_HEADS, _GROUPS, keys, _DEPTH), layers, threads)
    return made if isinstance(made, str) else (*made, _operations(keys) * layers)


def _layers(size: int) -> int:
    return max(1, _BYTES // size)


def _operations(keys: int) -> float:
    return 4.0 * _HEADS * keys * _DEPTH
