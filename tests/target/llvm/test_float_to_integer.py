"""Floats that do not fit become the nearest integer, and NaN zero, in vectors as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.ir.expr import Expr
from tensorlang.te.operation import Tensor

SMALL = (0.0, -0.0, 0.5, -0.9, 1.5, 7.25, 127.0, 128.0, -129.0, 255.5, 300.0, 32768.0, -40000.0)
LARGE = (2147483520.0, 2147483648.0, -2147483648.0, -2147484000.0, 4294967040.0, 1e19, -1e19, 1e30, -1e30)
FLOATS = np.array([*SMALL, *LARGE, np.inf, -np.inf, np.nan])
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32"]
WIDE = ["uint32", "int64", "uint64"]


def run(made: Tensor, given: Tensor, floats: npt.NDArray[Any], lanes: int) -> list[int]:
    s = te.create_schedule(made)
    if lanes > 1:
        s[made].split(made.op.axis[0], factor=lanes, tail="guard")
        s[made].vectorize(f"{made.op.axis[0].name}_i")
    out = np.zeros(len(floats), dtypes.info(made.dtype).numpy)
    tensorlang.build(s, [given, made])(floats, out)
    return [int(x) for x in out]


def nearest(x: float, dtype: str) -> int:
    """The integer of a dtype that is nearest to the number without its fraction."""
    low, high = (int(limit) for limit in dtypes.limits(dtype))
    return 0 if np.isnan(x) else low if x <= low else high if x >= high else int(x)


@pytest.mark.covering(1)
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", [*INTEGERS, *WIDE])
def test_floats_of_any_size(dtype: str, source: str, lanes: int) -> None:
    floats = FLOATS.astype(source)
    A = te.placeholder(floats.shape, source, "A")
    made = te.compute(A.shape, lambda i: A[i].astype(dtype), name="made")
    assert run(made, A, floats, lanes) == [nearest(float(x), dtype) for x in floats]


@pytest.mark.covering(1)
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("inside_out", [False, True])
def test_clamped_floats(dtype: str, lanes: int, inside_out: bool) -> None:
    low, high = (float(limit) for limit in dtypes.limits(dtype))
    floats, high = FLOATS.astype("float32"), min(high, 2147483520.0)
    A = te.placeholder(floats.shape, "float32", "A")

    def clamped(i: Expr) -> Expr:
        if inside_out:
            return te.min(te.max(A[i], low), high).astype(dtype)
        return te.max(te.min(A[i], high), low).astype(dtype)

    made = te.compute(A.shape, clamped, name="made")
    wanted = [0 if np.isnan(x) else int(min(max(float(x), low), high)) for x in floats]
    assert run(made, A, floats, lanes) == wanted


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("dtype", "low", "high"), [("int8", -300, 300), ("uint8", -5, 255), ("uint16", 0, 1e9)])
def test_limits_that_the_integer_does_not_have(dtype: str, low: float, high: float, lanes: int) -> None:
    floats = FLOATS.astype("float32")
    A = te.placeholder(floats.shape, "float32", "A")
    made = te.compute(A.shape, lambda i: te.max(te.min(A[i], high), low).astype(dtype), name="made")
    assert run(made, A, floats, lanes) == [nearest(min(max(float(x), low), high), dtype) for x in floats]


@pytest.mark.covering(1)
@pytest.mark.parametrize("lanes", [1, 16, 32, 48, 64])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize(
    ("dtype", "low", "high", "zero"),
    [
        ("uint8", 0, 255, 0),
        ("uint8", 0, 255, 121),
        ("int8", -128, 127, -3),
        ("int8", -128, 127, 5),
        ("uint8", 3.5, 200, 0),
        ("int32", -9, 9, 2),
    ],
)
def test_rounded_between_limits(dtype: str, low: float, high: float, zero: int, source: str, lanes: int) -> None:
    ties = np.arange(-140, 270) + 0.5
    floats = np.concatenate([FLOATS, ties, np.nextafter(ties, 0), [2.0**24 + 1]]).astype(source)
    A = te.placeholder(floats.shape, source, "A")
    made = te.compute(
        A.shape, lambda i: te.max(te.min(te.round(A[i]) + float(zero), high), low).astype(dtype), name="made"
    )
    wanted = [0 if np.isnan(x) else int(np.clip(np.rint(x) + zero, low, high)) for x in floats]
    assert run(made, A, floats, lanes) == wanted


@pytest.mark.covering(1)
@pytest.mark.parametrize("cpu", ["x86-64-v4", "haswell"])
@pytest.mark.parametrize("lanes", [16, 32, 48, 64])
@pytest.mark.parametrize(("dtype", "pack"), [("int8", "vpacksswb"), ("uint8", "vpackuswb")])
def test_bytes_side_by_side_are_packed(dtype: str, pack: str, lanes: int, cpu: str) -> None:
    """By instructions that find the limits, of up to four vectors: only floats that are too large are found before."""
    low, high = (float(limit) for limit in dtypes.limits(dtype))
    A, B = te.placeholder((lanes,), "float32", "A"), te.placeholder((lanes,), "uint8", "B")
    floats = te.compute(A.shape, lambda i: te.max(te.min(te.round(A[i]), high), low).astype(dtype), name="floats")
    tripled = te.compute(B.shape, lambda i: B[i].astype("float32") * 3.0, name="tripled")
    scaled = te.compute(B.shape, lambda i: te.max(te.min(te.round(tripled[i]), high), low).astype(dtype), name="scaled")
    for given, made, limits in ((A, floats, ("vmin", "vcmp")), (B, scaled, ())):
        s = te.create_schedule(made)
        if given is B:
            s[tripled].compute_inline()
        s[made].vectorize(made.op.axis[0])
        asm = tensorlang.build(s, [given, made], f"llvm -mcpu={cpu}").source("asm")
        vectors = lanes // (16 if cpu == "x86-64-v4" else 8)
        assert (pack in asm) == (vectors >= 2)
        if pack in asm:
            assert [word for word in ("vmin", "vmax", "vcmp") if word in asm and word not in limits] == []
