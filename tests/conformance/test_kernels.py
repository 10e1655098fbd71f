"""Small kernels that every backend must run as the reference does: dtypes, intrinsics, tails, threads, faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang import dtypes, te
from tensorlang.errors import KernelError
from tensorlang.testing.check import check_schedule
from tests.programs import Case, argmax, matmul, row_sum, stencil

KINDS = ("llvm", "interpreter")
n = te.var("n")
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def elementwise(dtype: str, body: Callable[[Any, Any], Any], extent: int = 37, lanes: int = 8) -> Case:
    """C = body(A, B), in vectors with a tail."""
    A, B = te.placeholder((extent,), dtype, name="A"), te.placeholder((extent,), dtype, name="B")
    C = te.compute((extent,), lambda i: body(A[i], B[i]), name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=lanes, tail="peel")
    s[C].vectorize("i_i")
    return Case(s, (A, B, C))


def tiled_matmul(dtype: str, out: str | None = None) -> Case:
    """C = A B in register tiles, accumulated in `out`."""
    A, B = te.placeholder((9, 11), dtype, name="A"), te.placeholder((11, 18), dtype, name="B")
    k = te.reduce_axis((0, 11), "k")
    C = te.compute(
        (9, 18), lambda i, j: te.sum(A[i, k].astype(out or dtype) * B[k, j].astype(out or dtype), axis=k), name="C"
    )
    s = te.create_schedule(C.op)
    i_o, j_o, i_i, j_i = s[C].tile("i", "j", 2, 8, tail="peel")
    s[C].reorder(i_o, j_o, "k", i_i, j_i)
    s[C].unroll(i_i)
    s[C].vectorize(j_i)
    s[C].parallel(i_o)
    return Case(s, (A, B, C))


def reduction(dtype: str, reduce: Callable[..., Any]) -> Case:
    """B[i] = reduce over k of A[i, k], in parts."""
    A = te.placeholder((7, 21), dtype, name="A")
    k = te.reduce_axis((0, 21), "k")
    B = te.compute((7,), lambda i: reduce(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].split("k", factor=4)
    parts = s.rfactor(B, "k_i", 1)
    s[parts].reorder("k_o", "k_i")
    s[parts].vectorize("k_i")
    s[parts].parallel("i")
    return Case(s, (A, B))


def convert(source: str, target: str) -> Case:
    """A of one dtype as another, and back."""
    A = te.placeholder((19,), source, name="A")
    B = te.compute((19,), lambda i: A[i].astype(target), name="B")
    C = te.compute((19,), lambda i: B[i].astype(source), name="C")
    s = te.create_schedule([B.op, C.op])
    s[B].vectorize("i")
    s[C].vectorize("i")
    return Case(s, (A, B, C))


def intrinsic(function: Callable[[Any], Any], dtype: str = "float32") -> Case:
    """C = function(0.1 + |A| / 4), which lies in every function's domain."""
    A = te.placeholder((21,), dtype, name="A")
    C = te.compute((21,), lambda i: function(te.abs(A[i]) * te.const(0.25, dtype) + te.const(0.125, dtype)), name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=8)
    s[C].vectorize("i_i")
    return Case(s, (A, C))


def scratch(scope: str) -> Case:
    """A stage in a tile of its own, per thread."""
    s, args = stencil(50)
    s["C"].split("i", factor=16)
    s["B"].compute_at(s["C"], "i_o")
    s["B"].set_scope(scope)
    s["B"].vectorize("i")
    s["C"].parallel("i_o")
    return Case(s, args)


def deep() -> Case:
    """Seven loops around a statement, some of extent one."""
    A = te.placeholder((2, 3, 1, 4), "int32", name="A")
    B = te.compute((2, 3, 1, 4), lambda a, b, c, d: A[a, b, c, d] * 3 - a + d, name="B")
    s = te.create_schedule(B.op)
    for axis, factor in (("a", 2), ("b", 2), ("d", 3)):
        s[B].split(axis, factor=factor)
    s[B].reorder("d_o", "a_i", "b_o", "c")
    return Case(s, (A, B))


