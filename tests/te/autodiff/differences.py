"""Gradients by central differences, and short words for the tests of te.gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang import te
from tensorlang.te.program import canonical
from tensorlang.te.reference import evaluate

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


def tensor(name: str, *shape: Any, dtype: str = "float64") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


def lines(*tensors: te.Tensor) -> list[str]:
    """The programs of tensors, without their inputs; the bounds of every read are proven on the way."""
    te.create_schedule(list(tensors))
    return [line for line in canonical(tensors)[0].text.splitlines() if not line.startswith(("input ", "return "))]


def value(result: te.Tensor, arrays: Arrays, sizes: Mapping[str, int] | None = None) -> Array:
    program = canonical([result])[0]
    inputs = {op.name: arrays[op.name] for op in program.ops if op.name in arrays}
    (array,) = evaluate(program, inputs, sizes).values()
    return array


def uniform(shape: Sequence[int], seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def check_differences(
    output: te.Tensor,
    inputs: Sequence[te.Tensor],
    arrays: Arrays,
    sizes: Mapping[str, int] | None = None,
    tolerance: float = 1e-5,
) -> list[te.Tensor]:
    """Compare the gradient, times a random head, with central differences along a random direction."""
    here = value(output, arrays, sizes)
    head = te.placeholder(output.shape, output.dtype, name="head")
    weights = uniform(here.shape, 1, -1.0, 1.0)
    grads: list[te.Tensor] = te.gradient(output, inputs, head)
    te.create_schedule([*grads, output])
    for source, grad in zip(inputs, grads, strict=True):
        at = arrays[source.name]
        step = uniform(at.shape, 2, -1.0, 1.0) * 1e-6
        up, down = (value(output, {**arrays, source.name: at + sign * step}, sizes) for sign in (1.0, -1.0))
        found = value(grad, {**arrays, "head": weights}, sizes)
        assert found.shape == at.shape
        scale = max(1.0, float(np.abs(found).max(initial=0.0)))
        want = float(((up - down) * weights).sum()) / 2e-6
        assert abs(float((found * step).sum()) / 1e-6 - want) <= tolerance * scale * max(1, at.size), source.name
    return grads


def matmul(n: Any, m: Any, k: Any, dtype: str = "float64") -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A, B = tensor("A", n, k, dtype=dtype), tensor("B", k, m, dtype=dtype)
    r = te.reduce_axis((0, k), "k")
    return A, B, te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
