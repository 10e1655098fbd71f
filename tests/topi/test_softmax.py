"""Softmax and log-softmax along any axis, with what precedes and follows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import tensorlang
from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.topi.softmax import log_softmax_reference, softmax_reference
from tests.topi.programs import Array, close, given, run


def exact(x: Array, axis: int) -> Array:
    """Softmax in float64."""
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
    made: Array = powers / powers.sum(axis=axis, keepdims=True)
    return made


@pytest.mark.parametrize(("shape", "axis"), [((512, 1000), -1), ((300, 4096), -1)])
def test_named_shapes(shape: tuple[int, ...], axis: int) -> None:
    """The second has rows of the named length, 4096, and fewer of them."""
    x = given("x", *shape)
    close(run(topi.softmax(x[0], axis), x), exact(x[1], axis))
    close(run(topi.log_softmax(x[0], axis), x), np.log(exact(x[1], axis)))


SHAPES = [((33,), 0), ((4, 1), 1), ((3, 10), -1), ((40, 70), 0), ((2, 3, 5, 7), 1), ((2, 3, 5, 7), 2), ((2, 30, 70), 1)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_any_axis(shape: tuple[int, ...], axis: int) -> None:
    x = given("x", *shape)
    close(run(topi.softmax(x[0], axis), x), exact(x[1], axis))


@drawn(st.lists(st.integers(1, 40), min_size=1, max_size=3), st.integers(0, 2))
@settings(max_examples=6)
def test_odd_shapes(shape: list[int], axis: int) -> None:
    x, along = given("x", *shape), axis % len(shape)
    close(run(topi.log_softmax(x[0], along), x), np.log(exact(x[1], along)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    x = given("x", 9, 75, dtype=dtype)
    made = run(topi.softmax(x[0]), x)
    assert made.dtype == x[1].dtype
    close(made, exact(x[1], -1))


def test_what_precedes_and_follows_is_computed_row_by_row() -> None:
    x, mask = given("x", 12, 50), given("mask", 12, 50)
    scaled = te.compute((12, 50), lambda i, j: x[0][i, j] * 0.5 + mask[0][i, j], name="scaled")
    weights = topi.softmax(scaled)
    out = te.compute((12, 50), lambda i, j: weights[i, j] * 2.0 - mask[0][i, j], name="out")
    s = topi.schedule(out)
    assert {name for name, stage in s.state.stages.items() if stage.attach is None} == {"out"}
    close(run(out, x, mask), exact(x[1] * 0.5 + mask[1], -1) * 2 - mask[1])


def test_large_numbers_and_no_numbers() -> None:
    x, _ = given("x", 4, 20)
    rows = np.zeros((4, 20), np.float32)
    rows[0], rows[1, 3], rows[2, 5], rows[3, :10] = 3e38, 1000.0, np.nan, -np.inf
    made = run(topi.softmax(x), (x, rows))
    np.testing.assert_allclose(made[0], 1 / 20, rtol=1e-6)
    assert made[1, 3] == 1.0
    assert np.isnan(made[2]).all()
    np.testing.assert_allclose(made[3], [0.0] * 10 + [0.1] * 10, rtol=1e-6)


def test_a_symbolic_number_of_rows() -> None:
    n = te.var("n")
    x = te.placeholder((n, 40), name="x")
    out = topi.softmax(x)
    kernel = tensorlang.build(topi.schedule(out), [x, out])
    rows = np.random.default_rng(0).standard_normal((11, 40)).astype(np.float32)
    made = np.empty_like(rows)
    kernel(rows, made)
    close(made, exact(rows, -1))


def test_references_agree() -> None:
    x = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32)
    close(softmax_reference(x)[0], exact(x, -1))
    close(log_softmax_reference(x)[0], np.log(exact(x, -1)))


def test_refusals() -> None:
    with pytest.raises(DefinitionError, match="no axis 2"):
        topi.softmax(te.placeholder((3, 4), name="x"), axis=2)
    with pytest.raises(DefinitionError, match="wants floats, got int32"):
        topi.log_softmax(te.placeholder((3, 4), "int32", "x"))


def with_small_caches(target: Target) -> Target:
    """A machine with caches that rows of the tests exceed."""
    return replace(target, caches=(1 << 10, 1 << 11, 1 << 12))


def test_rows_beyond_the_second_cache_are_computed_anew_and_not_kept() -> None:
    x = given("x", 6, 1000)
    out = topi.softmax(x[0])
    s = topi.schedule(out, with_small_caches(parse("llvm")))
    assert "softmax_exp" not in s.state.stages
    kernel = tensorlang.build(s, [x[0], out])
    made = np.empty_like(x[1])
    kernel(x[1], made)
    close(made, exact(x[1], -1))


@pytest.mark.parametrize(("cpu", "steps"), [("haswell", 7), ("skylake-avx512", 4)])
def test_large_arrays_are_fetched_a_row_ahead_and_written_past_the_caches(cpu: str, steps: int) -> None:
    x = te.placeholder((64, 200), name="x")
    target = replace(parse(f"llvm -mcpu={cpu}"), caches=(1 << 15, 1 << 19, 1 << 24))
    large, small = (str(topi.schedule(topi.softmax(x), each)) for each in (with_small_caches(target), target))
    assert f"s['softmax_exp'].prefetch('x', 'i1_o', {steps})" in large  # of four vectors each
    assert "'nontemporal'" in large
    assert "prefetch" not in small
    assert "nontemporal" not in small
