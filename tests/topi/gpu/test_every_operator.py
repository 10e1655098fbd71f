"""Every operator that the library names computes on a GPU what its reference does, by a rule of its own or without."""

from __future__ import annotations

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, topi
from tensorlang.runtime.host_program import device_kernels
from tensorlang.te.operation import Tensor
from tensorlang.topi.table import OPERATORS
from tests.device_targets import on_cuda, on_opencl
from tests.topi.gpu.device_runs import GPU, scheduled
from tests.topi.programs import Array, close, shape_of, tensors_of

SIZES = {"N": 3, "M": 11, "C": 4, "H": 7, "W": 9, "K": 3, "O": 5, "Q": 2, "D": 8}
NARROW = {"conv2d_int8", "conv2d_int8_packed", "pack_conv2d_int8", "quantized_dense", "pack_narrow", "dense_narrow"}


def numbers(tensor: Tensor, seed: int) -> Array:
    """Numbers from 0.1 on, which every operator takes, or small integers."""
    rng, info = np.random.default_rng(seed), dtypes.info(tensor.dtype)
    shape = shape_of(tensor)
    values = 0.1 + np.abs(rng.standard_normal(shape)) if info.is_float else rng.integers(0, 4, shape)
    return np.asarray(values).astype(info.numpy)


def small(name: str) -> list[Tensor]:
    """Inputs and the output of an operator, of small sizes."""
    operator = OPERATORS[name]
    sizes = [SIZES[size] for size in operator.sizes]
    return operator.tensors(sizes, "int8") if name in NARROW else tensors_of(operator, *sizes)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", [on_opencl, on_cuda])
@pytest.mark.parametrize("name", OPERATORS)
def test_values(name: str, target: str) -> None:
    operator = OPERATORS[name]
    *inputs, output = small(name)
    kernel = tensorlang.build(topi.schedule(output, target, tuned=False), [*inputs, output], target=target)
    arrays = [numbers(tensor, seed) for seed, tensor in enumerate(inputs)]
    made = np.full(shape_of(output), 77, dtypes.info(output.dtype).numpy)
    kernel(*arrays, made)
    (wanted,) = operator.reference(*arrays)
    if dtypes.info(output.dtype).is_float:
        close(made, wanted)
    else:
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_rules_for_cuda_give_a_program(name: str) -> None:
    """NVRTC compiles it when the test ends, as all device programs of tests."""
    *inputs, output = small(name)
    lowered = tensorlang.lower(scheduled(output), [*inputs, output], target=GPU)
    assert device_kernels(lowered.kernel)
