"""Small images and windows of weights, and programs over them built and run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.te.operation import Tensor
from tests.topi.programs import Array, Given, shape_of


def given(name: str, *shape: int, dtype: str = "float32") -> Given:
    """A placeholder, and an array of small whole numbers for it, whose sums are exact."""
    seed = sum(map(ord, name)) + sum(shape)
    values = np.random.default_rng(seed).integers(-3, 4, shape)
    return te.placeholder(shape, dtype, name), np.asarray(values).astype(dtypes.info(dtype).numpy)


def run(output: Tensor, *inputs: Given, target: str | None = None) -> Array:
    """What the library's schedule makes of arrays."""
    schedule = topi.schedule(output, target)
    kernel = tensorlang.build(schedule, [*(tensor for tensor, _ in inputs), output], target=target)
    made = np.full(shape_of(output), 77, dtypes.info(output.dtype).numpy)
    kernel(*(array for _, array in inputs), made)
    return made


def relu_of(tensor: Tensor, bias: Tensor, residual: Tensor | None = None, channel: int = 1) -> Tensor:
    """Stages as they follow a convolution: bias, perhaps a residual, and an activation."""
    biased = te.compute(tensor.shape, lambda *i: tensor(*i) + bias[i[channel]], name="biased")
    added = biased if residual is None else te.compute(tensor.shape, lambda *i: biased(*i) + residual(*i), name="added")
    made: Tensor = te.compute(tensor.shape, lambda *i: te.max(added(*i), 0), name="relu")
    return made


def last(array: Array) -> Array:
    """NCHW to NHWC."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))


def blocked(array: Array, block: int) -> Array:
    """NCHW to NCHWc."""
    n, c, h, w = array.shape
    return np.ascontiguousarray(array.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def loops_of(output: Tensor, inputs: Sequence[Given], target: str | None = None) -> str:
    """The loops of the library's schedule, as text."""
    lowered = tensorlang.lower(topi.schedule(output, target), [*(t for t, _ in inputs), output])
    return str(lowered)


def check_operator(name: str, *sizes: int, options: str = "") -> None:
    """The row of an operator in the table: its kernel and its competitor compute what its reference does."""
    row = topi.operator(name)
    row = row.with_options(row.read_options(options.split()))
    *inputs, output = row.tensors(sizes, "float32")
    arrays = [given(t.name, *shape_of(t))[1] for t in inputs]
    (wanted,) = row.reference(*arrays)
    np.testing.assert_array_equal(run(output, *zip(inputs, arrays, strict=True)), wanted)
    made = np.empty_like(wanted)
    row.numpy(*arrays, made)
    np.testing.assert_array_equal(made, wanted)
