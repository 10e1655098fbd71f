"""Elementwise programs on a GPU: fused to one kernel, in vectors where elements lie side by side."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import te, topi
from tensorlang.te.operation import Tensor
from tests.device_targets import needs_opencl
from tests.topi.gpu.device_runs import TARGETS, compiled, needs_nvrtc, run_on, runs, scheduled
from tests.topi.programs import Array, Given, given

SHAPES = [((1,), "float32"), ((77,), "float32"), ((5003,), "float16"), ((3, 4, 40), "float16"), ((9, 30), "float64")]


def chain(x: Tensor, y: Tensor) -> Tensor:
    """relu(x * 2 + y) + y, of three stages."""
    shifted = te.compute(x.shape, lambda *i: x(*i) * te.const(2, x.dtype) + y(*i), name="shifted")
    made: Tensor = topi.add(topi.relu(shifted), y)
    return made


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "dtype"), SHAPES)
def test_chains(target: str, shape: tuple[int, ...], dtype: str) -> None:
    x, y = given("x", *shape, dtype=dtype), given("y", *shape, dtype=dtype)
    wide = y[1].astype(np.float64)
    out = chain(x[0], y[0])
    assert [stage.op.name for stage in scheduled(out).stages if stage.leaf_iter_vars] == [out.op.name]
    runs(target, out, np.maximum(x[1].astype(np.float64) * 2 + wide, 0).astype(dtype) + y[1], x, y)


@pytest.mark.parametrize("target", TARGETS)
def test_broadcasts(target: str) -> None:
    x, row, column = given("x", 13, 40), given("row", 40), given("column", 13, 1)
    out = topi.multiply(topi.add(x[0], row[0]), column[0])
    runs(target, out, (x[1].astype(np.float64) + row[1]) * column[1], x, row, column)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [0, 1, 1030])
def test_a_symbolic_size(target: str, size: int) -> None:
    n = te.var("n")
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    a, b = (np.random.default_rng(k).standard_normal(size).astype(np.float32) for k in range(2))
    runs(target, chain(x, y), np.maximum(a * 2 + b, 0) + b, (x, a), (y, b))


@pytest.mark.parametrize("target", TARGETS)
def test_two_symbolic_sizes(target: str) -> None:
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n, m), name="x"), te.placeholder((n, m), name="y")
    a, b = (np.random.default_rng(k).standard_normal((5, 300)).astype(np.float32) for k in range(2))
    runs(target, chain(x, y), np.maximum(a * 2 + b, 0) + b, (x, a), (y, b))


def joined(x: Given) -> tuple[Tensor, Array]:
    """Side by side with its relu."""
    return topi.concatenate([x[0], topi.relu(x[0])], 1), np.concatenate([x[1], np.maximum(x[1], 0)], 1)


TRANSFORMS: dict[str, Callable[[Given], tuple[Tensor, Array]]] = {
    "concatenate": joined,
    "pad": lambda x: (topi.pad(x[0], (1, 2), (3, 0)), np.pad(x[1], ((1, 3), (2, 0)))),
    "reshape": lambda x: (topi.reshape(x[0], (6, 20)), x[1].reshape(6, 20)),
    "squeeze": lambda x: (topi.squeeze(topi.expand_dims(x[0], 1)), x[1]),
    "split": lambda x: (topi.split(x[0], 2, 1)[1], x[1][:, 6:]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(target: str, name: str) -> None:
    x = given("x", 10, 12)
    out, wanted = TRANSFORMS[name](x)
    np.testing.assert_array_equal(run_on(target, out, wanted.shape, x), wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_by_index(target: str) -> None:
    table, rows = given("table", 9, 12), given("rows", 7, dtype="int32")
    np.testing.assert_array_equal(
        run_on(target, topi.embedding(table[0], rows[0]), (7, 12), table, rows), table[1][rows[1]]
    )


@pytest.mark.parametrize("target", TARGETS)
def test_batch_norm_is_one_kernel(target: str) -> None:
    x, (gamma, beta, mean, var) = given("x", 2, 5, 6, 6), (given(name, 5) for name in ("g", "b", "m", "v"))
    var = (var[0], np.abs(var[1]))
    out = topi.relu(topi.batch_norm(x[0], gamma[0], beta[0], mean[0], var[0]))
    assert [stage.op.name for stage in scheduled(out).stages if stage.leaf_iter_vars] == [out.op.name]
    g, b, m, v = (a[1].astype(np.float64)[:, None, None] for a in (gamma, beta, mean, var))
    runs(target, out, np.maximum((x[1] - m) / np.sqrt(v + 1e-5) * g + b, 0), x, gamma, beta, mean, var)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_without_an_operator(target: str) -> None:
    x, k = given("x", 20, 30), te.reduce_axis((0, 30), name="k")
    total = te.compute((20,), lambda i: te.sum(x[0][i, k], axis=k), name="total")
    runs(target, total, x[1].astype(np.float64).sum(1), x)


@needs_nvrtc
@pytest.mark.parametrize(("shape", "dtype", "word"), [((64, 96), "float16", "uint4"), ((5003,), "float32", "float4")])
def test_threads_have_16_bytes(shape: tuple[int, ...], dtype: str, word: str) -> None:
    x, y = te.placeholder(shape, dtype, "x"), te.placeholder(shape, dtype, "y")
    for source, kernel in compiled(chain(x, y), x, y):
        assert len(re.findall(rf"= \*\(const {word} \*\)\((?:x|y) \+", source)) == 2
        assert kernel.registers <= 40


@needs_opencl
def test_threads_without_vectors_have_several_elements() -> None:
    x, y = given("x", 700, 301, dtype="float16"), given("y", 700, 700, dtype="float16")
    out = topi.concatenate([x[0], y[0]], 1)
    assert "unroll('i0_i1_fused_o_i')" in str(scheduled(out))
    assert "unroll" in str(scheduled(out))
    np.testing.assert_array_equal(run_on("opencl", out, (700, 1001), x, y), np.concatenate([x[1], y[1]], 1))
