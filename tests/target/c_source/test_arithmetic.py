"""Every operation on every dtype, on edge values: what the interpreter gives, in OpenCL; CUDA compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir import intrinsics
from tensorlang.ir.construct import array, load, store
from tensorlang.ir.expr import Binary, Const, Expr, Unary, cast, select
from tensorlang.ir.stmt import DeviceKernel
from tensorlang.target.c_source import CUDA, OPENCL, device_source
from tests.cuda_kernels import chosen
from tests.target.c_source.device_programs import TX, Array, device_kernel, interpreted, same_values
from tests.target.cuda.compiled import check_compiles

Run = Callable[..., int]
INTEGERS = [d.name for d in dtypes.TABLE.values() if d.is_integer]
FLOATS = [d.name for d in dtypes.TABLE.values() if d.is_float]
ARITHMETIC = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
TESTS = ("eq", "ne", "lt", "le", "gt", "ge")


def edge_values(dtype: str) -> list[Any]:
    d = dtypes.info(dtype)
    if d.kind == "bool":
        return [False, True]
    if d.is_float:
        tiny, large = float(ml_dtypes.finfo(d.numpy).tiny), float(ml_dtypes.finfo(d.numpy).max)
        plain = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.1, -7.3, 5.0, 100.0, tiny, large, -large]
        return [*plain, float("inf"), float("-inf"), float("nan")]
    low, high = (int(v) for v in dtypes.limits(dtype))
    near = [0, 1, 2, 3, 7, d.bits - 1, d.bits, d.bits + 1, high, high - 1, low, low + 1, -1, -2, -3, -7]
    return [v for v in dict.fromkeys(near) if low <= v <= high]


def pairs(dtype: str) -> dict[str, Array]:
    values = np.array(edge_values(dtype), dtypes.info(dtype).numpy)
    a, b = np.meshgrid(values, values, indexing="ij")
    return {"a": a.ravel(), "b": b.ravel()}


def applied(inputs: dict[str, Array], results: Callable[..., Sequence[Expr]]) -> tuple[DeviceKernel, dict[str, Array]]:
    """A kernel whose thread `t` computes results from element `t` of each input, and its arrays."""
    size = len(next(iter(inputs.values())))
    buffers = [array(name, (size,), dtypes.canonical(a.dtype)) for name, a in inputs.items()]
    made = results(*(load(b, TX) for b in buffers))
    outs = [array(f"out{n}", (size,), e.dtype) for n, e in enumerate(made)]
    stores = [store(out, TX, e) for out, e in zip(outs, made, strict=True)]
    zeros = {out.name: np.zeros(size, dtypes.info(out.dtype).numpy) for out in outs}
    return device_kernel((*buffers, *outs), stores, (), (size,)), {**inputs, **zeros}


def check(run: Run, inputs: dict[str, Array], results: Callable[..., Sequence[Expr]]) -> None:
    kernel, arrays = applied(inputs, results)
    expected = {name: values.copy() for name, values in arrays.items()}
    interpreted(kernel, expected)
    run(kernel, arrays)
    made = results(*(load(array(n, (1,), dtypes.canonical(a.dtype)), 0) for n, a in inputs.items()))
    for n, expr in enumerate(made):
        same_values(arrays[f"out{n}"], expected[f"out{n}"], str(expr))


def integer_results(a: Expr, b: Expr) -> list[Expr]:
    d = a.dtype
    made: list[Expr] = [Binary(op, a, b, d) for op in (*ARITHMETIC, "bitand", "bitor", "bitxor", "shl", "shr")]
    made += [Binary(op, a, b, "bool") for op in TESTS]
    made += [Unary("neg", a, d), Unary("invert", a, d), intrinsics.call("abs", a)]
    made += [intrinsics.call("popcount", a), intrinsics.call("clz", a)]
    three, eight = Const(3, d), Const(8, d)
    made += [Binary(op, a, by, d) for op in ("floordiv", "floormod", "truncdiv", "truncmod") for by in (three, eight)]
    made += [Binary(op, a, three, d) for op in ("shl", "shr")]
    product = Binary("mul", Binary("add", a, three, d), Binary("sub", b, eight, d), d)
    made += [Binary("floordiv", product, eight, d), Binary("sub", Unary("neg", product, d), Unary("neg", b, d), d)]
    return [*made, select(Binary("lt", product, a, "bool"), Unary("invert", product, d), b)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(run: Run, dtype: str) -> None:
    check(run, pairs(dtype), integer_results)


def float_results(a: Expr, b: Expr) -> list[Expr]:
    d = a.dtype
    made: list[Expr] = [Binary(op, a, b, d) for op in ("div", *ARITHMETIC)]
    made += [Binary(op, a, b, "bool") for op in TESTS]
    made += [Unary("neg", a, d), Unary("neg", Unary("neg", a, d), d)]
    names = ("abs", "floor", "ceil", "trunc", "round", "sqrt", "isnan", "isinf", "isfinite")
    return [*made, *(intrinsics.call(name, a) for name in names), intrinsics.call("copysign", a, b)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats(run: Run, dtype: str) -> None:
    check(run, pairs(dtype), float_results)


def test_bools(run: Run) -> None:
    ops = ("and", "or", "min", "max", "eq", "ne")
    check(run, pairs("bool"), lambda a, b: [*(Binary(op, a, b, "bool") for op in ops), ~a, select(a, b, a)])


def cast_values(source: str) -> Array:
    """Edge values, and values that test rounding."""
    d, values = dtypes.info(source), edge_values(source)
    if d.bits > 16 and d.kind != "bool":
        values += [2049, 2051, 16777217, 65519, 33825, 1000001]
    if source == "float64":
        values += [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-12, 65519.999999999, 2.0**-25 * (1 + 2.0**-40), 1e300]
    return np.array(values, d.numpy)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", list(dtypes.TABLE))
def test_casts(run: Run, source: str) -> None:
    values = cast_values(source)
    check(run, {"a": values}, lambda a: [cast(a, goal) for goal in dtypes.TABLE])


@pytest.mark.parametrize("source", FLOATS)
def test_floats_become_the_nearest_integers(run: Run, source: str) -> None:
    large = [2147483520.0, 2147483648.0, -2147483648.0, -2147484000.0, 4294967040.0, 1e19, -1e19, 1e30, -1e30, 300.5]
    given = [*edge_values(source), *(large if dtypes.info(source).bits > 16 else [])]
    values = np.array(given, dtypes.info(source).numpy)
    kernel, arrays = applied({"a": values}, lambda a: [cast(a, goal) for goal in INTEGERS])
    run(kernel, arrays)

    for n, goal in enumerate(INTEGERS):
        low, high = (int(limit) for limit in dtypes.limits(goal))
        for x, made in zip(values.astype(float).tolist(), arrays[f"out{n}"].tolist(), strict=True):
            wanted = 0 if np.isnan(x) else low if x <= low else high if x >= high else int(x)
            assert made == wanted, (goal, x)


def normal_power(x: Expr) -> Expr:
    return select(Binary("lt", x, Const(-126.0, x.dtype), "bool"), Const(0.0, x.dtype), intrinsics.call("exp2", x))


def test_normal_powers_of_2_are_one_function(run: Run) -> None:
    values = np.array([-np.inf, -149.0, -126.5, -126.0, -30.25, -0.0, 0.5, 127.0, 130.0, np.nan], np.float32)
    kernel, arrays = applied({"a": values}, lambda a: [normal_power(a)])
    run(kernel, arrays)
    with np.errstate(over="ignore"):
        wanted = np.where(values < -126, 0, np.exp2(values))
    np.testing.assert_allclose(arrays["out0"], wanted, rtol=1e-6, atol=0)
    for dialect in (CUDA, OPENCL):
        lines = device_source(kernel, dialect).text.splitlines()
        (used,) = (line for line in lines if "normal_exp2_float32(" in line and "float a)" not in line)
        assert "?" not in used


FUNCTIONS = [r for r in intrinsics.TABLE.values() if r.family == "float"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions(run: Run, dtype: str) -> None:
    rng = np.random.default_rng(0)
    numpy_dtype = dtypes.info(dtype).numpy
    a, b, c = (rng.uniform(0.05, 0.95, 64).astype(numpy_dtype) for _ in range(3))
    inputs = {"a": a, "b": b, "c": c}

    def results(*given: Expr) -> list[Expr]:
        return [
            intrinsics.call(r.name, *((given[0] + 1) if r.name == "acosh" else g for g in given[: r.arity]))
            for r in FUNCTIONS
        ]

    kernel, arrays = applied(inputs, results)
    expected = {name: values.copy() for name, values in arrays.items()}
    interpreted(kernel, expected)
    run(kernel, arrays)
    d = dtypes.info(dtype)
    ulps = float(ml_dtypes.finfo(d.numpy).eps) * (1 if d.is_narrow_float else 16)
    for n, row in enumerate(FUNCTIONS):
        made, wanted = (values[f"out{n}"].astype(np.float64) for values in (arrays, expected))
        np.testing.assert_allclose(made, wanted, rtol=ulps, atol=ulps / 8, err_msg=row.name)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint16", "uint64"])
def test_cuda_integers_compile(dtype: str) -> None:
    kernel, _ = applied(pairs(dtype), integer_results)
    check_cuda(device_source(kernel, CUDA).text)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", FLOATS)
def test_cuda_floats_compile(dtype: str) -> None:
    def results(*given: Expr) -> list[Expr]:
        made = [intrinsics.call(row.name, *given[: row.arity]) for row in FUNCTIONS]
        return [*float_results(*given[:2]), *made, *(cast(given[0], goal) for goal in dtypes.TABLE)]

    a = pairs(dtype)
    kernel, _ = applied({**a, "c": a["a"]}, results)
    check_cuda(device_source(kernel, CUDA).text)


def check_cuda(text: str) -> None:
    """NVRTC takes a text, for the architectures that a run compiles it for."""
    check_compiles(text, chosen(text, ()))
