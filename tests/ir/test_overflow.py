"""Arithmetic of sizes: exact values, and up to where 64 bits hold what a kernel computes of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Expr, binary, cast, select
from tensorlang.ir.overflow import SizeCheck, _combined, exact_limit, exact_value, overflow
from tensorlang.ir.stmt import Kernel, LoopKind

n, m, i, j = indices("n m i j")


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (n * 2 + 1, 2**41 + 1),
        (n * n * n, 2**120),
        (n - n * m, 2**40 - 2**40 * 3),
        (n // 7, 2**40 // 7),
        ((n - n * 2) // 7, -(2**40) // 7),
        (n % m, 2**40 % 3),
        (n // (m - 3), 0),
        (-n, -(2**40)),
        (binary("min", n, m), 3),
        (select(n > m, n, m), 2**40),
        (cast(te.var("n") * 2, "int64"), 2**41),
        (te.var("n") * te.var("n"), 2**80),
    ],
)
def test_values_are_those_of_mathematics(expr: Expr, value: int) -> None:
    assert exact_value(expr, {"n": 2**40, "m": 3}) == value


def kernel(*shape: Expr, bound: Expr = n, kind: LoopKind = LoopKind.SERIAL) -> Kernel:
    a = array("A", shape)
    return Kernel("k", (a,), (n, m), ("A",), loop(i, 0, bound, store(a, (i, *[0] * (len(shape) - 1)), 1.0), kind))


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        (kernel(n), 2**40),
        (kernel(n, m), 2**30),
        (kernel(n, m, n), 2**20),
        (kernel(n * m, n, m), 2**15),
        (kernel(n, bound=n * m * n), 2**20),
    ],
)
def test_limits(made: Kernel, limit: int) -> None:
    assert exact_limit(made) == limit
    assert overflow(made, {"n": (limit, limit), "m": (limit, limit)}) is None


def test_beyond_the_limit_each_call_is_looked_at() -> None:
    check = SizeCheck(kernel(n, m))
    assert check.fault({"n": 2**50, "m": 3}) == ""
    assert "the bytes of A: float32[n, m] would be" in check.fault({"n": 2**50, "m": 2**20})
    assert "the bytes of A" in check.fault({"n": 2**62, "m": 0})
    assert "the number of iterations" in SizeCheck(_parallel()).fault({"n": 2**40, "m": 2**40})
    assert "n * 4 would be 18446744073709551616" in SizeCheck(kernel(m, bound=n * 4)).fault({"n": 2**62, "m": 0})
    assert SizeCheck(kernel(n), known=8, whole=False).fault({"n": 9, "m": 0}).startswith("sizes above 8 need")


def _parallel() -> Kernel:
    a = array("A", (4,))
    inner = loop(j, 0, m, store(a, 0, 1.0), LoopKind.PARALLEL)
    return Kernel("k", (a,), (n, m), ("A",), loop(i, 0, n, inner, LoopKind.PARALLEL))


def test_what_never_runs_and_what_data_decides_is_left_out() -> None:
    a, x = array("A", (4,)), array("X", (4,), "int64")
    dead = loop(i, 0, n - n, store(a, n * n * n, 1.0))
    assert overflow(Kernel("k", (a,), (n,), ("A",), dead), {"n": (2**40, 2**40)}) is None
    of_data = loop(i, 0, 4, store(a, load(x, i) * n, 1.0))
    assert overflow(Kernel("k", (a, x), (n,), ("A",), of_data), {"n": (2**62, 2**62)}) is None


def test_a_condition_is_looked_at() -> None:
    size = te.var("n")
    A = te.placeholder((size,), name="A")
    C = te.compute((size,), lambda i: te.if_then_else(i * size * size < 5, A[i], 0.0), name="C")
    made = lower(te.create_schedule(C.op), [A, C], target="llvm").kernel
    assert exact_limit(made) == 2**20
    assert overflow(made, {"n": (2**40, 2**40)}) is not None


@pytest.mark.parametrize("op", ["add", "sub", "mul", "floordiv", "floormod", "min", "max"])
def test_ranges_hold_all_values(op: str) -> None:
    rng = Random(op)
    for _ in range(200):
        a, b = (tuple(sorted((rng.randint(-9, 9), rng.randint(-9, 9)))) for _ in "ab")
        found: Any = _combined(op, (a[0], a[1]), (b[0], b[1]))
        values = [
            exact_value(binary(op, n, m), {"n": x, "m": y})
            for x in range(a[0], a[1] + 1)
            for y in range(b[0], b[1] + 1)
        ]
        assert all(v is not None and found[0] <= v <= found[1] for v in values), (a, b, found)
