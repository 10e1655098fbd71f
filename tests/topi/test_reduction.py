"""Reductions along any axes: rows, columns, everything; where the extremes are; pieces for threads."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tests.topi.programs import Array, close, given, run

NAMES = ("sum", "prod", "max", "min", "mean")
Axes = int | tuple[int, ...] | None


def wanted(name: str, x: Array, axis: Axes, keepdims: bool = False) -> Array:
    """What NumPy makes of it, in float64."""
    return np.asarray(getattr(np, name)(x.astype(np.float64), axis=axis, keepdims=keepdims))


def made_by(name: str, x: Any, axis: Axes, keepdims: bool = False) -> Array:
    return run(getattr(topi, name)(x[0], axis=axis, keepdims=keepdims), x)


@pytest.mark.parametrize("name", NAMES)
def test_every_reduction_of_rows_and_columns(name: str) -> None:
    x = given("x", 20, 37)
    for axis in (0, 1, None):
        exact = wanted(name, x[1], axis)
        np.testing.assert_allclose(made_by(name, x, axis), exact, rtol=2e-5, atol=2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("keepdims", [False, True])
def test_any_axes(count: int, keepdims: bool) -> None:
    x = given("x", 3, 4, 5, 7, dtype="int32")
    for axes in combinations(range(4), count):
        np.testing.assert_array_equal(made_by("sum", x, axes, keepdims), wanted("sum", x[1], axes, keepdims))


@pytest.mark.parametrize(("shape", "axis"), [((4096, 64), 0), ((2, 100000), 1), ((300000,), None), ((700, 900), 0)])
def test_large_ones_are_cut_for_the_threads(shape: tuple[int, ...], axis: Axes) -> None:
    x = given("x", *shape, dtype="int32")
    np.testing.assert_array_equal(made_by("sum", x, axis), wanted("sum", x[1], axis))


def test_a_sum_of_everything_has_a_part_for_each_thread() -> None:
    s = topi.schedule(topi.sum(te.placeholder((300000,), name="x")), "llvm -num-cores=2")
    (parallel,) = [stage.name for stage in s.state.stages.values() if "parallel" in str(stage.annotations)]
    assert parallel == "sum.rf"


def test_few_results_are_summed_across_the_weights() -> None:
    """A window around a ring of four reads few data and many weights in panels; what is before it is made once."""
    x, w = te.placeholder((4, 96), name="x"), te.placeholder((2, 3, 96, 32), name="w")
    root = te.compute(x.shape, lambda *i: te.sqrt(x(*i)), name="root")
    r, c = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 96), "c")
    made = te.compute(
        (4, 64), lambda i, f: te.sum(root[(i + r) % 4, c] * w[f // 32, r, c, f % 32], axis=[r, c]), name="made"
    )
    steps = topi.schedule(made, "llvm -num-cores=1").trace.to_python()
    assert "vectorize('f" in steps and "rfactor" not in steps and "s['root'].compute_inline" not in steps


def test_sums_over_panels_are_as_wide_as_registers_take() -> None:
    x, panels = te.placeholder((128,), name="x"), te.placeholder((16, 128, 32), name="panels")
    k = te.reduce_axis((0, 128), "k")
    made = te.compute((512,), lambda j: te.sum(x[k] * panels[j // 32, k, j % 32], axis=k), name="made")
    s = topi.schedule(made, "llvm -mcpu=skylake-avx512 -num-cores=1")
    assert "split('j', factor=128" in s.trace.to_python()


@drawn(st.lists(st.integers(1, 70), min_size=1, max_size=3), st.integers(0, 2), st.sampled_from(NAMES[2:]))
@settings(max_examples=8)
def test_odd_shapes(shape: list[int], axis: int, name: str) -> None:
    x = given("x", *shape)
    close(made_by(name, x, axis % len(shape)), wanted(name, x[1], axis % len(shape)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int64"])
def test_dtypes(dtype: str) -> None:
    x = given("x", 6, 21, dtype=dtype)
    for axis in (0, 1):
        total, greatest = made_by("sum", x, axis), made_by("max", x, axis)
        assert total.dtype == greatest.dtype == x[1].dtype
        np.testing.assert_allclose(total.astype(np.float64), wanted("sum", x[1], axis), rtol=2e-2, atol=2e-2)
        np.testing.assert_array_equal(greatest, x[1].max(axis=axis))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(name: str) -> None:
    x = given("x", 20, 75, dtype="int32")  # many equal elements: the first of them counts
    for axis in (0, 1, None):
        made = run(getattr(topi, name)(x[0], axis), x)
        assert made.dtype == np.int32
        np.testing.assert_array_equal(made, getattr(np, name)(x[1], axis))


def test_places_of_nan_and_infinity() -> None:
    x, rows = te.placeholder((4, 40), name="x"), np.zeros((4, 40), np.float32)
    rows[0, 7] = rows[0, 30] = np.nan
    rows[1], rows[2, 20], rows[3, 39] = -np.inf, np.inf, -1
    np.testing.assert_array_equal(run(topi.argmax(x, 1), (x, rows)), np.argmax(rows, 1))
    np.testing.assert_array_equal(run(topi.argmin(x, 1), (x, rows)), np.argmin(rows, 1))
    assert np.isnan(run(topi.max(x, 1), (x, rows))[0])


def test_what_follows_is_computed_with_the_result() -> None:
    x, scale = given("x", 30, 50), given("scale", 30)
    out = topi.multiply(topi.sum(x[0], axis=1), scale[0])
    assert topi.schedule(out).state.stages["sum"].attach is not None
    np.testing.assert_allclose(run(out, x, scale), x[1].sum(axis=1) * scale[1], rtol=1e-4, atol=1e-4)


def test_sums_collapse_to_symbolic_shapes() -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, 4, m), name="A")
    B = topi.collapse_sum(A, (n, 1, m))
    values, made = np.arange(24, dtype=np.float32).reshape(2, 4, 3), np.empty((2, 1, 3), np.float32)
    tensorlang.build(te.create_schedule(B.op), [A, B], target="interpreter")(values, made)
    np.testing.assert_array_equal(made, values.sum(1, keepdims=True))


def test_refusals() -> None:
    x = te.placeholder((3, 8), "int32", "x")
    with pytest.raises(DefinitionError, match="no axis 2"):
        topi.sum(x, axis=2)
    with pytest.raises(DefinitionError, match="mean wants floats"):
        topi.mean(x)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((9, 8, 11, 3), (0, 3)), ((5, 6, 7, 3), (0, 1, 3)), ((4, 3, 20, 12), (0, 3)), ((6, 5, 8), (0, 2))],
)
def test_short_rows_that_lie_apart_are_no_vectors_of_terms(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    a = te.placeholder(shape, name="a")
    made = topi.sum(a, axis=axes)
    text = str(tensorlang.lower(topi.schedule(made, "llvm"), [a, made]))
    assert "//" not in text.replace("// 8", "") and "vectorized" in text
    x = np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)
    out = np.empty([int(str(extent)) for extent in made.shape], np.float32)
    tensorlang.build(topi.schedule(made), [a, made])(x, out)
    np.testing.assert_array_equal(out, x.sum(axes))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 4, 96, 3), 0), ((5, 31, 3), 0), ((3, 6, 5, 5, 4), 1), ((4, 3, 40, 8), 0)]
)
def test_columns_of_short_rows_are_summed_together(shape: tuple[int, ...], axis: int, cores: int) -> None:
    target = f"llvm -num-cores={cores}"
    a = te.placeholder(shape, name="a")
    made = topi.relu(topi.max(a, axis=axis))
    text = str(tensorlang.lower(topi.schedule(made, target), [a, made]))
    widths = [int(found) for found in re.findall(r"vectorized .* in range\((\d+)\)", text)]
    assert min(widths) >= 16
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    out = np.empty([int(str(extent)) for extent in made.shape], np.float32)
    tensorlang.build(topi.schedule(made, target), [a, made], target)(x, out)
    np.testing.assert_array_equal(out, np.maximum(x.max(axis), 0))
