"""JAX: functions compiled by XLA. Inputs that are known ahead are constants of the compiled function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax import numpy as jnp

from benchmarks.operators import blurred, corner_measure
from benchmarks.peers import jax_vocabulary
from benchmarks.peers.serve import Builder, Call, Given

Function = Callable[..., Any]


def matmul(given: Given) -> Function:
    """Narrow types are summed in 32 bits."""
    sums = jnp.int32 if given.dtype == "int8" else jnp.float32
    return lambda A, B: jnp.matmul(A, B, preferred_element_type=sums)


def dense_gelu(given: Given) -> Function:
    """With the error function."""
    return lambda x, W, b: jax.nn.gelu(x @ W + b, approximate=False)


def conv2d(given: Given) -> Function:
    """In the layout of the workloads."""
    padding, stride, groups = (given.options[name] for name in ("padding", "stride", "groups"))

    def function(x: Any, w: Any, bias: Any = None) -> Any:
        y = lax.conv_general_dilated(x, w, [stride] * 2, [(padding, padding)] * 2, feature_group_count=groups)
        return y if bias is None else jax.nn.relu(y + bias[:, None, None])

    return function


def softmax(given: Given) -> Function:
    """Of rows."""
    return lambda x: jax.nn.softmax(x, axis=-1)


def layer_norm(given: Given) -> Function:
    """Fused by the compiler."""

    def function(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred * lax.rsqrt(variance + given.options["epsilon"]) * gamma + beta

    return function


def attention(given: Given) -> Function:
    """By heads."""

    def function(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]), axis=-1) @ v

    return function


def jacobi(given: Given) -> Function:
    """All steps in one compiled loop."""

    def step(_: Any, a: Any) -> Any:
        inner = a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
        return a.at[1:-1, 1:-1].set(0.2 * inner)

    return lambda x: lax.fori_loop(0, given.options["steps"], step, x)


def blur(given: Given) -> Function:
    """Fused by the compiler."""
    return blurred


def corners(given: Given) -> Function:
    """Fused by the compiler."""
    return corner_measure


FUNCTIONS: dict[str, Callable[[Given], Function]] = {
    "matmul": matmul,
    "dense_gelu": dense_gelu,
    "conv2d": conv2d,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "attention": attention,
    "jacobi": jacobi,
    "blur": blur,
    "corners": corners,
    **jax_vocabulary.FUNCTIONS,
}


def builder(prepare: Callable[[Given], Function]) -> Builder:
    """A builder that compiles for the arrays in hand."""

    def build(given: Given) -> Call:
        function = prepare(given)
        dtype = jnp.bfloat16 if given.dtype == "bfloat16" else None
        arrays = {name: jnp.asarray(array, dtype=dtype) for name, array in given.arrays.items()}
        constants = {name: arrays.pop(name) for name in given.constant}
        compiled = jax.jit(lambda **fed: function(**fed, **constants)).lower(**arrays).compile()
        return lambda: compiled(**arrays).block_until_ready()

    return build


BUILDERS = {name: builder(prepare) for name, prepare in FUNCTIONS.items()}
