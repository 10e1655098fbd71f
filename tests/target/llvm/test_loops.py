"""Loops, memory and control flow, each in a small kernel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorlang import dtypes
from tensorlang.errors import KernelError
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Const, Expr, binary, cast, select
from tensorlang.ir.stmt import Allocate, CallPython, Fail, If, Kernel, Let, LoopKind, Seq, Stmt
from tensorlang.runtime import openmp
from tensorlang.runtime.executable import Executable

Compile = Callable[..., Executable]
Array = np.ndarray[Any, Any]
SERIAL, PARALLEL = LoopKind.SERIAL, LoopKind.PARALLEL
UNROLLED, VECTORIZED = LoopKind.UNROLLED, LoopKind.VECTORIZED
i, j, k, n, m = indices("i j k n m")


@pytest.mark.covering(1)
@pytest.mark.parametrize("kind", [SERIAL, UNROLLED, VECTORIZED, PARALLEL])
@pytest.mark.parametrize("extent", [0, 1, 3, 16, 37, 100, 1000])
def test_every_kind_of_loop_covers_its_range(compiled: Compile, kind: LoopKind, extent: int) -> None:
    out = array("out", (extent + 5,), "int64")
    kernel = Kernel("fill", (out,), (), ("out",), loop(i, 2, extent + 2, store(out, i, i * 3), kind))
    values = np.full(extent + 5, -1)
    compiled(kernel)(values)
    expected = np.full(extent + 5, -1)
    expected[2 : extent + 2] = np.arange(2, extent + 2) * 3
    np.testing.assert_array_equal(values, expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint16", "int64", "bool"])
@pytest.mark.parametrize("step", [-3, -1, 0, 1, 2, 3, 4, 7])
def test_vector_reads_at_any_stride(compiled: Compile, step: int, dtype: str) -> None:
    size = 7 * 20
    a, out = array("a", (size,), dtype), array("out", (20,), dtype)
    start = size - 1 if step < 0 else 0
    body = store(out, i, load(a, i * step + start))
    data = (np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 100, size)).astype(dtypes.info(dtype).numpy)
    result = np.zeros(20, dtypes.info(dtype).numpy)
    compiled(Kernel("stride", (a, out), (), ("out",), loop(i, 0, 20, body, VECTORIZED)))(data, result)
    np.testing.assert_array_equal(result, data[start + step * np.arange(20)])


@pytest.mark.parametrize("step", [-2, -1, 1, 2, 5])
def test_vector_writes_at_any_stride(compiled: Compile, step: int) -> None:
    size = 5 * 20
    out = array("out", (size,), "int32")
    start = size - 1 if step < 0 else 0
    body = store(out, i * step + start, cast(i, "int32"))
    result = np.full(size, -1, np.int32)
    compiled(Kernel("stride", (out,), (), ("out",), loop(i, 0, 20, body, VECTORIZED)))(result)
    expected = np.full(size, -1, np.int32)
    expected[start + step * np.arange(20)] = np.arange(20)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool"])
@pytest.mark.parametrize("step", [-1, 1, 3])
def test_vector_loops_of_any_bounds(compiled: Compile, step: int, dtype: str) -> None:
    a, out, before = array("a", (k,), dtype), array("out", (n,), dtype), array("before", (m,), dtype)
    start: Expr | int = k - 1 if step < 0 else 0
    body = loop(i, m, n, store(out, i, load(a, i * step + start)), VECTORIZED)
    function = compiled(Kernel("copy", (a, out, before), (k, m, n), ("out",), body))
    of_numpy = dtypes.info(dtype).numpy
    for size in (1, 7, 8, 9, 31, 64, 100):
        data = np.random.default_rng(size).integers(0, 2 if dtype == "bool" else 100, size * 3).astype(of_numpy)
        for first in (0, 1, 5, size, size + 3):
            result, expected = np.zeros(size, of_numpy), np.zeros(size, of_numpy)
            expected[first:] = data[(3 * size - 1 if step < 0 else 0) + step * np.arange(first, size)]
            function(data, result, np.zeros(first, of_numpy))
            np.testing.assert_array_equal(result, expected)


def test_vector_columns_of_a_symbolic_matrix(compiled: Compile) -> None:
    a, out = array("a", (m, n)), array("out", (n, m))
    body = loop(j, 0, n, loop(i, 0, 6, store(out, (j, i), load(a, i, j)), VECTORIZED))
    data, result = np.arange(42, dtype="f4").reshape(6, 7), np.zeros((7, 6), "f4")
    compiled(Kernel("transpose", (a, out), (m, n), ("out",), body))(data, result)
    np.testing.assert_array_equal(result, data.T)


def test_a_scatter_to_one_element_keeps_the_last_lane(compiled: Compile) -> None:
    out = array("out", (3,), "int32")
    condition = i < Const(11, "int64")
    body: list[Stmt] = [store(out, 0, cast(i, "int32")), If(condition, store(out, 1, cast(i, "int32")))]
    result = np.full(3, -1, np.int32)
    compiled(Kernel("last", (out,), (), ("out",), loop(i, 0, 16, body, VECTORIZED)))(result)
    assert result.tolist() == [15, 10, -1]


@pytest.mark.parametrize("kind", [SERIAL, VECTORIZED])
def test_branches_not_taken_touch_no_memory(compiled: Compile, kind: LoopKind) -> None:
    """Every index that is not wanted lies terabytes away."""
    a, b, out = array("a", (20,)), array("b", (20,), "int64"), array("out", (20,), "float32")
    far = i * (1 << 40)
    wanted = i.equal(0)
    here: Expr = select(wanted, load(a, far), Const(-1.0, "float32"))
    there = select(binary("or", i > 0, load(b, far).equal(5)), Const(2.0, "float32"), load(a, far))
    shared = select(i < 0, load(a, Const(1 << 40, "int64")), Const(0.5, "float32"))
    gathered = If(wanted, store(out, i, load(out, i) + load(a, load(b, far) * (1 << 40) * i)))
    body: list[Stmt] = [store(out, i, here + there + shared), gathered]
    data, index, result = np.full(20, 7, "f4"), np.full(20, 5), np.zeros(20, "f4")
    compiled(Kernel("safe", (a, b, out), (), ("out",), loop(i, 0, 20, body, kind)))(data, index, result)
    np.testing.assert_array_equal(result, [7 + 2 + 0.5 + 7] + [-1 + 2 + 0.5] * 19)


def test_an_allocation_in_a_vector_loop_is_private_to_the_lane(compiled: Compile) -> None:
    out, box = array("out", (20,), "int64"), array("box", (2,), "int64", "local")
    body = Allocate(box, Seq((store(box, 1, i * i), store(out, i, load(box, 1) + 1))))
    result = np.zeros(20, np.int64)
    compiled(Kernel("private", (out,), (), ("out",), loop(i, 0, 20, body, VECTORIZED)))(result)
    np.testing.assert_array_equal(result, np.arange(20) ** 2 + 1)


def test_a_let_that_reads_memory_is_evaluated_once(compiled: Compile) -> None:
    """The element it read is overwritten before the variable is used as an index."""
    at = indices("at")[0]
    p, out = array("p", (20,), "int64"), array("out", (20,), "int64")
    body = Let(at, load(p, i), Seq((store(p, i, -1), store(out, at, i))))
    order = np.random.default_rng(2).permutation(20)
    result, given = np.zeros(20, np.int64), order.copy()
    compiled(Kernel("once", (p, out), (), ("p", "out"), loop(i, 0, 20, body, VECTORIZED)))(given, result)
    np.testing.assert_array_equal(result, np.argsort(order))
    assert (given == -1).all()


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("kind", [SERIAL, PARALLEL])
def test_scratch_of_symbolic_and_large_shape(compiled: Compile, kind: LoopKind, scope: str) -> None:
    a, out = array("a", (m, n)), array("out", (m, n))
    row, big = array("row", (n,), scope=scope), array("big", (70000,), scope=scope)
    copy = loop(j, 0, n, store(row, j, load(a, i, j) * 2.0))
    back = loop(k, 0, n, store(out, (i, k), load(row, k) + load(big, 69999)))
    body = loop(i, 0, m, Allocate(row, Allocate(big, Seq((store(big, 69999, 1.0), copy, back)))), kind)
    data = np.random.default_rng(3).random((9, 33)).astype("f4")
    result = np.zeros_like(data)
    compiled(Kernel("rows", (a, out), (m, n), ("out",), body))(data, result)
    np.testing.assert_array_equal(result, data * 2 + 1)


def test_zero_dimensional_buffers_and_empty_loops(compiled: Compile) -> None:
    total, a = array("total", ()), array("a", (n,))
    body: list[Stmt] = [store(total, (), 0.0), loop(i, 0, n, store(total, (), load(total) + load(a, i)))]
    executable = compiled(Kernel("total", (a, total), (n,), ("total",), Seq(tuple(body))))
    for size in (0, 1, 5):
        result = np.full((), -1.0, "f4")
        executable(np.ones(size, "f4"), result)
        assert result == size


def test_parallel_loops_share_the_iterations_out(compiled: Compile) -> None:
    """Captured names: a size, an outer loop variable, a Let, a local buffer of the caller, scratch of its own."""
    a, out = array("a", (m, n)), array("out", (m, n))
    scale, own = array("scale", (1,), scope="local"), array("own", (1,), scope="local")
    t = indices("t")[0]
    inner = Seq((store(own, 0, load(a, i, j) * load(scale, 0)), store(out, (i, j), load(own, 0) + cast(t, "float32"))))
    team = Let(t, i * 10, loop(j, 0, n, Allocate(own, inner), PARALLEL))
    body = loop(i, 0, m, Allocate(scale, Seq((store(scale, 0, cast(i, "float32")), team))))
    executable = compiled(Kernel("captured", (a, out), (m, n), ("out",), body), "llvm -num-cores=3")
    data = np.arange(4 * 50, dtype="f4").reshape(4, 50)
    result = np.zeros_like(data)
    executable(data, result)
    rows = np.arange(4, dtype="f4")[:, None]
    np.testing.assert_array_equal(result, data * rows + 10 * rows)
    assert ("GOMP_parallel" in executable.source("ll")) and openmp.available()


def test_nested_parallel_loops_run(compiled: Compile) -> None:
    out = array("out", (8, 8), "int64")
    body = loop(i, 0, 8, loop(j, 0, 8, store(out, (i, j), i * 8 + j), PARALLEL), PARALLEL)
    result = np.zeros((8, 8), np.int64)
    compiled(Kernel("nested", (out,), (), ("out",), body), "llvm -num-cores=2")(result)
    np.testing.assert_array_equal(result.ravel(), np.arange(64))


def test_a_parallel_loop_uses_more_than_one_thread(compiled: Compile) -> None:
    seen: set[int] = set()

    def note(_: object) -> None:
        seen.add(threading.get_ident())

    out = array("out", (8,))
    body = loop(i, 0, 8, CallPython("note", (out,)), PARALLEL)
    kernel = Kernel("threads", (out,), (), ("out",), body, (("note", note),))
    compiled(kernel, "llvm -num-cores=2")(np.zeros(8, "f4"))
    assert len(seen) == 2
    seen.clear()
    compiled(kernel, "llvm -num-cores=1")(np.zeros(8, "f4"))
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize("kind", [SERIAL, PARALLEL, VECTORIZED])
def test_fail_raises_after_the_kernel(compiled: Compile, kind: LoopKind) -> None:
    index, out = array("index", (40,), "int64"), array("out", (40,), "int64")
    good = binary("and", load(index, i) >= 0, load(index, i) < 40)
    body = If(good, store(out, i, load(index, i)), Fail("index out of range"))
    executable = compiled(Kernel("checked", (index, out), (), ("out",), loop(i, 0, 40, body, kind)))
    given, result = np.arange(40), np.zeros(40, np.int64)
    executable(given, result)
    np.testing.assert_array_equal(result, given)
    given[17] = 40
    for _ in range(2):
        with pytest.raises(KernelError, match="checked: index out of range"):
            executable(given, result)


def test_python_is_called_with_whole_arrays(compiled: Compile) -> None:
    a, b, out = array("a", (n, 3)), array("b", (n, 3), scope="global"), array("out", (n, 3))

    def double(source: Array, target: Array) -> None:
        target[...] = 2 * source

    copy = loop(i, 0, n, loop(j, 0, 3, store(out, (i, j), load(b, i, j) + 1.0), VECTORIZED))
    body = Allocate(b, Seq((CallPython("double", (a, b)), copy)))
    executable = compiled(Kernel("extern", (a, out), (n,), ("out",), body, (("double", double),)))
    for size in (0, 4):
        data = np.random.default_rng(4).random((size, 3)).astype("f4")
        result = np.zeros_like(data)
        executable(data, result)
        np.testing.assert_array_equal(result, data * 2 + 1)


def test_an_exception_in_python_reaches_the_caller(compiled: Compile) -> None:
    out = array("out", (2,))

    def broken(_: object) -> None:
        raise ZeroDivisionError("on purpose")

    body = Seq((CallPython("broken", (out,)), store(out, 1, 3.0)))
    executable = compiled(Kernel("raising", (out,), (), ("out",), body, (("broken", broken),)))
    result = np.zeros(2, "f4")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            executable(result)
    assert result[1] == 3
