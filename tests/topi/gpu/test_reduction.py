"""Reductions on a GPU: along rows by warps and blocks, along columns, in pieces, of all elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import te, topi
from tests.topi.gpu.device_runs import TARGETS, compiled, needs_nvrtc, run_on, runs, scheduled
from tests.topi.programs import given

CASES: list[tuple[str, tuple[int, ...], Any, str]] = [
    ("sum", (50, 100), 1, "float32"),
    ("sum", (600, 6), 1, "float16"),
    ("mean", (3, 1500), 1, "float16"),
    ("max", (300, 33), 1, "float32"),
    ("sum", (2, 3, 5, 8), (2, 3), "float32"),
    ("sum", (4, 5, 6), (0, 2), "int32"),
    ("min", (4, 5, 6), 1, "float64"),
    ("mean", (70, 33), 0, "float16"),
    ("sum", (9, 3), 0, "int8"),
    ("prod", (7,), None, "float32"),
    ("sum", (1, 1), None, "float32"),
    ("sum", (5, 1), 1, "float32"),
]


@pytest.mark.sampled(3)
@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "shape", "axis", "dtype"), CASES)
def test_values(target: str, name: str, shape: tuple[int, ...], axis: Any, dtype: str) -> None:
    x = given("x", *shape, dtype=dtype)
    exact = x[1].astype(np.float64) if "float" in dtype else x[1].astype(np.int64)
    wanted = np.asarray(getattr(np, name)(exact, axis=axis))
    out = getattr(topi, name)(x[0], axis)
    if "float" in dtype:
        runs(target, out, wanted, x)
    else:
        np.testing.assert_array_equal(run_on(target, out, wanted.shape, x), wanted.astype(dtype))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "axis"), [((6, 70), 1), ((7, 40), 0), ((3, 200), None)])
def test_places(target: str, shape: tuple[int, ...], axis: int | None) -> None:
    x = given("x", *shape)
    x[1].flat[[5, 11]] = 9.0
    for name in ("argmax", "argmin"):
        wanted = np.asarray(getattr(np, name)(x[1], axis))
        np.testing.assert_array_equal(run_on(target, getattr(topi, name)(x[0], axis), wanted.shape, x), wanted)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "axis"), [((2, 20000), 1), ((10007,), None), ((5000, 4), 0)])
def test_few_long_rows_are_cut_in_pieces(target: str, shape: tuple[int, ...], axis: int | None) -> None:
    x = given("x", *shape)
    out = topi.sum(x[0], axis)
    assert "sum.rf" in {stage.op.name for stage in scheduled(out).stages}
    np.testing.assert_allclose(
        run_on(target, out, np.sum(x[1], axis).shape, x), x[1].astype(np.float64).sum(axis), rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize("target", TARGETS)
def test_places_in_pieces(target: str) -> None:
    x = given("x", 9000)
    x[1][[4000, 8999]] = 9.0
    assert run_on(target, topi.argmax(x[0]), (), x) == 4000


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1])
def test_symbolic_sizes(target: str, axis: int) -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), name="x")
    array = np.random.default_rng(0).standard_normal((37, 301)).astype(np.float32)
    runs(target, topi.sum(x, axis), array.astype(np.float64).sum(axis), (x, array))


@pytest.mark.parametrize("target", TARGETS)
def test_what_precedes_and_follows(target: str) -> None:
    x, bias = given("x", 12, 50), given("bias", 12)
    squares = te.compute((12, 50), lambda i, j: x[0][i, j] * x[0][i, j], name="squares")
    total = topi.sum(squares, 1)
    out = te.compute((12,), lambda i: te.sqrt(total[i]) + bias[0][i], name="out")
    assert {stage.op.name for stage in scheduled(out).stages if stage.leaf_iter_vars} == {"squares.local", "sum", "out"}
    runs(target, out, np.sqrt((x[1].astype(np.float64) ** 2).sum(1)) + bias[1], x, bias)


@pytest.mark.parametrize("target", TARGETS)
def test_every_other_element(target: str) -> None:
    x, k = given("x", 9, 80), te.reduce_axis((0, 40), name="k")
    total = te.compute((9,), lambda i: te.sum(x[0][i, 2 * k] * x[0][i, k], axis=k), name="total", tag="reduction")
    runs(target, total, (x[1].astype(np.float64)[:, ::2] * x[1][:, :40]).sum(1), x)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pool", ["max", "avg", "global"])
def test_pooling(target: str, pool: str) -> None:
    x = given("x", 2, 3, 8, 8)
    windows = np.lib.stride_tricks.sliding_window_view(x[1].astype(np.float64), (2, 2), (2, 3))[:, :, ::2, ::2]
    if pool == "global":
        runs(target, topi.global_pool(x[0], "avg"), x[1].astype(np.float64).mean((2, 3), keepdims=True), x)
    elif pool == "max":
        runs(target, topi.max_pool2d(x[0], 2, 2), windows.max((4, 5)), x)
    else:
        runs(target, topi.avg_pool2d(x[0], 2, 2), windows.mean((4, 5)), x)


@needs_nvrtc
@pytest.mark.parametrize(("shape", "axis"), [((4096, 1024), 1), ((64, 65536), 1), ((4096, 512), 0)])
def test_code(shape: tuple[int, ...], axis: int) -> None:
    """Warps reduce by shuffles; no kernel keeps anything in local memory."""
    x = te.placeholder(shape, name="x")
    kernels = compiled(topi.sum(x, axis), x)
    assert all(kernel.registers <= 64 for _, kernel in kernels)
    assert all("__shfl_xor_sync" in source for source, _ in kernels) == (axis == 1)
    assert all("*(const float4 *)(x + " in source for source, _ in kernels) == (axis == 1)
