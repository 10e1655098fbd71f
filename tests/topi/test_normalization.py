"""Layer norm and rms norm over any axes, batch norm with known statistics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from tensorlang import te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.expr import to_text
from tensorlang.target.detect import parse
from tensorlang.topi.normalization import batch_norm_reference, layer_norm_reference, rms_norm_reference
from tests.topi.programs import Array, close, given, run

Axes = int | tuple[int, ...]


def centred(x: Array, axes: Axes) -> Array:
    """Layer norm in float64."""
    wide = x.astype(np.float64)
    rest = wide - wide.mean(axis=axes, keepdims=True)
    made: Array = rest / np.sqrt((rest**2).mean(axis=axes, keepdims=True) + 1e-5)
    return made


def by_root(x: Array, axes: Axes) -> Array:
    """Rms norm in float64."""
    wide = x.astype(np.float64)
    made: Array = wide / np.sqrt((wide**2).mean(axis=axes, keepdims=True) + 1e-5)
    return made


def test_named_shape() -> None:
    x, gamma, beta = given("x", 512, 768), given("gamma", 768), given("beta", 768)
    made = run(topi.layer_norm(x[0], gamma[0], beta[0]), x, gamma, beta)
    close(made, layer_norm_reference(x[1], gamma[1], beta[1])[0])
    made = run(topi.rms_norm(x[0], gamma[0]), x, gamma)
    close(made, rms_norm_reference(x[1], gamma[1])[0])


SHAPES: list[tuple[tuple[int, ...], Axes]] = [
    ((33,), 0),
    ((4, 1), 1),
    ((40, 70), 0),
    ((2, 3, 5, 7), 1),
    ((2, 3, 5, 7), (2, 3)),
    ((2, 3, 5, 7), (1, 3)),
    ((2, 3, 20, 7), (1, 2, 3)),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_any_axes(shape: tuple[int, ...], axes: Axes) -> None:
    x = given("x", *shape)
    close(run(topi.layer_norm(x[0], axis=axes), x), centred(x[1], axes))
    close(run(topi.rms_norm(x[0], axis=axes), x), by_root(x[1], axes))


@drawn(st.integers(1, 50), st.integers(1, 150))
@settings(max_examples=5)
def test_odd_shapes(n: int, m: int) -> None:
    x = given("x", n, m)
    close(run(topi.layer_norm(x[0]), x), centred(x[1], -1))


SIDE_BY_SIDE: list[tuple[tuple[int, ...], Axes, str]] = [
    ((32, 100), 1, "float32"),
    ((10, 16), 1, "float32"),
    ((16, 75), 1, "bfloat16"),
    ((3, 8, 67), 2, "float64"),
    ((16, 5, 24), (1, 2), "float32"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("shape", "axes", "dtype"), SIDE_BY_SIDE)
@pytest.mark.parametrize("cores", [1, 2])
def test_rows_side_by_side(shape: tuple[int, ...], axes: Axes, dtype: str, cores: int) -> None:
    x, target = given("x", *shape, dtype=dtype), f"llvm -num-cores={cores}"
    close(run(topi.layer_norm(x[0], axis=axes), x, target=target), centred(x[1], axes))
    close(run(topi.rms_norm(x[0], axis=axes), x, target=target), by_root(x[1], axes))


def test_rows_are_made_side_by_side_while_they_fit_in_the_first_cache() -> None:
    def rows_together(rows: int, length: int, cores: int = 1) -> int:
        norm = topi.layer_norm(te.placeholder((rows, length), name="x"))
        target = replace(parse(f"llvm -mcpu=x86-64-v4 -num-cores={cores}"), caches=(48 << 10, 1 << 20, 32 << 20))
        *_, row, _ = topi.schedule(norm, target)["layer_norm"].leaf_iter_vars
        return int(to_text(row.extent)) if row.name.endswith("_i") else 1

    assert [rows_together(64, length) for length in (15, 16, 877, 878, 1536, 1537)] == [1, 4, 4, 2, 2, 1]
    assert [rows_together(rows, 100) for rows in (8, 16, 18, 17)] == [2, 4, 2, 1]
    assert [rows_together(rows, 100, cores=4) for rows in (32, 64)] == [2, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype: str) -> None:
    x = given("x", 9, 75, dtype=dtype)
    close(run(topi.layer_norm(x[0]), x), centred(x[1], -1))


def test_what_follows_is_computed_row_by_row() -> None:
    x, residual = given("x", 16, 50), given("residual", 16, 50)
    norm = topi.layer_norm(x[0])
    out = topi.add(norm, residual[0])
    s = topi.schedule(out)
    assert {name for name, stage in s.state.stages.items() if stage.attach is None} == {"add"}
    close(run(out, x, residual), centred(x[1], -1) + residual[1])


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 64, 14, 14)])
def test_batch_norm(shape: tuple[int, ...]) -> None:
    x, gamma, beta, mean = given("x", *shape), *(given(name, shape[1]) for name in ("gamma", "beta", "mean"))
    var = te.placeholder((shape[1],), name="var"), np.abs(given("var", shape[1])[1])
    out = topi.relu(topi.batch_norm(x[0], gamma[0], beta[0], mean[0], var[0]))
    wanted = batch_norm_reference(x[1], gamma[1], beta[1], mean[1], var[1])[0]
    close(run(out, x, gamma, beta, mean, var), np.maximum(wanted, 0))


def test_batch_norm_makes_its_factors_once_per_channel() -> None:
    x = te.placeholder((2, 5, 8), name="x")
    gamma, beta, mean, var = (te.placeholder((5,), name=name) for name in ("gamma", "beta", "mean", "var"))
    s = topi.schedule(topi.batch_norm(x, gamma, beta, mean, var))
    assert {"batch_norm_slope", "batch_norm_start", "batch_norm"} == set(s.state.stages)


def test_batch_norm_without_scale_and_center_over_the_last_axis() -> None:
    x, gamma, beta = given("x", 4, 6, 5), te.placeholder((5,), name="gamma"), te.placeholder((5,), name="beta")
    mean, var = given("mean", 5), (te.placeholder((5,), name="var"), np.full(5, 4.0, np.float32))
    out = topi.batch_norm(x[0], gamma, beta, mean[0], var[0], axis=-1, center=False, scale=False)
    close(run(out, x, mean, var), (x[1].astype(np.float64) - mean[1]) / np.sqrt(4 + 1e-5))


def test_refusals() -> None:
    x, short = te.placeholder((3, 8), name="x"), te.placeholder((7,), name="gamma")
    with pytest.raises(DefinitionError, match=r"wants the shape \(8\)"):
        topi.layer_norm(x, short)
    with pytest.raises(DefinitionError, match="name a dimension twice"):
        topi.rms_norm(x, axis=(1, -1))
    with pytest.raises(DefinitionError, match="got float64"):
        topi.layer_norm(x, te.placeholder((8,), "float64", "gamma"))