def guarded() -> Case:
    """A copy of A with a border, which no read may cross."""
    A = te.placeholder((10, 12), name="A")
    B = te.compute(
        (12, 14), lambda i, j: te.if_then_else(te.all(i >= 1, i < 11, j >= 1, j < 13), A[i - 1, j - 1], -1.0), name="B"
    )
    s = te.create_schedule(B.op)
    s[B].tile("i", "j", 5, 8)
    s[B].vectorize("j_i")
    return Case(s, (A, B))


def logic() -> Case:
    """Truth values: conjunction, negation, comparison, choice."""
    A, B = te.placeholder((33,), "bool", name="A"), te.placeholder((33,), "int32", name="B")
    C = te.compute((33,), lambda i: te.any(te.all(A[i], B[i] > 0), ~A[i] & (B[i] == -1)), name="C")
    D = te.compute((33,), lambda i: te.select(C[i], B[i], -B[i]), name="D")
    s = te.create_schedule([C.op, D.op])
    s[C].split("i", factor=16)
    s[C].vectorize("i_i")
    return Case(s, (A, B, C, D))


def parallel_matmul() -> Case:
    """Threads over fused tiles."""
    s, args = matmul(20, 24, 8)
    i_o, j_o, i_i, j_i = s["C"].tile("i", "j", 4, 8)
    s["C"].parallel(s["C"].fuse(i_o, j_o))
    s["C"].vectorize(j_i)
    assert str(i_i) == "i_i"
    return Case(s, args)


def pairs() -> Case:
    """The position of the largest element, in parts."""
    s, args = argmax(6, 29)
    s["T"].split("k", factor=8)
    s.rfactor("T", "k_o")
    s["T.rf"].parallel("k_o")
    return Case(s, args)


def any_size(steps: Callable[[Any], object]) -> Case:
    """A sum over rows of any length."""
    s, args = row_sum(n, te.var("m"))
    steps(s["B"])
    return Case(s, args)


def multiply_and_add(a: Any, b: Any) -> Any:
    return a * b + a


def quotient_and_remainder(a: Any, b: Any) -> Any:
    return a // 3 * 2 + b % 4


def clamp(a: Any, b: Any) -> Any:
    return te.maximum(te.minimum(a, b), 1)


def masks_and_shifts(a: Any, b: Any) -> Any:
    return ((a & 6) | (b ^ a)) + (a << 2) - (b >> 1)


INTRINSICS = (
    te.exp, te.exp2, te.log, te.log2, te.sqrt, te.rsqrt, te.tanh, te.sin, te.cos, te.erf, te.sigmoid, te.floor, te.ceil,
)  # fmt: skip
CONVERSIONS = (
    ("float32", "int8"), ("float32", "float16"), ("float64", "bfloat16"), ("int32", "uint8"), ("int64", "float32"),
    ("bool", "float32"), ("uint8", "int64"), ("bfloat16", "int32"),
)  # fmt: skip
CASES: dict[str, Callable[[], Case]] = {
    **{f"add and multiply {d}": partial(elementwise, d, multiply_and_add) for d in (*FLOATS, *INTEGERS)},
    **{f"quotient and remainder {d}": partial(elementwise, d, quotient_and_remainder) for d in INTEGERS},
    **{f"clamp {d}": partial(elementwise, d, clamp) for d in (*FLOATS, "int8", "uint64")},
    **{f"masks and shifts {d}": partial(elementwise, d, masks_and_shifts) for d in ("int8", "uint8", "int32", "int64")},
    **{f"matmul {d}": partial(tiled_matmul, d) for d in (*FLOATS, "int32", "int64")},
    "matmul int8 in int32": partial(tiled_matmul, "int8", "int32"),
    "matmul uint8 in uint32": partial(tiled_matmul, "uint8", "uint32"),
    "matmul bfloat16 in float32": partial(tiled_matmul, "bfloat16", "float32"),
    **{f"sum {d}": partial(reduction, d, te.sum) for d in (*FLOATS, "int8", "int64")},
    **{f"largest {d}": partial(reduction, d, te.max) for d in ("float32", "bfloat16", "int8", "uint8")},
    "product int64": partial(reduction, "int64", te.prod),
    "all of bool": partial(reduction, "bool", te.all),
    "any of bool": partial(reduction, "bool", te.any),
    **{f"{a} as {b}": partial(convert, a, b) for a, b in CONVERSIONS},
    **{function.__name__: partial(intrinsic, function) for function in INTRINSICS},
    **{f"exp {d}": partial(intrinsic, te.exp, d) for d in ("float64", "float16", "bfloat16")},
    "power": partial(intrinsic, lambda x: te.power(x, 2.5)),
    "local scratch": partial(scratch, "local"),
    "global scratch": partial(scratch, "global"),
    "deep": deep,
    "guarded": guarded,
    "logic": logic,
    "threads over fused tiles": parallel_matmul,
    "pairs": pairs,
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str, target: str) -> None:
    s, args = CASES[name]()
    check_schedule(s, args, targets=(target,))


