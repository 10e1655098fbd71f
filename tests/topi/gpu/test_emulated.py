"""The CUDA text of the rules for GPUs, run on a CPU: warps and their shuffles as the text has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te, topi
from tensorlang.te.operation import Tensor
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.topi.gpu.device_runs import GPU, scheduled
from tests.topi.programs import Array, Given, close, given

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def softmax(x: Array) -> Array:
    """Along the last axis, in float64."""
    powers = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    made: Array = powers / powers.sum(axis=-1, keepdims=True)
    return made


def emulated(output: Tensor, shape: tuple[int, ...], *inputs: Given) -> Array:
    """What the emulation makes of the CUDA text of one output."""
    tensors = [*(tensor for tensor, _ in inputs), output]
    kernel = tensorlang.lower(scheduled(output), tensors, target=GPU).kernel
    made = np.full(shape, 77, dtypes.info(output.dtype).numpy)
    arrays = [*(array for _, array in inputs), made]
    emulate_program(kernel, dict(zip((p.name for p in kernel.params), arrays, strict=True)), seed=3)
    return made


CASES: dict[str, tuple[tuple[int, ...], str, Callable[[Tensor], Tensor], Callable[[Array], Any]]] = {
    "rows of part of a warp": ((30, 40), "float16", topi.softmax, softmax),
    "rows of blocks": ((2, 1100), "float32", topi.softmax, softmax),
    "columns": ((20, 35), "float32", lambda x: topi.mean(x, 0), lambda x: x.astype(np.float64).mean(0)),
    "places in pieces": ((2600,), "float32", topi.argmax, np.argmax),
    "transposed words": ((64, 70), "float16", topi.transpose, np.transpose),
    "vectors and a rest": ((5003,), "float16", topi.relu, lambda x: np.maximum(x, 0)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_texts(name: str) -> None:
    shape, dtype, operator, reference = CASES[name]
    x = given("x", *shape, dtype=dtype)
    wanted = np.asarray(reference(x[1]))
    made = emulated(operator(x[0]), wanted.shape, x)
    if made.dtype.kind == "f":
        close(made, wanted)
    else:
        np.testing.assert_array_equal(made, wanted)


def test_a_symbolic_size() -> None:
    n = te.var("n")
    x = te.placeholder((n, 30), name="x")
    array = np.random.default_rng(0).standard_normal((9, 30)).astype(np.float32)
    kernel = tensorlang.lower(scheduled(out := topi.softmax(x)), [x, out], target=GPU).kernel
    made = np.full_like(array, 77)
    emulate_program(kernel, dict(zip((p.name for p in kernel.params), (array, made), strict=True)), {"n": 9})
    close(made, softmax(array))
