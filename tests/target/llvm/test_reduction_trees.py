"""The pragma `reduce_tree`: reductions along vectors, of every operation, dtype and extent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensorlang as tl
from tensorlang import dtypes, te
from tensorlang.errors import BadArgument
from tensorlang.target.detect import runs_here

Array = np.ndarray[Any, Any]
REDUCERS: dict[str, tuple[Callable[..., Any], Any]] = {
    "sum": (te.sum, np.sum), "prod": (te.prod, np.prod), "max": (te.max, np.max), "min": (te.min, np.min),
}  # fmt: skip
AVX512, AVX2 = "llvm -mcpu=x86-64-v4", "llvm -mcpu=haswell"
NEON = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def _rows(reducer: str, dtype: str, extent: Any, target: str = "llvm", tree: bool = True) -> Any:
    a = te.placeholder((3, extent), dtype, name="A")
    k = te.reduce_axis((0, extent), "k")
    c = te.compute((3,), lambda i: REDUCERS[reducer][0](a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    if tree:
        s[c].pragma(k, "reduce_tree")
    return tl.build(s, [a, c], target=target)


def _check(run: Any, reducer: str, dtype: str, extent: int) -> None:
    if not runs_here(run.target):
        pytest.skip(f"this machine cannot run {run.target}")
    random = np.random.default_rng(extent)
    numpy_type = dtypes.info(dtype).numpy
    low, high = (1, 3) if reducer == "prod" else (0 if dtype.startswith("u") else -4, 9)
    values = random.integers(low, high, (3, extent)).astype(numpy_type)
    if reducer == "prod":
        values[:, 8:] = 1
    out = np.zeros(3, numpy_type)
    run(values, out)
    expected = REDUCERS[reducer][1](values, axis=1, **({"dtype": numpy_type} if reducer in ("sum", "prod") else {}))
    np.testing.assert_array_equal(out, expected, err_msg=f"{reducer} of {extent} {dtype}")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("target", ["llvm", AVX2])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int32", "int64"])
@pytest.mark.parametrize("reducer", REDUCERS)
def test_any_extent(reducer: str, dtype: str, target: str) -> None:
    run = _rows(reducer, dtype, te.size_var("n"), target)
    for extent in (1, 2, 7, 8, 15, 16, 17, 40, 63, 64, 65, 129, 200):
        _check(run, reducer, dtype, extent)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("extent", [1, 2, 5, 12, 16, 23, 64, 100, 300])
@pytest.mark.parametrize("target", ["llvm", AVX2])
def test_known_extents(extent: int, target: str) -> None:
    for reducer in REDUCERS:
        _check(_rows(reducer, "float32", extent, target), reducer, "float32", extent)


def test_nan_comes_through_a_maximum() -> None:
    run = _rows("max", "float32", 37)
    for place in (0, 15, 31, 36):
        values, out = np.full((3, 37), -5, "f4"), np.zeros(3, "f4")
        values[1, place] = np.nan
        run(values, out)
        np.testing.assert_array_equal(out, [-5, np.nan, -5])


@pytest.mark.parametrize(("target", "vector", "scalar"), [(AVX512, "%zmm", "vaddss"), (AVX2, "%ymm", "vaddss")])
def test_vectors_take_the_place_of_a_chain(target: str, vector: str, scalar: str) -> None:
    tree = _rows("sum", "float32", 64, target).source("asm")
    chain = _rows("sum", "float32", 64, target, tree=False).source("asm")
    assert vector in tree and vector not in chain
    assert tree.count(scalar) <= 6 < 40 < chain.count(scalar)  # the last step of each row, and what was there


def test_arm_adds_in_vectors() -> None:
    assert ".4s" in _rows("sum", "float32", 64, NEON).source("asm")


def test_a_term_that_is_computed_on_the_way() -> None:
    a, b = te.placeholder((5, 77), name="A"), te.placeholder((77,), name="B")
    k = te.reduce_axis((0, 77), "k")
    c = te.compute((5,), lambda i: te.sum(te.abs(a[i, k]) * b[k] + 1.0, axis=k), name="C")
    s = te.create_schedule(c.op)
    s[c].pragma(k, "reduce_tree")
    values, weights, out = np.ones((5, 77), "f4") * -2, np.arange(77, dtype="f4"), np.zeros(5, "f4")
    tl.build(s, [a, b, c])(values, weights, out)
    np.testing.assert_array_equal(out, np.full(5, 2 * weights.sum() + 77))


@pytest.mark.parametrize("extent", [7, 100, te.size_var("n")])
def test_several_results_side_by_side(extent: Any) -> None:
    a, b = te.placeholder((6, extent), name="A"), te.placeholder((extent,), name="B")
    k = te.reduce_axis((0, extent), "k")
    c = te.compute((6,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split("i", factor=3)
    s[c].reorder(outer, k, inner)
    s[c].unroll(inner)
    s[c].pragma(k, "reduce_tree")
    run, n = tl.build(s, [a, b, c]), extent if isinstance(extent, int) else 41
    assert " x float> " in run.source("ll")
    values, weights, out = np.arange(6 * n, dtype="f4").reshape(6, n) % 9, np.arange(n, dtype="f4"), np.zeros(6, "f4")
    run(values, weights, out)
    np.testing.assert_array_equal(out, values @ weights)


def test_partial_results_of_rfactor() -> None:
    a = te.placeholder((4, 96), name="A")
    k = te.reduce_axis((0, 96), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(k, factor=16)
    parts = s.rfactor(c, inner)
    s[parts].compute_at(s[c], s[c].op.axis[0])
    s[parts].vectorize(s[parts].op.axis[0])
    s[c].pragma(s[c].op.reduce_axis[0], "reduce_tree")
    values, out = np.arange(4 * 96, dtype="f4").reshape(4, 96), np.zeros(4, "f4")
    tl.build(s, [a, c])(values, out)
    np.testing.assert_array_equal(out, values.sum(1))


@pytest.mark.parametrize("target", ["llvm", AVX2, AVX512])
def test_a_tile_that_is_cut(target: str) -> None:
    a = te.placeholder((3, 100), name="A")
    k = te.reduce_axis((0, 100), "k")
    c = te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(k, factor=16)
    s[c].pragma(inner, "reduce_tree")
    run = tl.build(s, [a, c], target=target)
    assert "masked.load" in run.source("ll") or target == "llvm"
    _check(run, "max", "float32", 100)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", ["llvm", AVX2, AVX512])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "float16"])
def test_rows_side_by_side(dtype: str, target: str) -> None:
    """Rows that fill vectors become lanes of a tree where they are whole vectors long; others are left alone."""
    for rows, extent, reducer in ((64, 64, "sum"), (69, 128, "max"), (5, 64, "sum"), (69, 20, "min")):
        a = te.placeholder((rows, extent), dtype, name="A")
        k = te.reduce_axis((0, extent), "k")
        c = te.compute((rows,), lambda i, a=a, k=k, r=reducer: REDUCERS[r][0](a[i, k], axis=k), name="C")
        s = te.create_schedule(c.op)
        s[c].pragma(k, "reduce_tree")
        s[c].vectorize(s[c].op.axis[0])
        numpy_type = dtypes.info(dtype).numpy
        values = np.random.default_rng(rows).integers(-1, 2, (rows, extent)).astype(numpy_type)
        out = np.zeros(rows, numpy_type)
        run = tl.build(s, [a, c], target=target)
        if not runs_here(run.target):
            pytest.skip(f"this machine cannot run {target}")
        run(values, out)
        told = {"dtype": numpy_type} if reducer == "sum" else {}
        np.testing.assert_array_equal(out, REDUCERS[reducer][1](values, axis=1, **told))


@pytest.mark.parametrize(("target", "register", "chunk"), [(AVX512, "zmm", "vshuff64x2"), (AVX2, "ymm", "vperm2f128")])
def test_a_tree_of_rows_moves_elements_within_chunks(target: str, register: str, chunk: str) -> None:
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16,), name="B")
    k = te.reduce_axis((0, 16), "k")
    c = te.compute((16,), lambda i: te.sum(a[i, k] * b[k], axis=k), name="C")
    s = te.create_schedule(c.op)
    s[c].pragma(k, "reduce_tree")
    s[c].vectorize(s[c].op.axis[0])
    run = tl.build(s, [a, b, c], target=target)
    lines = [line for line in run.source("asm").splitlines() if register in line]
    assert any(chunk in line for line in lines) and not any("vpermt2ps" in line for line in lines)
    if runs_here(run.target):
        values, out = np.arange(256, dtype="f4").reshape(16, 16), np.zeros(16, "f4")
        run(values, np.arange(16, dtype="f4"), out)
        np.testing.assert_array_equal(out, values @ np.arange(16, dtype="f4"))


def test_refusals() -> None:
    a = te.placeholder((4, 96), name="A")
    k = te.reduce_axis((0, 96), "k")
    c = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")
    with pytest.raises(BadArgument, match=r"reduce_tree needs a reduce axis, and i of C is spatial"):
        te.create_schedule(c.op)[c].pragma("i", "reduce_tree")
    with pytest.raises(BadArgument, match=r"the schedule is strict"):
        te.create_schedule(c.op, strict=True)[c].pragma("k", "reduce_tree")
