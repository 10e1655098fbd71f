"""Softmax and the normalizations on a GPU: a row is read once, by a warp, a block, or column by column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.te.operation import Tensor
from tests.topi.gpu.device_runs import TARGETS, compiled, needs_nvrtc, runs, scheduled
from tests.topi.programs import Array, given


def softmax(x: Array, axis: Any) -> Array:
    """In float64."""
    powers = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
    made: Array = powers / powers.sum(axis=axis, keepdims=True)
    return made


def log_softmax(x: Array, axis: Any) -> Array:
    """In float64."""
    made: Array = np.log(softmax(x, axis))
    return made


def rms_norm(x: Array, axis: Any) -> Array:
    """In float64."""
    wide = x.astype(np.float64)
    made: Array = wide / np.sqrt((wide**2).mean(axis=axis, keepdims=True) + 1e-5)
    return made


def layer_norm(x: Array, axis: Any) -> Array:
    """In float64."""
    wide = x.astype(np.float64)
    return rms_norm(wide - wide.mean(axis=axis, keepdims=True), axis)


OPERATORS: dict[str, tuple[Callable[..., Tensor], Callable[[Array, Any], Array]]] = {
    "softmax": (topi.softmax, softmax),
    "log_softmax": (topi.log_softmax, log_softmax),
    "rms_norm": (lambda x, axis: topi.rms_norm(x, axis=axis), rms_norm),
    "layer_norm": (lambda x, axis: topi.layer_norm(x, axis=axis), layer_norm),
}
CASES: list[tuple[str, tuple[int, ...], Any, str]] = [
    ("softmax", (33,), 0, "float32"),
    ("softmax", (6, 1100), 1, "float32"),
    ("softmax", (300, 10), 1, "float16"),
    ("softmax", (2, 3, 5, 7), 1, "float32"),
    ("softmax", (5, 1), 1, "float32"),
    ("softmax", (9, 72), 1, "bfloat16"),
    ("layer_norm", (5, 30), 1, "float64"),
    ("log_softmax", (2, 3, 33), 2, "float16"),
    ("log_softmax", (30, 35), 0, "float32"),
    ("rms_norm", (3, 2304), -1, "float16"),
    ("rms_norm", (2, 70, 8), 1, "float32"),
    ("layer_norm", (9, 40), -1, "float32"),
    ("layer_norm", (3, 4, 6, 8), (2, 3), "float16"),
    ("layer_norm", (4, 6, 8), (0, 2), "float32"),
]


@pytest.mark.sampled(3)
@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "shape", "axis", "dtype"), CASES)
def test_values(target: str, name: str, shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    x = given("x", *shape, dtype=dtype)
    operator, reference = OPERATORS[name]
    runs(target, operator(x[0], axis), reference(x[1], axis), x)


@pytest.mark.parametrize("target", TARGETS)
def test_weights_and_what_precedes_and_follows(target: str) -> None:
    x, y, gamma, beta = given("x", 7, 64), given("y", 7, 64), given("gamma", 64), given("beta", 64)
    summed = te.compute((7, 64), lambda i, j: x[0][i, j] + y[0][i, j], name="summed")
    out = topi.relu(topi.layer_norm(summed, gamma[0], beta[0]))
    s = scheduled(out)
    kernels = {
        stage.op.name for stage in s.stages if stage.leaf_iter_vars and s.state.stages[stage.name].attach is None
    }
    assert kernels == {out.op.name}
    wanted = layer_norm(x[1].astype(np.float64) + y[1], 1) * gamma[1] + beta[1]
    runs(target, out, np.maximum(wanted, 0), x, y, gamma, beta)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1])
def test_symbolic_sizes(target: str, axis: int) -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), name="x")
    array = np.random.default_rng(0).standard_normal((13, 300)).astype(np.float32)
    runs(target, topi.softmax(x, axis), softmax(array, axis), (x, array))


@pytest.mark.parametrize("target", TARGETS)
def test_a_symbolic_number_of_rows(target: str) -> None:
    n = te.var("n")
    x = te.placeholder((n, 40), name="x")
    array = np.random.default_rng(0).standard_normal((11, 40)).astype(np.float32)
    runs(target, topi.layer_norm(x), layer_norm(array, 1), (x, array))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_too_long_for_shared_memory_are_read_again(target: str) -> None:
    x = given("x", 2, 30000)
    out = topi.softmax(x[0])
    assert "x.shared" not in {stage.op.name for stage in scheduled(out).stages}
    runs(target, out, softmax(x[1], 1), x)


CODE = [
    ("softmax", (4096, 1000), "float32", 64),
    ("softmax", (4096, 4096), "float16", 64),
    ("layer_norm", (4096, 768), "float16", 64),
    ("rms_norm", (4096, 8192), "float32", 64),
]


@pytest.mark.sampled(2)
@needs_nvrtc
@pytest.mark.parametrize(("name", "shape", "dtype", "registers"), CODE)
def test_a_row_is_read_once_in_vectors(name: str, shape: tuple[int, int], dtype: str, registers: int) -> None:
    x = te.placeholder(shape, dtype, "x")
    for source, kernel in compiled(OPERATORS[name][0](x, -1), x):
        word = "float4" if dtype == "float32" else "uint4"
        assert source.count(f"*(const {word} *)(x + ") == 1
        assert "= x[" not in source
        assert f"*({word} *)({name} + " in source
        assert kernel.registers <= registers
