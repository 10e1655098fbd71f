"""te.fma is rounded once, to its own dtype, on every target: beside ties, subnormals, cancellation, signs of zero."""

from __future__ import annotations

from fractions import Fraction
from math import isfinite
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tensorlang
from tensorlang import dtypes, nd, te
from tensorlang.ir.intrinsics import TABLE
from tensorlang.testing.cuda_emulation import emulate_program, unavailable

Array = NDArray[Any]
FLOATS = [d.name for d in dtypes.TABLE.values() if d.is_float]
SIZE, LANES = 1024, 16


def operands(dtype: str) -> tuple[Array, Array, Array]:
    """Any bits; addends that cancel the product, or that are tiny beside a product in the middle of two floats."""
    d, rng = dtypes.info(dtype), np.random.default_rng(9)
    words = rng.integers(0, 2**d.bits - 1, (3, SIZE), dtype=d.bits_dtype, endpoint=True)
    a, b, c = (x.copy() for x in words.view(d.numpy))
    near = rng.normal(0, 1, (2, SIZE)).astype(d.numpy)
    a[::2], b[::2] = near[0, ::2], near[1, ::2]
    one, unit = d.numpy.type(1), ml_dtypes.finfo(d.numpy).eps
    with np.errstate(all="ignore"):
        c[::4] = (-a[::4].astype(np.float64) * b[::4].astype(np.float64)).astype(d.numpy)
        c[1::8] = (a[1::8].astype(np.float64) * b[1::8].astype(np.float64) * 1e-6).astype(d.numpy)
    tiny = ml_dtypes.finfo(d.numpy).smallest_subnormal
    a[2:202:8], b[2:202:8] = one + unit, d.numpy.type(1.5)  # a tie, which the addend breaks or leaves
    c[2:202:8] = np.resize(np.array([tiny, -tiny, 0, unit * tiny], d.numpy), 25)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan], d.numpy)
    threes = np.stack(np.meshgrid(special, special, special)).reshape(3, -1)
    for x, some in zip((a, b, c), threes, strict=True):
        x[-some.size :] = some
    return a, b, c


def is_nearest(got: Any, exact: Fraction, dtype: str) -> bool:
    """Whether no other float of the dtype is nearer, nor as near and even."""
    d = dtypes.info(dtype)
    top = ml_dtypes.finfo(d.numpy).max
    if not isfinite(got):  # at half a unit beyond the largest number, ties go to it where its code is even
        below = Fraction(float(top)) - Fraction(float(np.nextafter(top, d.numpy.type(0))))
        limit = Fraction(float(top)) + below / 2
        return abs(exact) > limit or (abs(exact) == limit and dtype != "float8_e4m3fn")
    value, odd = Fraction(float(got)), bool(np.asarray(got).view(d.bits_dtype) & 1)
    beside = [np.nextafter(got, side) for side in (top, -top)]
    others = [abs(Fraction(float(x)) - exact) for x in beside if float(x) != float(got)]
    return all(abs(value - exact) < other or (abs(value - exact) == other and not odd) for other in others)


def check(dtype: str, got: Array) -> None:
    a, b, c = operands(dtype)
    for x, y, z, made in zip(a, b, c, got, strict=True):
        p, q, r = float(x), float(y), float(z)
        if all(map(isfinite, (p, q, r))) and p and q:
            exact = Fraction(p) * Fraction(q) + Fraction(r)
            assert is_nearest(made, exact, dtype), (dtype, x, y, z, made)
            assert exact or not np.signbit(made)
        else:
            with np.errstate(all="ignore"):
                plain = np.array(p * q + r).astype(made.dtype)
            assert np.isnan(plain) == np.isnan(made) and (np.isnan(plain) or plain.tobytes() == made.tobytes())


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_reference(dtype: str) -> None:
    with np.errstate(all="ignore"):
        got = TABLE["fma"].numpy(*operands(dtype))
        check(dtype, got)
        one_by_one = [TABLE["fma"].numpy(*three)[()] for three in zip(*operands(dtype), strict=True)]
        check(dtype, np.array(one_by_one, got.dtype))


@pytest.mark.parametrize("target", ["llvm", "llvm vectors", "interpreter", "opencl", "cuda"])
def test_every_target(target: str) -> None:
    inputs = [[te.placeholder((SIZE,), dtype, name=f"{x}{n}") for x in "ABC"] for n, dtype in enumerate(FLOATS)]
    made = [te.compute((SIZE,), lambda i, x=x: te.fma(*(X[i] for X in x)), name=f"D{n}") for n, x in enumerate(inputs)]
    s = te.create_schedule([D.op for D in made])
    for D in made:
        rest, lanes = s[D].split(D.op.axis[0], LANES)
        if target == "llvm vectors":
            s[D].vectorize(lanes)
        elif target in ("opencl", "cuda"):
            s[D].bind(rest, te.thread_axis("blockIdx.x"))
            s[D].bind(lanes, te.thread_axis("threadIdx.x"))
    args = [X for several in inputs for X in several] + made
    values = [x for dtype in FLOATS for x in operands(dtype)]
    results = [np.zeros(SIZE, dtypes.info(dtype).numpy) for dtype in FLOATS]
    if target == "cuda":
        if why := unavailable():
            pytest.skip(why)
        kernel = tensorlang.lower(s, args, target="cuda -arch=sm_80").kernel
        arrays = {p.name: x for p, x in zip(kernel.params, [*values, *results], strict=True)}
        emulate_program(kernel, arrays, arch="sm_80")
    elif target == "opencl" and not nd.device("opencl").exist:
        pytest.skip("no OpenCL device")
    else:
        tensorlang.build(s, args, target=target.split()[0])(*values, *results)
    for dtype, got in zip(FLOATS, results, strict=True):
        check(dtype, got)
