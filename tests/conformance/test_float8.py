"""Floats of 8 bits: every value, and what rounds to each, as ml_dtypes has it, on every target; arithmetic, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorlang
from tensorlang import dtypes, nd, te, topi
from tensorlang.errors import DefinitionError
from tensorlang.ir.machine import vector_dtype
from tensorlang.runtime.host_program import device_kernels
from tensorlang.target.c_source import CUDA, OPENCL, module_source
from tensorlang.target.cuda.sass import disassembler, sass
from tensorlang.testing.check import check_schedule
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.target.cuda.compiled import compiled, needs_nvrtc

Array = NDArray[Any]
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
TARGETS = ("llvm", "interpreter", "opencl", "cuda -arch=sm_80", "cuda -arch=sm_89")
DTYPE = pytest.mark.parametrize("dtype", FLOAT8)


def all_values(dtype: str) -> Array:
    return np.arange(256, dtype=np.uint8).view(dtypes.info(dtype).numpy)


def boundaries(dtype: str) -> Array:
    """Every value and every middle between neighbours, and the float32 beside each; what is far out; random bits."""
    values = np.sort(all_values(dtype).astype(np.float32))
    values = values[np.isfinite(values)]
    steps = np.float32(2) * values[-1] - values[-2]
    middles = (values[1:] + values[:-1]) / 2
    exact = np.concatenate([values, middles, [steps, -steps, (values[-1] + steps) / 2, -(values[-1] + steps) / 2]])
    near = [np.nextafter(exact, np.float32(side)) for side in (-np.inf, np.inf)]
    far = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, -1e-30, 1e-45, -0.0], np.float32)
    drawn = np.random.default_rng(8).integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
    found = np.concatenate([exact, *near, far, drawn]).astype(np.float32)
    return np.concatenate([found, np.zeros(-len(found) % 64, np.float32)])


def converted(target: str, cases: Sequence[tuple[Array, str]]) -> list[Array]:
    """Arrays cast to dtypes, by one program."""
    inputs = [te.placeholder(x.shape, x.dtype.name, name=f"A{n}") for n, (x, _) in enumerate(cases)]
    made = [
        te.compute(A.shape, lambda i, A=A, goal=goal: A[i].astype(goal), name=f"B{n}")
        for n, (A, (_, goal)) in enumerate(zip(inputs, cases, strict=True))
    ]
    s = te.create_schedule([B.op for B in made])
    for B in made:
        rest, lanes = s[B].split(B.op.axis[0], 16)
        if target == "llvm":
            s[B].vectorize(lanes)
        else:
            s[B].bind(rest, te.thread_axis("blockIdx.x"))
            s[B].bind(lanes, te.thread_axis("threadIdx.x"))
    values = [x.copy() for x, _ in cases]
    results = [np.zeros(x.shape, dtypes.info(goal).numpy) for x, goal in cases]
    if target.startswith("cuda"):
        if why := unavailable():
            pytest.skip(why)
        kernel = tensorlang.lower(s, [*inputs, *made], target=target).kernel
        named = {p.name: x for p, x in zip(kernel.params, [*values, *results], strict=True)}
        emulate_program(kernel, named, arch=target.partition("=")[2])
        return results
    if target == "opencl" and not nd.device("opencl").exist:
        pytest.skip("no OpenCL device")
    tensorlang.build(s, [*inputs, *made], target=target)(*values, *results)
    return results


def assert_same(got: Array, wanted: Array) -> None:
    """The same values, and the same zeros; one NaN is as good as another."""
    assert got.dtype == wanted.dtype
    a, b = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[~np.isnan(b)]), np.signbit(b[~np.isnan(b)]))


@pytest.mark.parametrize("target", TARGETS)
def test_float32_rounds_to_the_nearest_and_every_value_widens(target: str) -> None:
    cases = [(all_values(d), "float32") for d in FLOAT8] + [(boundaries(d), d) for d in FLOAT8]
    with np.errstate(all="ignore"):
        for (values, goal), got in zip(cases, converted(target, cases), strict=True):
            assert_same(got, values.astype(dtypes.info(goal).numpy))


@DTYPE
def test_other_numbers_go_through_float32(dtype: str) -> None:
    drawn, narrow = np.random.default_rng(3).normal(0, 60, 256), all_values(dtype)
    small = narrow[np.abs(narrow.astype(np.float32)) < 100][: 16 * 10]
    others = ("float16", "bfloat16", "float64", "int8", "int64", "uint8")
    with np.errstate(all="ignore"):
        to = [(drawn.astype(dtypes.info(d).numpy) if d != "uint8" else narrow.view(d), dtype) for d in others]
        cases = [*to, *((small, d) for d in others)]
        for (values, goal), got in zip(cases, converted("llvm", cases), strict=True):
            wide = values.astype(np.float32)
            wanted = np.maximum(wide, 0) if goal == "uint8" else wide  # which saturates
            assert_same(got, wanted.astype(dtypes.info(goal).numpy))


def test_promotion_and_names() -> None:
    a, b, h, w = (te.placeholder((), d, name="x")() for d in (*FLOAT8, "float16", "bfloat16"))
    assert (a + b).dtype == "float32" and (a + 1.5).dtype == "float8_e4m3fn" and (a < 2).dtype == "bool"
    assert (a * h).dtype == "float16" and (b * w).dtype == "bfloat16" and (b + a.astype("int32")).dtype == FLOAT8[1]
    assert dtypes.canonical("e4m3_float8") == dtypes.canonical(ml_dtypes.float8_e4m3fn) == "float8_e4m3fn"
    assert vector_dtype("float8_e4m3fnx16") == ("float8_e4m3fn", 16)
    assert dtypes.canonical("e5m2_float8") == dtypes.canonical(np.dtype(ml_dtypes.float8_e5m2)) == "float8_e5m2"


def test_one_of_them_has_no_infinity() -> None:
    assert te.max_value("float8_e4m3fn").value == 448 and te.min_value("float8_e5m2").value == -57344
    assert te.infinity("float8_e5m2").value == np.inf
    with pytest.raises(DefinitionError, match=r"float8_e4m3fn has no infinity; use te\.max_value"):
        te.infinity("float8_e4m3fn")
    data = te.placeholder((1, 3, 8, 8), "float8_e4m3fn", name="data")
    for made in (topi.argmin(data, 1), topi.max_pool2d(data, 3, 2, padding=1)):
        check_schedule(te.create_schedule(made.op), [data, made], targets=("interpreter",))


@pytest.mark.covering(1)
@DTYPE
@pytest.mark.parametrize("target", ["llvm", "interpreter", "opencl"])
def test_arithmetic_and_reductions(target: str, dtype: str) -> None:
    if target == "opencl" and not nd.device("opencl").exist:
        pytest.skip("no OpenCL device")
    A, B = (te.placeholder((6, 32), dtype, name=name) for name in "AB")
    k = te.reduce_axis((0, 32), "k")
    C = te.compute((6,), lambda i: te.max(A[i, k], axis=k), name="C")
    D = te.compute((6, 32), lambda i, j: te.max(-A[i, j] * B[i, j] + 0.5, B[i, j]), name="D")
    E = te.compute((6,), lambda i: te.sum(A[i, k].astype("float32") * B[i, k].astype("float32"), axis=k), name="E")
    F = te.compute((6, 32), lambda i, j: te.if_then_else(te.isfinite(A[i, j]), te.exp(A[i, j]), te.abs(B[i, j])), "F")
    s = te.create_schedule([C.op, D.op, E.op, F.op])
    for T in (C, D, E, F):
        if target == "llvm":
            s[T].vectorize(T.op.axis[-1] if T.ndim == 2 else s[T].split(T.op.axis[0], 3)[1])
        else:
            s[T].bind(T.op.axis[0], te.thread_axis("blockIdx.x"))
    rng = np.random.default_rng(2)
    given = {name: rng.normal(0, 2, (6, 32)).astype(dtypes.info(dtype).numpy) for name in "AB"}
    given["A"][1] = -abs(given["A"][1])
    given["A"][2, 5] = np.nan
    check_schedule(s, [A, B, C, D, E, F], targets=(target,), inputs=given)


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="no nvdisasm: pip install nvidia-cuda-nvdisasm")
@DTYPE
def test_cuda_has_instructions_from_sm_89(dtype: str) -> None:
    A = te.placeholder((64,), dtype, name="A")
    B = te.compute((64,), lambda i: A[i] * 3, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    for arch, count in (("sm_80", 0), ("sm_90a", 2)):
        text = tensorlang.build(s, [A, B], target=f"cuda -arch={arch}").source("cuda")
        code = sass(compiled(text, arch).cubin)
        assert sum(f".{dtype[7:9].upper()}" in line for line in code.splitlines()) == count, code


@pytest.mark.parametrize("dtype", [*FLOAT8, "bfloat16"])
def test_copies_are_of_bits(dtype: str) -> None:
    A = te.placeholder((8, 8), dtype, name="A")
    B = te.compute((8, 8), lambda i, j: A[j, i], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    for target in ("cuda", "opencl"):
        kernel = tensorlang.lower(s, [A, B], target=target).kernel
        text = module_source(device_kernels(kernel), CUDA if target == "cuda" else OPENCL).text
        assert "= A[" in text and "f32" not in text
