"""The operators of `benchmarks.vocabulary` in JAX: functions that XLA compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from benchmarks.peers.serve import Given

Function = Callable[..., Any]


def convolution(given: Given) -> Function:
    """In any number of dimensions."""
    rank, padding = given["x"].ndim - 2, given.options["padding"]
    return lambda x, w: lax.conv_general_dilated(x, w, [1] * rank, [(padding, padding)] * rank)


def conv2d_transpose(given: Given) -> Function:
    """As the gradient of a convolution."""
    stride, edge = given.options["stride"], given["w"].shape[2] - 1 - given.options["padding"]

    def function(x: Any, w: Any) -> Any:
        turned = jnp.flip(w, (2, 3)).swapaxes(0, 1)
        return lax.conv_general_dilated(x, turned, [1, 1], [(edge, edge)] * 2, lhs_dilation=[stride] * 2)

    return function


def lstm(given: Given) -> Function:
    """A scan over steps."""

    def function(x: Any, wi: Any, wh: Any, bi: Any, bh: Any) -> Any:
        inputs = x @ wi.T + (bi + bh)

        def step(state: Any, given: Any) -> Any:
            h, c = state
            i, f, g, o = jnp.split(given + h @ wh.T, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((x.shape[1], wh.shape[1]))
        return lax.scan(step, (start, start), inputs)[1]

    return function


def scatter_add(given: Given) -> Function:
    """By element."""
    return lambda data, indices, updates: data.at[indices, jnp.arange(data.shape[1])].add(updates)


FUNCTIONS: dict[str, Callable[[Given], Function]] = {
    "conv2d_transpose": conv2d_transpose,
    "conv1d": convolution,
    "conv3d": convolution,
    "resize": lambda given: lambda x: jax.image.resize(x, (*x.shape[:2], *(2 * n for n in x.shape[2:])), "linear"),
    "topk": lambda given: lambda x: lax.top_k(x, given.options["k"])[1],
    "cumsum": lambda given: lambda x: jnp.cumsum(x, axis=1),
    "argsort": lambda given: lambda x: jnp.argsort(x, axis=1),
    "lstm": lstm,
    "scatter_add": scatter_add,
}
