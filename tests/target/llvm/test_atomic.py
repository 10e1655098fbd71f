"""Atomic updates and prefetches as instructions: they do what the interpreter does, NaN and wrapping included."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.ir.construct import array, index, indices, kernel, load, loop, store
from tensorlang.ir.interpret import run
from tensorlang.ir.stmt import AtomicUpdate, LoopKind, Prefetch, Seq
from tensorlang.runtime.executable import Executable

Compile = Callable[..., Executable]
(i,) = indices("i")


@pytest.mark.covering(2)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "min", "max"])
@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e5m2", "float32", "float64", "int8", "uint8", "int64"]
)
@pytest.mark.parametrize("special", [False, True])
def test_an_update_does_what_the_interpreter_does(compiled: Compile, op: str, dtype: str, special: bool) -> None:
    d = dtypes.info(dtype)
    last = float("nan") if special and d.is_float else 120
    a, b = array("a", (4,), dtype), array("b", (1,), dtype)
    body = loop(i, 0, 4, AtomicUpdate(b, (index(0),), op, load(a, i)), LoopKind.PARALLEL)
    made = kernel("update", (a, b), "b", body)
    given = np.array([100, 1.5 if d.is_float else 1, 3, last]).astype(d.numpy)
    expected, found = np.array([7], given.dtype), np.array([7], given.dtype)
    run(made, {"a": given, "b": expected})
    compiled(made, "llvm -num-cores=1")(given, found)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor"])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_bits(compiled: Compile, op: str, dtype: str) -> None:
    a, b = array("a", (3,), dtype), array("b", (1,), dtype)
    made = kernel("update", (a, b), "b", loop(i, 0, 3, AtomicUpdate(b, (index(0),), op, load(a, i))))
    given = np.array([12, 7, 29]).astype(dtype)
    expected, found = np.array([86], given.dtype), np.array([86], given.dtype)
    run(made, {"a": given, "b": expected})
    compiled(made)(given, found)
    assert found == expected


def test_a_vector_loop_updates_one_lane_after_the_other(compiled: Compile) -> None:
    a, b = array("a", (16,), "int32"), array("b", (4,), "int32")
    where = (i % index(4),)
    made = kernel("update", (a, b), "b", loop(i, 0, 16, AtomicUpdate(b, where, "add", load(a, i)), LoopKind.VECTORIZED))
    found = np.zeros(4, np.int32)
    compiled(made)(np.arange(16, dtype=np.int32), found)
    np.testing.assert_array_equal(found, np.arange(16).reshape(4, 4).sum(axis=0))


def test_a_prefetch_may_lie_outside(compiled: Compile) -> None:
    a, b = array("a", (64,)), array("b", (64,))
    body = loop(i, 0, 64, [Prefetch(a, (i * index(1000000),)), store(b, i, load(a, i))], LoopKind.VECTORIZED)
    made = compiled(kernel("copy", (a, b), "b", body))
    found, given = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    made(given, found)
    np.testing.assert_array_equal(found, given)
    assert "prefetch" in made.source("asm")


def test_loads_stay_behind_the_prefetch_before_them(compiled: Compile) -> None:
    a, b = array("a", (64, 4)), array("b", (64,))
    ahead = Seq(tuple(Prefetch(a, (i + 16, index(k))) for k in range(4)))
    total = load(a, i, 0) + load(a, i, 1) * load(a, i, 2) + load(a, i, 3)
    made = compiled(kernel("totals", (a, b), "b", loop(i, 0, 64, [ahead, store(b, i, total)])), "llvm -mcpu=znver4")
    order = re.findall(r"(prefetch)|v(?:movss|mulss|addss|fmadd\w+)\s.*\(%r", made.source("asm"))
    assert order[:4] == ["prefetch"] * 4
    assert len(order) > 8
    assert set(order[4:]) == {""}
