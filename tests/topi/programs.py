"""Placeholders with arrays of numbers for them, and programs of the library built and run on these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import Const
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.topi.operator import Operator

Array = npt.NDArray[Any]
Given = tuple[Tensor, Array]

ROUNDING = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 3e-6, "float64": 1e-12}
"""How far results of a few roundings may be from those in float64, relative to the largest."""


def given(name: str, *shape: int, dtype: str = "float32") -> Given:
    """A placeholder, and numbers for it: normally distributed, or small integers."""
    rng = np.random.default_rng(sum(map(ord, name)) + sum(shape))
    info = dtypes.info(dtype)
    values = rng.standard_normal(shape) if info.is_float else rng.integers(0, 5, shape)
    return te.placeholder(shape, dtype, name), np.asarray(values).astype(info.numpy)


def tensors_of(operator: Operator, *sizes: int) -> list[Tensor]:
    """The tensors of an operator of floats, or of integers where it takes no floats."""
    try:
        return operator.tensors(sizes, "float32")
    except DefinitionError:
        return operator.tensors(sizes, "int32")


def shape_of(tensor: Tensor) -> list[int]:
    """The shape of a tensor without symbolic sizes."""
    return [int(extent.value) for extent in tensor.shape if isinstance(extent, Const)]


def run_all(outputs: Sequence[Tensor], *inputs: Given, target: str | Target | None = None) -> list[Array]:
    """What the library's schedule of several outputs makes of arrays."""
    kernel = tensorlang.build(
        topi.schedule(outputs, target), [*(tensor for tensor, _ in inputs), *outputs], target=target
    )
    made = [np.full(shape_of(output), 77, dtypes.info(output.dtype).numpy) for output in outputs]
    kernel(*(array for _, array in inputs), *made)
    return made


def run(output: Tensor, *inputs: Given, target: str | Target | None = None) -> Array:
    """What the library's schedule of one output makes of arrays."""
    return run_all([output], *inputs, target=target)[0]


def close(made: Array, wanted: Array) -> None:
    """Check a result against one that was computed in float64."""
    assert made.shape == wanted.shape
    exact = wanted.astype(np.float64)
    bound = ROUNDING[made.dtype.name] * max(1.0, float(np.abs(exact).max(initial=0.0)))
    np.testing.assert_allclose(made.astype(np.float64), exact, rtol=0, atol=bound)