SIZED: dict[str, Callable[[Any], object]] = {
    "as it is": lambda stage: None,
    "tiles": lambda stage: stage.tile("i", "k", 4, 8),
    "peeled": lambda stage: (stage.split("k", factor=8, tail="peel"), stage.split("i", factor=3, tail="peel")),
    "parts": lambda stage: (stage.split("k", nparts=3), stage.parallel("i")),
    "rows as lanes": lambda stage: (
        stage.split("i", factor=4),
        stage.reorder("i_o", "k", "i_i"),
        stage.vectorize("i_i"),
    ),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("name", SIZED)
def test_kernel_of_any_size(name: str, target: str) -> None:
    s, args = any_size(SIZED[name])
    for rows in (0, 1, 4, 10):
        for columns in (0, 1, 8, 19):
            check_schedule(s, args, {"n": rows, "m": columns}, targets=(target,))


@pytest.mark.parametrize("target", KINDS)
def test_extreme_integers_wrap(target: str) -> None:
    for dtype in ("int8", "int32", "int64", "uint8", "uint64"):
        low, high = dtypes.limits(dtype)
        s, args = elementwise(dtype, lambda a, b: a + b * 3 - 1, extent=9, lanes=4)
        values = np.array([low, high, 0, 1, high, low, 2, high, low], dtypes.info(dtype).numpy)
        check_schedule(s, args, targets=(target,), inputs={"A": values, "B": values[::-1].copy()})


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("bad", [-1, 6, -(2**31), 2**31 - 1])
def test_an_index_out_of_range_is_a_kernel_error(target: str, bad: int) -> None:
    """The call fails after the kernel returns; the caller's arrays outside the bad element are as computed."""
    A, rows = te.placeholder((6,), name="A"), te.placeholder((16,), "int32", name="I")
    C = te.compute((16,), lambda i: A[rows[i]] + 1, name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", factor=4)
    s[C].parallel("i_o")
    kernel = tensorlang.build(s, (A, rows, C), target=target)
    a, index, out = np.arange(6, dtype=np.float32), np.arange(16, dtype=np.int32) % 6, np.zeros(16, np.float32)
    kernel(a, index, out)
    assert out.tolist() == (a[index] + 1).tolist()
    index[13] = bad
    with pytest.raises(KernelError, match=r"C reads A\[I\[i\]\] out of bounds of A"):
        kernel(a, index, out)
    index[13] = 0
    kernel(a, index, out)
    assert out[13] == 1


@pytest.mark.parametrize("target", KINDS)
def test_a_kernel_writes_nothing_but_its_outputs(target: str) -> None:
    s, args = tiled_matmul("float32")
    kernel = tensorlang.build(s, args, target=target)
    a, b = np.ones((9, 11), np.float32), np.ones((11, 18), np.float32)
    room = np.full((11, 18), 7.0, np.float32)
    kernel(a, b, room[1:10])
    assert (a == 1).all() and (b == 1).all() and (room[1:10] == 11).all()
    assert (room[0] == 7).all() and (room[10] == 7).all()
