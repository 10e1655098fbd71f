"""Every differentiable operator of the library as an operator of PyTorch and JAX, against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.frameworks.program import program_of
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import Tensor
from tensorlang.topi import OPERATORS
from tests.frameworks.programs import built
from tests.profiles import NIGHTLY

SIZES = {
    "attention": (2, 3, 4, 2),
    "batch_norm": (2, 3, 2, 2),
    "conv2d": (1, 2, 4, 4, 3, 3),
    "depthwise_conv2d": (1, 2, 4, 4, 3),
    "embedding": (5, 4, 3),
    "max_pool2d": (1, 2, 5, 5),
}
INTEGERS = {"argmax", "argmin", "conv2d_int8", "conv2d_int8_packed", "dense_narrow", "pack_conv2d_int8", "pack_narrow"}
ALL = sorted(OPERATORS.keys() - INTEGERS - {"quantized_dense"})


def _names(by_day: list[str]) -> list[str]:
    return ALL if NIGHTLY else by_day


def _kernel(name: str, dtype: str) -> Executable:
    sizes = SIZES.get(name, (2, 3, 4, 5)[: len(OPERATORS[name].sizes)])
    return built(OPERATORS[name].tensors(sizes, dtype), name)


def _arrays(kernel: Executable) -> list[Any]:
    """Positive floats, none near another where an operator has a kink, and indices."""
    random, found = np.random.default_rng(0), list[Any]()
    given = program_of(kernel).given
    for number, tensor in enumerate(given, 1):
        assert isinstance(tensor, Tensor)
        shape = tuple(int(str(extent)) for extent in tensor.shape)
        count = int(np.prod(shape))
        floats = 0.5 + (random.permutation(count) + number / (len(given) + 1)) / count
        is_float = dtypes.info(tensor.dtype).is_float
        found.append((floats if is_float else random.integers(0, 2, count)).reshape(shape).astype(tensor.dtype))
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", _names(["embedding", "gelu", "layer_norm", "max", "softmax"]))
def test_in_pytorch(torch: Any, name: str) -> None:
    kernel = _kernel(name, "float64")
    operator = kernel.torch_op(f"library::{name}").default
    arrays = [torch.from_numpy(a) for a in _arrays(kernel)]
    for array in arrays:
        array.requires_grad_(array.is_floating_point())
    assert torch.autograd.gradcheck(operator, arrays)
    torch.library.opcheck(operator, tuple(arrays))


@pytest.mark.parametrize("name", _names(["dense", "softmax"]))
def test_in_jax(jax: Any, name: str) -> None:
    from jax.test_util import check_grads

    kernel = _kernel(name, "float32")
    function, arrays = kernel.jax_op(), _arrays(kernel)
    floats = [n for n, a in enumerate(arrays) if a.dtype == np.float32]

    def of_floats(*given: Any) -> Any:
        return function(*(given[floats.index(n)] if n in floats else a for n, a in enumerate(arrays)))

    check_grads(of_floats, [arrays[n] for n in floats], order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
