"""Transposed reads on a GPU: tiles in shared memory, padded against conflicts of its banks."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang import te, topi
from tests.topi.gpu.device_runs import TARGETS, compiled, needs_nvrtc, run_on, scheduled
from tests.topi.programs import given

CASES = [
    ((40, 70), (1, 0), "float32"),
    ((33, 7), (1, 0), "float16"),
    ((64, 98), (1, 0), "float16"),
    ((100, 36), (1, 0), "int8"),
    ((2, 5, 35, 40), (0, 3, 1, 2), "float32"),
    ((6, 9, 10), (2, 1, 0), "int8"),
    ((3, 50), (1, 0), "float32"),
    ((4, 6, 8), (1, 0, 2), "float32"),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "axes", "dtype"), CASES)
def test_orders(target: str, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> None:
    x = given("x", *shape, dtype=dtype)
    wanted = x[1].transpose(axes)
    np.testing.assert_array_equal(run_on(target, topi.transpose(x[0], axes), wanted.shape, x), wanted)


@pytest.mark.parametrize("target", TARGETS)
def test_what_precedes_and_follows_is_computed_with_it(target: str) -> None:
    x, y = given("x", 40, 33), given("y", 33, 40)
    turned = topi.transpose(topi.relu(x[0]))
    out = te.compute((33, 40), lambda i, j: turned[i, j] * 2.0 - y[0][i, j], name="out")
    s = scheduled(out)
    assert {stage.op.name for stage in s.stages if stage.leaf_iter_vars} == {"x.shared", "out"}
    np.testing.assert_array_equal(run_on(target, out, (33, 40), x, y), np.maximum(x[1], 0).T * np.float32(2) - y[1])


@pytest.mark.parametrize("target", TARGETS)
def test_stages_of_ones_own(target: str) -> None:
    """An access across rows is found in any stage; one at several elements is left as it is."""
    x, y = given("x", 40, 35), given("y", 35, 40)
    across = te.compute((35, 40), lambda i, j: x[0][j, i] * x[0][j, i] + y[0][i, j], name="across")
    assert "x.shared" in {stage.op.name for stage in scheduled(across).stages}
    np.testing.assert_allclose(run_on(target, across, (35, 40), x, y), x[1].T ** 2 + y[1], rtol=1e-5, atol=1e-6)
    z = given("z", 40, 40)
    both = te.compute((40, 40), lambda i, j: z[0][j, i] + z[0][i, j], name="both")
    assert "z.shared" not in {stage.op.name for stage in scheduled(both).stages}
    np.testing.assert_array_equal(run_on(target, both, (40, 40), z), z[1] + z[1].T)


def test_tiles_fit_in_shared_memory() -> None:
    arrays = [te.placeholder((40, 33), "float64", f"x{k}") for k in range(3)]
    total = te.compute((33, 40), lambda i, j: arrays[0][j, i] + arrays[1][j, i] * arrays[2][j, i], name="total")
    s = topi.schedule(total, "cuda -arch=sm_80 -max_shared_memory_per_block=20000", tuned=False)
    assert sum(stage.op.name.endswith(".shared") for stage in s.stages) == 2


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_sizes(target: str) -> None:
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((2, n, m), name="x")
    array = np.arange(2 * 37 * 5, dtype=np.float32).reshape(2, 37, 5)
    made = run_on(target, topi.transpose(x, (0, 2, 1)), (2, 5, 37), (x, array))
    np.testing.assert_array_equal(made, array.transpose(0, 2, 1))


@needs_nvrtc
@pytest.mark.parametrize(("dtype", "shared"), [("bfloat16", 64 * 66 * 2), ("uint8", 128 * 132)])
def test_narrow_elements_are_moved_in_words(dtype: str, shared: int) -> None:
    x = te.placeholder((256, 512), dtype, "x")
    for source, kernel in compiled(topi.transpose(x), x):
        assert kernel.shared == shared
        assert "= *(const unsigned int *)(x + " in source
        assert "*(unsigned int *)(transpose + " in source


@needs_nvrtc
def test_tiles_are_padded_and_loads_side_by_side() -> None:
    x = te.placeholder((256, 512), name="x")
    for source, kernel in compiled(topi.transpose(x), x):
        assert kernel.shared == 32 * 33 * 4
        assert "x_shared[33 * thread_x" in source
        assert source.count("__syncthreads") == 1
        assert kernel.registers <= 32
