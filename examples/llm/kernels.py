"""The kernels of a decoder, which all layers share. Rows are tokens: of `batch` sequences, `n` of each."""

from __future__ import annotations

from functools import cache
from typing import Any

import tensorlang
from examples.llm.parameters import Parameters
from examples.llm.weights import Rows, Shape
from tensorlang import te, topi
from tensorlang.topi.block_formats import BLOCK_FORMATS


@cache
def embed(p: Parameters, rows: int, format: str, shape: tuple[int, ...]) -> Any:
    """The embeddings of tokens: (tokens, table as the file has it, out: rows)."""
    tokens = te.placeholder((rows,), "int32", name="tokens")
    if format not in BLOCK_FORMATS:
        table = te.placeholder(shape, format, name="table")
        out = te.compute((rows, p.width), lambda i, c: table[tokens[i], c].astype("float32"), name="out")
        return _built([tokens, table], [out])
    table = te.placeholder(shape, "uint8", name="table")
    chosen = te.compute((rows, *shape[1:]), lambda i, b, c: table[tokens[i], b, c], name="chosen")
    return _built([tokens, table], [topi.dequantize(chosen, format, name="out")])


@cache
def before(p: Parameters, batch: int, n: int, query: Shape, key: Shape, value: Shape) -> Any:
    """What rows ask and offer: (rows, norm, weights, positions, cosines, sines, out: queries, keys, values)."""
    rows, norm = te.placeholder((batch * n, p.width), name="rows"), te.placeholder((p.width,), name="norm")
    positions = te.placeholder((batch, n), "int32", name="positions")
    cosines, sines = (te.placeholder((p.context, p.depth // 2), name=name) for name in ("cosines", "sines"))
    held = [shape.placeholders(name) for shape, name in ((query, "query"), (key, "key"), (value, "value"))]
    normed = Rows(topi.rms_norm(rows, norm, epsilon=p.epsilon, name="normed"))

    def by_heads(k: int, heads: int, name: str) -> te.Tensor:
        made = held[k][1](normed)
        shape = (batch, heads, n, p.depth)
        split: te.Tensor = te.compute(shape, lambda b, h, i, c: made[b * n + i, h * p.depth + c], name=name)
        return split

    queries = topi.rope(by_heads(0, p.heads, "queries"), positions, cosines, sines, name="turned_queries")
    keys = topi.cast(topi.rope(by_heads(1, p.groups, "keys"), positions, cosines, sines, name="turned_keys"), "float16")
    values = topi.cast(by_heads(2, p.groups, "values"), "float16")
    inputs = [rows, norm, *(tensor for tensors, _ in held for tensor in tensors), positions, cosines, sines]
    return _built(inputs, [queries, keys, values])


@cache
def attend(p: Parameters, batch: int, n: int) -> Any:
    """What heads gather: (queries, keys, values, lengths, most, out: rows)."""
    shape = (batch, p.groups, p.context, p.depth)
    queries = te.placeholder((batch, p.heads, n, p.depth), name="queries")
    keys, values = (te.placeholder(shape, "float16", name) for name in ("keys", "values"))
    lengths, most = te.placeholder((batch,), "int32", "lengths"), te.var("most")
    attended = topi.cached_attention(queries, keys, values, lengths, most=most, name="attended")
    out = te.compute((batch * n, p.width), lambda r, c: attended[r // n, c // p.depth, r % n, c % p.depth], name="out")
    return _built([queries, keys, values, lengths, most], [out])


@cache
def gated(p: Parameters, rows: int, gate: Shape, up: Shape) -> Any:
    """What goes through the gate: (rows, norm, weights, out: silu(gate) * up)."""
    data, norm = te.placeholder((rows, p.width), name="data"), te.placeholder((p.width,), name="norm")
    normed = Rows(topi.rms_norm(data, norm, epsilon=p.epsilon, name="normed"))
    held = [shape.placeholders(name) for shape, name in ((gate, "gate"), (up, "up"))]
    out = topi.multiply(topi.silu(held[0][1](normed)), held[1][1](normed), name="out")
    return _built([data, norm, *(tensor for tensors, _ in held for tensor in tensors)], [out])


@cache
def added(rows: int, weights: Shape) -> Any:
    """A product that is added to what there is: (rows, residual, weights, out: rows)."""
    data, residual = te.placeholder((rows, weights.k), name="data"), te.placeholder((rows, weights.n), name="residual")
    tensors, product = weights.placeholders("weights")
    return _built([data, residual, *tensors], [topi.add(residual, product(Rows(data)), name="out")])


@cache
def logits(p: Parameters, batch: int, output: Shape) -> Any:
    """The logits of the last rows: (rows, norm, weights, out: logits)."""
    rows, norm = te.placeholder((batch, p.width), name="rows"), te.placeholder((p.width,), name="norm")
    tensors, product = output.placeholders("output")
    normed = Rows(topi.rms_norm(rows, norm, epsilon=p.epsilon, name="normed"))
    return _built([rows, norm, *tensors], [product(normed)])


def _built(inputs: list[Any], outputs: list[te.Tensor]) -> Any:
    return tensorlang.build(topi.schedule(outputs), [*inputs, *outputs])
