"""The CUDA text of products, convolutions and attention, run on a CPU: asynchronous copies early, and late."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import tensorlang
from tensorlang import topi
from tensorlang.te.operation import Tensor
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tensorlang.topi.attention import attention_reference
from tensorlang.topi.conv2d import conv2d_reference
from tests.topi.gpu.device_runs import GPU, scheduled
from tests.topi.programs import Array, Given, close, given

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

Mode = Literal["late", "at_once"]
modes = pytest.mark.parametrize("mode", ["late", "at_once"])


def emulated(output: Tensor, shape: tuple[int, ...], *inputs: Given, mode: Mode = "late") -> tuple[Array, str]:
    """What the emulation makes of the CUDA text of one output, and the loops it was printed from."""
    tensors = [*(tensor for tensor, _ in inputs), output]
    lowered = tensorlang.lower(scheduled(output), tensors, target=GPU)
    made = np.full(shape, 77, np.float32)
    arrays = [*(array for _, array in inputs), made]
    names = (p.name for p in lowered.kernel.params)
    emulate_program(lowered.kernel, dict(zip(names, arrays, strict=True)), mode=mode, seed=5)
    return made, str(lowered)


@modes
def test_products(mode: Mode) -> None:
    a, b = given("a", 50, 41), given("b", 41, 36)
    made, loops = emulated(topi.matmul(a[0], b[0]), (50, 36), a, b, mode=mode)
    close(made, a[1].astype(np.float64) @ b[1])
    assert "begin copy a.shared" in loops and "begin copy b.shared" in loops and "of 4 elements" in loops


@pytest.mark.sampled(1)
@modes
def test_convolutions(mode: Mode) -> None:
    data, weight = given("d", 1, 20, 9, 10), given("w", 12, 20, 3, 3)
    made, loops = emulated(topi.conv2d(data[0], weight[0], padding=1), (1, 12, 9, 10), data, weight, mode=mode)
    close(made, conv2d_reference(data[1].astype(np.float64), weight[1].astype(np.float64), 1, 1))
    assert "begin copy d.shared" in loops and "begin copy w.shared" in loops


def test_attention() -> None:
    query, key, value = given("q", 2, 20, 24), given("k", 2, 40, 24), given("v", 2, 40, 24)
    made, _ = emulated(topi.attention(query[0], key[0], value[0]), (2, 20, 24), query, key, value)
    (wanted,) = attention_reference(query[1].astype(np.float64), key[1], value[1])
    close(made, wanted)
