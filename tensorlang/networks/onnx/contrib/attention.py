"""Attention with its projections, masks, and the keys and values of what came before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorlang.networks.onnx.bodies import Body, Written
from tensorlang.networks.refusal import NotAhead, Unsupported
from tensorlang.te.operation import Tensor

_COVERED = -10000.0
"""What is added to scores that a mask covers, unless the node says so."""


def _attention(body: Body) -> Sequence[str | None]:
    """Of one input: projected by one matrix to queries, keys and values; `past` [2, batch, heads, tokens, width]."""
    body.only(do_rotary=0, past_present_share_buffer=0)
    body.refuse(6, why="with past_sequence_length")
    batch, tokens, _ = body.shape(0)
    heads, whole = int(body.attrs["num_heads"]), body.shape(1)[1]
    sizes = [int(n) for n in body.attrs.get("qkv_hidden_sizes", ())] or [whole // 3] * 3
    made = body.sum(body.add("MatMul", body.needed(0), body.needed(1)), body.input(2))
    parts = body.split("Split", 3, made, body.constant(sizes, np.int64), axis=-1)
    query, key, value = (_heads(body, part, (batch, tokens, heads)) for part in parts)
    before = 0
    if body.input(4) is not None:
        before = body.shape(4)[3]
        old = [body.add("Gather", body.needed(4), body.constant(k, np.int64), axis=0) for k in range(2)]
        key, value = (body.add("Concat", o, new, axis=2) for o, new in zip(old, (key, value), strict=True))
    total = before + tokens
    added = [_mask(body, 3, batch, tokens, total), body.input(5), _causal(body, tokens, total)]
    scale = _scale(body, sizes[0] // heads)
    found = _attended(body, query, key, value, scale, added)
    made = _tokens(body, found, (batch, tokens, sizes[2]))
    if body.outputs == 1:
        return (made,)
    both = [body.add("Unsqueeze", part, body.constant([0], np.int64)) for part in (key, value)]
    return made, body.add("Concat", *both, axis=0)


def _of_heads(body: Body) -> Sequence[str | None]:
    """MultiHeadAttention: of queries, keys and values by tokens, or of keys and values by heads."""
    body.refuse(8, 9, why="with a cache in place")
    if len(body.shape(0)) != 3 or body.input(1) is None or body.input(2) is None:
        raise Unsupported(f"{body.op} of queries that are packed with keys")
    batch, tokens, width = body.shape(0)
    heads, by_heads = int(body.attrs["num_heads"]), len(body.shape(1)) == 4
    if by_heads:
        body.refuse(3, why="with a bias of keys by heads")
    wide = body.shape(2)[1] * body.shape(2)[3] if by_heads else body.shape(2)[2]
    names = [body.needed(k) for k in range(3)]
    if body.input(3) is not None:
        sizes = body.constant([width, width, wide], np.int64)
        names = [body.sum(*two) for two in zip(names, body.split("Split", 3, body.needed(3), sizes), strict=True)]
    query = _heads(body, names[0], (batch, tokens, heads))
    length = body.shape(1)[2 if by_heads else 1]
    key, value = (name if by_heads else _heads(body, name, (batch, length, heads)) for name in names[1:])
    if body.input(6) is not None:
        length += body.shape(6)[2]
        key, value = (body.add("Concat", body.needed(k), new, axis=2) for k, new in ((6, key), (7, value)))
    added = [_mask(body, 4, batch, tokens, length), body.input(5), _causal(body, tokens, length)]
    found = _attended(body, query, key, value, _scale(body, width // heads), added)
    return _tokens(body, found, (batch, tokens, wide)), key, value


def _heads(body: Body, name: str, sizes: tuple[int, int, int]) -> str:
    """[batch, tokens, heads * width] as [batch, heads, tokens, width]."""
    return body.add("Transpose", body.reshaped(name, *sizes, -1), perm=[0, 2, 1, 3])


def _tokens(body: Body, name: str, sizes: tuple[int, int, int]) -> str:
    """The other way round."""
    return body.reshaped(body.add("Transpose", name, perm=[0, 2, 1, 3]), *sizes)


def _scale(body: Body, width: int) -> float:
    return float(body.attrs.get("scale", 0.0)) or 1 / math.sqrt(width)


def _attended(body: Body, query: str, key: str, value: str, scale: float, added: Sequence[str | None]) -> str:
    """softmax(query @ key.T * scale + what is added) @ value."""
    products = body.add("MatMul", query, body.add("Transpose", key, perm=[0, 1, 3, 2]))
    scores = body.add("Mul", products, body.constant(scale, body.dtype(0)))
    return body.add("MatMul", body.add("Softmax", body.sum(scores, *added), axis=-1), value)


def _causal(body: Body, tokens: int, total: int) -> str | None:
    """The least number for keys behind a query, which is the last but so many."""
    if not body.attrs.get("unidirectional"):
        return None
    behind = np.arange(total) > np.arange(tokens)[:, None] + total - tokens
    return body.constant(np.where(behind, np.finfo(body.dtype(0)).min, 0), body.dtype(0))


def _mask(body: Body, place: int, batch: int, tokens: int, total: int) -> str | None:
    """What a mask adds to scores [batch, heads, tokens, total]: numbers of keys, or 0 for each that is covered."""
    name = body.input(place)
    if name is None:
        return None
    shape = body.shape(place)
    match shape:
        case (n,) if n == batch:
            lengths = body.reshaped(body.add("Cast", name, to=7), batch, 1)
            seen = body.add("Less", body.constant(np.arange(total)[None], np.int64), lengths)
            own = (batch, 1, 1, total)
        case (n, m) if (n, m) == (batch, total):
            seen, own = body.add("Cast", name, to=9), (batch, 1, 1, total)
        case (n, t, m) if (n, t, m) == (batch, tokens, total):
            seen, own = body.add("Cast", name, to=9), (batch, 1, tokens, total)
        case _:
            wanted = f"({batch}), ({batch}, {total}) and ({batch}, {tokens}, {total})"
            raise Unsupported(f"{body.op} with a mask of the shape {shape}; {wanted} are taken")
    covered = body.constant(float(body.attrs.get("mask_filter_value", _COVERED)), body.dtype(0))
    return body.add("Where", body.reshaped(seen, *own), body.constant(0, body.dtype(0)), covered)


def _rotary(body: Body) -> str:
    """RotaryEmbedding: places are a number to begin with, or given for each token."""
    body.only(scale=1.0, is_packed_batching=0)
    shape = body.shape(0)
    batch, tokens = shape[0], shape[1] if len(shape) == 3 else shape[2]
    return _rotated(body, body.needed(0), _places(body, 1, batch, tokens), (2, 3), shape)


def _places(body: Body, place: int, batch: int, tokens: int) -> str:
    if body.shape(place) == (batch, tokens):
        return body.needed(place)
    first = body.reshaped(body.needed(place), 1, 1)
    steps = body.constant(np.tile(np.arange(tokens), (batch, 1)), np.int64)
    return body.add("Add", first, steps)


def _rotated(body: Body, data: str, places: str, caches: tuple[int, int], shape: Sequence[int]) -> str:
    """Data of tokens or heads with pairs of elements turned by their places."""
    part = int(body.attrs.get("rotary_embedding_dim", 0))
    heads = int(body.attrs.get("num_heads", 0))
    if len(shape) == 3 and not heads:
        heads = shape[2] // (2 * body.shape(caches[0])[1])
    told = {"interleaved": int(body.attrs.get("interleaved", 0)), "rotary_embedding_dim": part, "num_heads": heads}
    return body.add("RotaryEmbedding", data, *(body.needed(c) for c in caches), places, **told)


def _grouped(body: Body) -> Sequence[str | None]:
    """GroupQueryAttention: fewer keys than queries, behind those in a cache of as many rows as tokens in all.

    `seqlens_k` are the tokens of each row less one, the new ones included.
    """
    body.only(local_window_size=-1, softcap=0.0, smooth_softmax=0, k_quant_type="NONE", v_quant_type="NONE")
    body.refuse(9, 10, 11, why="with places, an attention bias or sinks")
    if body.input(1) is None or body.input(2) is None:
        raise Unsupported(f"{body.op} of queries that are packed with keys")
    length = body.values[6]
    if isinstance(length, Tensor) or length is None:
        raise NotAhead("total_sequence_length", body.op, length) if length is not None else Unsupported("no length")
    batch, tokens, width = body.shape(0)
    heads, few, total = int(body.attrs["num_heads"]), int(body.attrs["kv_num_heads"]), int(length.item())
    depth = width // heads
    lengths = body.reshaped(body.add("Cast", body.needed(5), to=7), batch, 1)
    steps = body.constant(np.arange(tokens)[None], np.int64)
    before = body.constant(np.zeros((batch, 1)), np.int64)
    if total != tokens:
        before = body.add("Sub", lengths, body.constant(tokens - 1, np.int64))
    places = body.add("Add", before, steps)
    query, key, value = (_heads(body, body.needed(k), (batch, tokens, n)) for k, n in enumerate((heads, few, few)))
    if body.attrs.get("do_rotary"):
        told = {"interleaved": int(body.attrs.get("rotary_interleaved", 0))}
        caches = [body.needed(7), body.needed(8), places]
        query, key = (body.add("RotaryEmbedding", name, *caches, **told) for name in (query, key))
    rows = max(total, body.shape(3)[2] if body.input(3) is not None else 0)
    if body.input(3) is not None:
        key, value = (
            _behind(body, place, new, places, (batch, few, rows, depth)) for place, new in ((3, key), (4, value))
        )
    seen = body.add("LessOrEqual", body.constant(np.arange(rows)[None, None], np.int64), _column(body, places, 2))
    least = body.constant(np.finfo(body.dtype(0)).min, body.dtype(0))
    added = body.add("Where", _column(body, seen, 1), body.constant(0, body.dtype(0)), least)
    keys, values = (_repeated(body, name, (batch, few, rows, depth), heads // few) for name in (key, value))
    found = _attended(body, query, keys, values, _scale(body, depth), [added])
    return _tokens(body, found, (batch, tokens, width)), key, value


def _column(body: Body, name: str, axis: int) -> str:
    return body.add("Unsqueeze", name, body.constant([axis], np.int64))


def _behind(body: Body, place: int, new: str, places: str, sizes: tuple[int, int, int, int]) -> str:
    """Rows of a cache with new ones at their places in it."""
    batch, few, rows, depth = sizes
    old, more = body.needed(place), rows - body.shape(place)[2]
    if more:
        old = body.add("Pad", old, body.constant([0, 0, 0, 0, 0, 0, more, 0], np.int64))
    at = body.add("Unsqueeze", places, body.constant([1, 3], np.int64))
    tokens = body.shape(0)[1]
    whole = body.add("Expand", at, body.constant([batch, few, tokens, depth], np.int64))
    return body.add("ScatterElements", old, whole, new, axis=2)


def _repeated(body: Body, name: str, sizes: tuple[int, int, int, int], times: int) -> str:
    """Each head so many times, one behind the other."""
    if times == 1:
        return name
    batch, few, rows, depth = sizes
    wide = body.add("Expand", _column(body, name, 2), body.constant([batch, few, times, rows, depth], np.int64))
    return body.reshaped(wide, batch, few * times, rows, depth)


WRITTEN: dict[str, Written] = {
    "Attention": _attention,
    "GroupQueryAttention": _grouped,
    "MultiHeadAttention": _of_heads,
    "RotaryEmbedding": _rotary,
}
