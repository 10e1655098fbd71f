"""Atomic updates: threads share a reduction or a histogram, and no update is lost; refusals with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import build, lower, te
from tensorlang.errors import BadArgument, IllegalParallel
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.testing.check import check_schedule
from tests.programs import argmax

TWO = "llvm -num-cores=2"


def rows(
    dtype: str = "float32", combine: Any = te.sum, extent: int = 100
) -> tuple[Schedule, list[te.Tensor], te.Tensor]:
    a = te.placeholder((8, extent), dtype, name="A")
    k = te.reduce_axis((0, extent), "k")
    b = te.compute((8,), lambda i: combine(a[i, k], axis=k), name="B")
    return te.create_schedule(b.op), [a, b], b


def shared_rows(dtype: str = "float32", combine: Any = te.sum, extent: int = 100) -> tuple[Schedule, list[te.Tensor]]:
    s, args, b = rows(dtype, combine, extent)
    s[b].atomic()
    s[b].reorder("k", "i")
    s[b].parallel("k")
    return s, args


@te.hybrid.script
def histogram(x: Any, n: Any) -> Any:
    h = output_tensor((16,), "int32")  # type: ignore[name-defined]  # noqa: F821
    for b in range(16):
        h[b] = 0
    for i in range(n):
        h[x[i]] += 1
    return h


def counted() -> tuple[Schedule, list[te.Tensor]]:
    n = te.var("n")
    x = te.placeholder((n,), "int32", name="x")
    h = histogram(x, n)
    return te.create_schedule(h.op), [x, h]


def test_rows_summed_by_two_threads() -> None:
    s, args = shared_rows()
    assert "parallel k in range(100):\n    for i in range(8):\n      atomic B[i] = B[i] + A[i, k]" in str(
        lower(s, args)
    )
    check_schedule(s, args)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("combine", [te.sum, te.prod, te.min, te.max], ids=lambda f: f.__name__)
def test_every_dtype_and_operator(dtype: str, combine: Any) -> None:
    check_schedule(*shared_rows(dtype, combine, extent=12))


def test_conditions_are_combined_too() -> None:
    a = te.placeholder((8, 30), "bool", name="A")
    k = te.reduce_axis((0, 30), "k")
    b = te.compute((8,), lambda i: te.any(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    s[b].atomic()
    s[b].reorder("k", "i")
    s[b].parallel("k")
    check_schedule(s, [a, b])


def test_many_runs_on_two_threads_lose_no_update() -> None:
    s, args = counted()
    s["histogram"].atomic()
    s["histogram"].parallel("i")
    count = build(s, args, target=TWO)
    x = np.random.default_rng(1).integers(0, 16, 20000).astype(np.int32)
    expected = np.bincount(x, minlength=16)
    for _ in range(100):
        h = np.zeros(16, np.int32)
        count(x, h)
        np.testing.assert_array_equal(h, expected)


def test_many_runs_of_a_product_lose_no_update() -> None:
    """Products have no instruction: the loop that compares and exchanges must not lose one either."""
    s, args = shared_rows("int32", te.prod, extent=3000)
    multiply = build(s, args, target=TWO)
    a = np.random.default_rng(2).choice(np.array([-1, 1, 3], np.int32), (8, 3000))
    with np.errstate(all="ignore"):
        expected = np.multiply.reduce(a, axis=1, dtype=np.int32)
    for _ in range(30):
        b = np.zeros(8, np.int32)
        multiply(a, b)
        np.testing.assert_array_equal(b, expected)


def test_a_histogram_equals_the_reference() -> None:
    s, args = counted()
    s["histogram"].atomic()
    s["histogram"].parallel("i")
    x = np.random.default_rng(0).integers(0, 16, 300).astype(np.int32)
    check_schedule(s, args, sizes={"n": 300}, inputs={"x": x})


def test_updates_are_locked_instructions() -> None:
    s, args = counted()
    s["histogram"].atomic()
    s["histogram"].parallel("i")
    text = build(s, args, target=f"{TWO} -mcpu=x86-64-v3").source("asm")
    assert "lock" in text


def test_without_atomic_threads_must_not_meet() -> None:
    s, _ = counted()
    with pytest.raises(IllegalParallel, match="is updated by two of them"):
        s["histogram"].parallel("i")
    s, _, b = rows()
    with pytest.raises(IllegalParallel, match=r"B\[0\] is updated by two of them"):
        s[b].parallel("k")


def test_lanes_of_a_vector_must_not_meet() -> None:
    s, _, b = rows()
    s[b].atomic()
    s[b].split("k", factor=4)
    with pytest.raises(IllegalParallel):
        s[b].vectorize("k_i")


def test_lanes_that_do_not_meet_are_fine_beside_threads_that_do() -> None:
    s, args = shared_rows()
    s["B"].vectorize("i")
    check_schedule(s, args)


def test_the_start_still_comes_before_the_updates() -> None:
    @te.hybrid.script
    def total(a: Any) -> Any:
        t = output_tensor((1,), "int32")  # type: ignore[name-defined]  # noqa: F821
        for i in range(20):
            if i == 0:
                t[0] = 0
            t[0] += a[i]
        return t

    s = te.create_schedule(total(te.placeholder((20,), "int32", name="a")).op)
    s["total"].atomic()
    with pytest.raises(IllegalParallel, match=r"total\[0\] is written"):
        s["total"].parallel("i")


def test_refusals() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    with pytest.raises(BadArgument, match="B updates no element"):
        te.create_schedule(b.op)["B"].atomic()
    with pytest.raises(BadArgument, match="T reduces 2 values together") as caught:
        argmax().s["T"].atomic()
    assert "s.rfactor('T', ...)" in caught.value.advice[0]
    odd = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="odd")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((1,), lambda i: odd(a[k], axis=k), name="C")
    with pytest.raises(BadArgument, match=r"C reduces by .*; atomic knows add, mul"):
        te.create_schedule(c.op)["C"].atomic()


def test_a_strict_schedule_has_no_atomic_sums_of_floats() -> None:
    s, _, b = rows()
    s.strict()
    with pytest.raises(BadArgument, match="the schedule is strict"):
        s[b].atomic()
    s, args, b = rows("int32")
    s.strict()
    s[b].atomic()
    s[b].parallel("k")
    check_schedule(s, args)


def test_it_replays() -> None:
    s, args = shared_rows()
    again = rows()[0]
    Trace.from_json(s.trace.to_json()).apply(again)
    assert str(lower(again, args)) == str(lower(s, args))
    assert "s['B'].atomic()\n" in s.trace.to_python()
