"""Norms behind a residual, and of embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorlang.networks.onnx.bodies import Body, Written

_EPSILON = 1e-12
_SIMPLE_EPSILON = 1e-5


def _skip(body: Body) -> Sequence[str | None]:
    """Of the sum of two arrays and a bias; the sum is an output, too."""
    total = body.sum(body.needed(0), body.needed(1), body.input(4))
    return _layer_norm(body, total, 2, 3), None, None, total


def _layer_norm(body: Body, data: str, scale: int, shift: int) -> str:
    epsilon = float(body.attrs.get("epsilon", _EPSILON))
    return body.add("LayerNormalization", data, body.needed(scale), body.input(shift), axis=-1, epsilon=epsilon)


def _skip_simple(body: Body) -> Sequence[str | None]:
    total = body.sum(body.needed(0), body.needed(1), body.input(3))
    return _rms_norm(body, total, 2, _EPSILON), None, None, total


def _simple(body: Body) -> Sequence[str | None]:
    return _rms_norm(body, body.needed(0), 1, _SIMPLE_EPSILON), None


def _rms_norm(body: Body, data: str, scale: int, usual: float) -> str:
    axis, epsilon = int(body.attrs.get("axis", -1)), float(body.attrs.get("epsilon", usual))
    return body.add("RMSNormalization", data, body.needed(scale), axis=axis, epsilon=epsilon)


def _embedded(body: Body) -> Sequence[str | None]:
    """Of the embeddings of words, places and segments; then the number of words of each row, and their sum."""
    batch, tokens = body.shape(0)
    places = body.input(8) or body.constant(np.arange(tokens)[None], np.int64)
    parts = [body.add("Gather", body.needed(2), body.needed(0)), body.add("Gather", body.needed(3), places)]
    if body.input(1) is not None:
        parts.append(body.add("Gather", body.needed(4), body.needed(1)))
    total = body.sum(*parts)
    counts = body.constant(np.zeros(batch), np.int32)
    if body.input(7) is not None:
        counts = body.add("ReduceSum", body.needed(7), body.constant([1], np.int64), keepdims=0)
    return _layer_norm(body, total, 5, 6), counts, total


WRITTEN: dict[str, Written] = {
    "EmbedLayerNormalization": _embedded,
    "SimplifiedLayerNormalization": _simple,
    "SkipLayerNormalization": _skip,
    "SkipSimplifiedLayerNormalization": _skip_simple,
}
