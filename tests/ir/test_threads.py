"""The device interpreter: what launches compute, on the host and in the blocks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import InternalError, KernelError
from tensorlang.ir.construct import array, index, indices, kernel, load, loop, store
from tensorlang.ir.expr import Binary, Const, Expr, Select, Var, binary, cast
from tensorlang.ir.stmt import (
    INDEX,
    Allocate,
    AtomicUpdate,
    Barrier,
    CallPython,
    Combiner,
    Fail,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Prefetch,
    Seq,
    Stmt,
    ThreadReduce,
)
from tensorlang.ir.threads import run
from tensorlang.target.backend import backend
from tensorlang.target.spec import Target
from tests.launches import BX, BY, TX, TY, TZ, device_kernel, launched

i, j, k, o, n = indices("i j k o n")


def matmul(size: int, depth: int) -> Kernel:
    """A block of 64 x 64 elements, 16 of them a thread, over tiles of `depth` in shared memory."""
    a, b, c = (array(name, (size, size)) for name in "ABC")
    left, right = array("left", (64, depth), scope="shared"), array("right", (depth, 64), scope="shared")
    total = array("total", (4, 4), scope="local")
    thread = TY * index(16) + TX
    at = i * index(256) + thread
    row, column = binary("floordiv", at, index(depth)), binary("floormod", at, index(depth))
    down, across = binary("floordiv", at, index(64)), binary("floormod", at, index(64))
    fill = [
        store(left, (row, column), load(a, BY * index(64) + row, o * index(depth) + column)),
        store(right, (down, across), load(b, o * index(depth) + down, BX * index(64) + across)),
    ]
    y, x = TY * index(4) + i, TX * index(4) + j
    add = store(total, (i, j), load(total, i, j) + load(left, y, k) * load(right, k, x))
    body = [
        loop(i, 0, 4, loop(j, 0, 4, store(total, (i, j), 0.0))),
        loop(o, 0, size // depth, [
            loop(i, 0, depth // 4, fill),
            Barrier(),
            loop(k, 0, depth, loop(i, 0, 4, loop(j, 0, 4, add, LoopKind.VECTORIZED), LoopKind.UNROLLED)),
            Barrier(),
        ]),
        loop(i, 0, 4, loop(j, 0, 4, store(c, (BY * index(64) + y, BX * index(64) + x), load(total, i, j)))),
    ]  # fmt: skip
    return launched([a, b, c], "C", body, (16, 16), (size // 64, size // 64), [left, right, total])


def test_a_matrix_product_in_tiles() -> None:
    a, b = (np.random.default_rng(seed).integers(-4, 5, (128, 128)).astype(np.float32) for seed in (0, 1))
    c = np.zeros((128, 128), np.float32)
    run(matmul(128, 16), {"A": a, "B": b, "C": c})
    np.testing.assert_array_equal(c, a @ b)


def test_a_block_is_checked_in_a_tenth_of_a_second() -> None:
    """64 x 64 x 64 by 256 threads take 60 ms on a slow core; one thread after the other takes seconds."""
    arrays = {name: np.ones((64, 64), np.float32) for name in "ABC"}
    took = []
    for _ in range(3):
        start = time.perf_counter()
        run(matmul(64, 16), arrays)
        took.append(time.perf_counter() - start)
    assert min(took) < 0.5


def test_the_ends_of_a_grid_alone() -> None:
    a = array("A", (n,), "int32")
    code = launched([a], "A", store(a, BX * index(4) + TX, 7), (4,), (binary("floordiv", n, index(4)),), sizes=[n])
    out = np.zeros(16, np.int32)
    run(code, {"A": out}, {"n": 16}, blocks="ends")
    assert out.tolist() == [7] * 4 + [0] * 8 + [7] * 4
    with pytest.raises(ValueError, match="blocks 'some': expected one of all, ends"):
        run(code, {"A": out}, {"n": 16}, blocks="some")  # type: ignore[arg-type]


def test_an_empty_grid_runs_nothing() -> None:
    a = array("A", (n,), "int32")
    run(launched([a], "A", store(a, TX, 7), (4,), (n,), sizes=[n]), {"A": np.zeros(0, np.int32)}, {"n": 0})


def test_threads_and_blocks_along_three_axes() -> None:
    a = array("A", (3, 2, 5, 4, 3, 2), INDEX)
    where = (*(Var(f"blockIdx.{axis}", INDEX) for axis in "zyx"), TZ, TY, TX)
    value: Expr = index(0)
    for part in where:
        value = value * index(10) + part
    out = np.zeros((3, 2, 5, 4, 3, 2), np.int64)
    run(launched([a], "A", store(a, where, value), (2, 3, 4), (5, 2, 3)), {"A": out})
    wanted = np.array([int("".join(map(str, place))) for place in np.ndindex(out.shape)]).reshape(out.shape)
    np.testing.assert_array_equal(out, wanted)


def test_the_host_goes_around_launches() -> None:
    """Loops, conditions, scratch memory and scalars of the host: each round doubles, and adds the round."""
    a, b = array("A", (8,), INDEX), array("B", (8,), INDEX)
    r = Var("r", INDEX)
    double = device_kernel([a, b], store(b, TX, load(a, TX) * 2), (8,))
    back = device_kernel([a, b], store(a, TX, load(b, TX) + r), (8,), scalars=[r])
    both = Seq((Launch(double, ()), Launch(back, (o,))))
    rounds = loop(k, 0, n, Let(o, k * k, If(o != 4, Allocate(b, both))))
    out = np.arange(8)
    run(kernel("host", [a], "A", rounds, [n]), {"A": out}, {"n": 4})
    assert out.tolist() == [8 * x + 2 + 9 for x in range(8)]


def test_threads_leave_loops_and_branches_on_their_own() -> None:
    a = array("A", (8,), INDEX)
    body: list[Stmt] = [
        store(a, TX, 0),
        loop(i, TX, TX * 2, If(i != 5, store(a, TX, load(a, TX) + i), store(a, TX, load(a, TX) + 100))),
    ]
    out = np.zeros(8, np.int64)
    run(launched([a], "A", body, (8,)), {"A": out})
    assert out.tolist() == [sum(100 if x == 5 else x for x in range(t, 2 * t)) for t in range(8)]


def test_a_branch_not_taken_reads_nothing() -> None:
    a, b = array("A", (8,)), array("B", (8,))
    inside = TX < 7
    beside = Select(inside, load(a, TX + 1), Const(-1.0, "float32"), "float32")
    above = Binary("and", inside, load(a, TX + 1) > 3.0, "bool")
    body: list[Stmt] = [store(b, TX, beside), If(above, store(b, TX, load(b, TX) * 10.0))]
    out = np.zeros(8, np.float32)
    run(launched([a, b], "B", body, (8,)), {"A": np.arange(8, dtype=np.float32), "B": out})
    assert out.tolist() == [1, 2, 3, 40, 50, 60, 70, -1]


def test_indices_are_read_anew_each_time() -> None:
    a, own = array("A", (8,), INDEX), array("own", (1,), INDEX, "local")
    body = loop(i, 0, 2, [store(own, 0, TX * 2 + i), store(a, load(own, 0), TX)])
    out = np.zeros(8, np.int64)
    run(launched([a], "A", body, (4,), scratch=[own]), {"A": out})
    assert out.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_faults_and_python_functions() -> None:
    a = array("A", (4,), "int32")
    put = Launch(device_kernel([a], store(a, TX, cast(TX, "int32")), (4,)), ())
    body = Seq((put, CallPython("flip", (a,)), If(n > 3, Fail("too many"))))
    out = np.zeros(4, np.int32)

    def flip(values: Any) -> None:
        values[:] = values[::-1].copy()

    code = Kernel("host", (a,), (n,), ("A",), body, (("flip", flip),))
    run(code, {"A": out}, {"n": 3})
    assert out.tolist() == [3, 2, 1, 0]
    with pytest.raises(KernelError, match="too many"):
        run(code, {"A": out}, {"n": 4})


def test_atomic_updates_come_one_after_the_other() -> None:
    a = array("A", (3,), "int32")
    body: list[Stmt] = [
        AtomicUpdate(a, (binary("floormod", TX, index(3)),), "add", cast(TX, "int32")),
        Prefetch(a, (TX,)),
    ]
    out = np.array([100, 200, 300], np.int32)
    run(launched([a], "A", body, (8,), (2,)), {"A": out})
    assert out.tolist() == [100 + 2 * (0 + 3 + 6), 200 + 2 * (1 + 4 + 7), 300 + 2 * (2 + 5)]


SUM = Combiner((Var("p", "float32"),), (Var("q", "float32"),), (Var("p", "float32") + Var("q", "float32"),),
               (Const(0.0, "float32"),))  # fmt: skip


def test_a_sum_across_threads_into_shared_targets() -> None:
    """Rows of 6 threads, the first 5 of which take part; the first one adds to what is there."""
    a, b = array("A", (4, 5)), array("B", (4,))
    reduce = ThreadReduce(((b, (TY,)),), (load(a, TY, TX),), SUM, (("threadIdx.x", 5),))
    values = np.arange(20, dtype=np.float32).reshape(4, 5)
    out = np.full(4, 1000, np.float32)
    run(launched([a, b], "B", reduce, (6, 4)), {"A": values, "B": out})
    np.testing.assert_array_equal(out, 1000 + values.sum(1))


def test_a_sum_across_threads_into_own_targets() -> None:
    """Over two axes with one between: every thread has the sum."""
    a, b, own = array("A", (2, 3, 4)), array("B", (2, 3, 4)), array("own", (1,), scope="local")
    reduce = ThreadReduce(((own, (index(0),)),), (load(a, TZ, TY, TX),), SUM, (("threadIdx.z", 2), ("threadIdx.x", 4)))
    body: list[Stmt] = [store(own, 0, cast(TX, "float32")), reduce, store(b, (TZ, TY, TX), load(own, 0))]
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    out = np.zeros((2, 3, 4), np.float32)
    run(launched([a, b], "B", body, (4, 3, 2), scratch=[own]), {"A": values, "B": out})
    np.testing.assert_array_equal(out, np.arange(4) + values.sum((0, 2), keepdims=True) + np.zeros((2, 1, 1)))


def test_values_combine_in_the_order_of_threads() -> None:
    left, right = Var("p", INDEX), Var("q", INDEX)
    digits = Combiner((left,), (right,), (left * 10 + right,), (index(0),))
    a = array("A", (1,), INDEX)
    reduce = ThreadReduce(((a, (index(0),)),), (TY * 3 + TX,), digits, (("threadIdx.x", 3), ("threadIdx.y", 2)))
    out = np.array([9])
    run(launched([a], "A", reduce, (3, 2)), {"A": out})
    assert out.tolist() == [9 * 10 + 12345]


def test_an_argmax_across_threads_has_two_targets() -> None:
    at, value = (Var("p0", INDEX), Var("q0", INDEX)), (Var("p1", "float32"), Var("q1", "float32"))
    better = value[0] >= value[1]
    results = Select(better, at[0], at[1], INDEX), Select(better, value[0], value[1], "float32")
    first = Combiner((at[0], value[0]), (at[1], value[1]), results, (index(-1), Const(float("-inf"), "float32")))
    a, where, most = array("A", (2, 8)), array("where", (2,), INDEX), array("most", (2,))
    init = If(TX.equal(0), Seq((store(where, BX, -1), store(most, BX, float("-inf")))))
    reduce = ThreadReduce(((where, (BX,)), (most, (BX,))), (TX, load(a, BX, TX)), first, (("threadIdx.x", 8),))
    values = np.array([[3, 1, 4, 1, 5, 9, 2, 9], [7, 7, 1, 0, 0, 7, 2, 3]], np.float32)
    found, high = np.zeros(2, np.int64), np.zeros(2, np.float32)
    code = launched([a, where, most], "where most", [init, reduce], (8,), (2,))
    run(code, {"A": values, "where": found, "most": high})
    assert found.tolist() == [5, 0]
    assert high.tolist() == [9, 7]


def test_arrays_that_are_not_contiguous_are_written_in_place() -> None:
    a = array("A", (3, 4), INDEX)
    out = np.zeros((4, 3), np.int64).T
    run(launched([a], "A", store(a, (TY, TX), TY * 10 + TX), (4, 3)), {"A": out})
    assert out.tolist() == [[10 * y + x for x in range(4)] for y in range(3)]


def test_what_belongs_to_the_other_side_is_refused() -> None:
    a, own, wide = array("A", (4,), INDEX), array("own", (4,), INDEX, "local"), array("wide", (4,), INDEX)
    values = {"A": np.zeros(4, np.int64)}
    with pytest.raises(InternalError, match="Barrier cannot stand here"):
        run(kernel("host", [a], "A", Barrier()), values)
    with pytest.raises(InternalError, match=r"allocates own.* in local memory on the host"):
        run(kernel("host", [a], "A", Allocate(own, store(own, 0, 1))), values)
    with pytest.raises(InternalError, match=r"allocates wide.* in global memory in a thread's code"):
        run(launched([a], "A", Allocate(wide, store(wide, TX, 1)), (4,)), values)
    with pytest.raises(InternalError, match=r"a loop over threadIdx\.x is left"):
        run(launched([a], "A", loop(i, 0, 4, store(a, i, 1), LoopKind.BOUND, "threadIdx.x"), (4,)), values)


def test_the_interpreter_takes_kernels_with_launches() -> None:
    a = array("A", (n,), INDEX)
    target = Target("interpreter")
    made = backend("interpreter").compile(launched([a], "A", store(a, TX, TX), (4,), sizes=[n]), target)
    packed = backend("interpreter").pack(made.kernel, target)
    for executable in (made, backend("interpreter").unpack(packed, target)):
        out = np.zeros(4, np.int64)
        executable(out)
        assert out.tolist() == [0, 1, 2, 3]
    assert "device kernel threads" in made.source()
    racing = backend("interpreter").compile(launched([a], "A", store(a, 0, TX), sizes=[n]), target)
    with pytest.raises(InternalError, match="with no barrier between"):
        racing(np.zeros(4, np.int64))
