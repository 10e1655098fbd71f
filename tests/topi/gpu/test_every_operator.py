"""Every operator that the library names computes on a GPU what its reference does, by a rule of its own or without."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, topi
from tensorlang.te.operation import Tensor
from tensorlang.topi.gpu.table import FAMILIES as GPU_FAMILIES
from tensorlang.topi.gpu.table import RULES as GPU_RULES
from tensorlang.topi.table import OPERATORS, RULES
from tests.topi.gpu.device_runs import has_opencl
from tests.topi.programs import Array, close, shape_of

SIZES = {"N": 3, "M": 11, "C": 4, "H": 7, "W": 9, "K": 3, "O": 5, "Q": 2, "D": 8}
NARROW = {"conv2d_int8", "conv2d_int8_packed", "pack_conv2d_int8", "quantized_dense", "pack_narrow", "dense_narrow"}


def numbers(tensor: Tensor, seed: int) -> Array:
    """Numbers from 0.1 on, which every operator takes, or small integers."""
    rng, info = np.random.default_rng(seed), dtypes.info(tensor.dtype)
    shape = shape_of(tensor)
    values = 0.1 + np.abs(rng.standard_normal(shape)) if info.is_float else rng.integers(0, 4, shape)
    return np.asarray(values).astype(info.numpy)


@pytest.mark.skipif(not has_opencl(), reason="no OpenCL device")
@pytest.mark.parametrize("name", OPERATORS)
def test_values(name: str) -> None:
    operator = OPERATORS[name]
    dtype = "int8" if name in NARROW else "float32"
    *inputs, output = operator.tensors([SIZES[size] for size in operator.sizes], dtype)
    kernel = tensorlang.build(topi.schedule(output, "opencl", tuned=False), [*inputs, output], target="opencl")
    arrays = [numbers(tensor, seed) for seed, tensor in enumerate(inputs)]
    made = np.full(shape_of(output), 77, dtypes.info(output.dtype).numpy)
    kernel(*arrays, made)
    (wanted,) = operator.reference(*arrays)
    if dtypes.info(output.dtype).is_float:
        close(made, wanted)
    else:
        np.testing.assert_array_equal(made, wanted)


def test_every_family_is_whole() -> None:
    for family in GPU_FAMILIES:
        assert all(GPU_RULES[tag] is rule for tag, rule in family.RULES.items())
    assert set(GPU_RULES) <= set(RULES)
