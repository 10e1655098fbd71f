"""Loops on threads that reduce together: partial results, their combination, and who stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tensorlang.errors import InternalError, TargetError
from tensorlang.ir import interpret, threads
from tensorlang.ir.construct import StmtLike, array, indices, kernel, load, loop, store
from tensorlang.ir.expr import Buffer, Const, Expr, Load, Select, Var, binary, cast, const
from tensorlang.ir.loops import THREAD_REDUCE
from tensorlang.ir.stmt import (
    Allocate,
    Barrier,
    Combiner,
    DeviceKernel,
    For,
    If,
    Kernel,
    Launch,
    Let,
    LoopKind,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    walk,
)
from tensorlang.ir.verify import verify
from tensorlang.lowering.pipeline import to_device

b, i, j, k, o, r = indices("b i j k o r")
A, S = array("A", (20, 40), "int32"), array("S", (20,), "int32")
SUM = Combiner(
    (Var("x", "int32"),),
    (Var("y", "int32"),),
    (Var("x", "int32") + Var("y", "int32"),),
    (Const(0, "int32"),),
)


def bound(var: Var, extent: Expr | int, body: StmtLike, thread: str, reduce: bool = False) -> For:
    made = loop(var, 0, extent, body, LoopKind.BOUND, thread)
    return replace(made, pragmas=((THREAD_REDUCE, 1),)) if reduce else made


def add(buffer: Buffer, index: tuple[Expr, ...], value: Expr) -> Store:
    return Store(buffer, index, Load(buffer, index) + value)


def same(source: Kernel, reducers: Mapping[str, Combiner]) -> DeviceKernel:
    """Compare the kernel on the device with itself in series; return its only launch."""
    verify(source)
    made = to_device(source, reducers)
    verify(made)
    random = np.random.default_rng(1)
    wanted: dict[str, np.ndarray[Any, Any]] = {}
    for p in source.params:
        shape = tuple(int(e.value) for e in p.shape if isinstance(e, Const))
        wanted[p.name] = random.integers(-9, 9, shape).astype(p.dtype)
    got = {name: x.copy() for name, x in wanted.items()}
    interpret.run(source, wanted)
    threads.run(made, got)
    for name, x in wanted.items():
        np.testing.assert_array_equal(got[name], x, err_msg=name)
    (launch,) = (s for s in walk(made.body) if isinstance(s, Launch))
    return launch.kernel


def reductions(made: DeviceKernel) -> list[ThreadReduce]:
    return [s for s in walk(made.body) if isinstance(s, ThreadReduce)]


def rows(body: StmtLike, rows: int = 4) -> Kernel:
    """Blocks of rows on threadIdx.y."""
    return kernel("rows", [A, S], "S", bound(b, 20 // rows, body, "blockIdx.x"))


def test_rows_beside_reduced_columns() -> None:
    row = 4 * b + r
    inner = bound(k, 8, loop(o, 0, 5, add(S, (row,), load(A, row, 8 * o + k))), "threadIdx.x", reduce=True)
    made = same(rows(bound(r, 4, [store(S, row, 3), inner], "threadIdx.y")), {"S": SUM})
    (combined,) = reductions(made)
    assert combined.threads == (("threadIdx.x", 8),) and made.block == (8, 4, 1)


def test_columns_around_rows() -> None:
    row = 4 * b + r
    inner = bound(r, 4, loop(o, 0, 5, add(S, (row,), load(A, row, 8 * o + k))), "threadIdx.y")
    same(rows(bound(k, 8, inner, "threadIdx.x", reduce=True)), {"S": SUM})


def test_two_axes_reduce() -> None:
    row = 4 * b + o
    body = bound(j, 5, bound(k, 8, add(S, (row,), load(A, row, 8 * j + k)), "threadIdx.x", True), "threadIdx.y", True)
    made = same(rows(loop(o, 0, 4, body)), {"S": SUM})
    (combined,) = reductions(made)
    assert combined.threads == (("threadIdx.x", 8), ("threadIdx.y", 5))


@pytest.mark.parametrize("test", [8 * o + k < 37, 40 * (8 * b + r) + 8 * o + k < 773])
def test_rows_beyond_the_end_are_not_touched(test: Expr) -> None:
    # Three blocks of 8 rows, of which there are 20; the second test alone does not tell the rows.
    row = 8 * b + r
    inner = loop(o, 0, 5, If(test, add(S, (row,), load(A, row, 8 * o + k))))
    guarded: Stmt = inner if "b" in str(test) else If(row < 20, inner)
    body = bound(r, 8, bound(k, 8, guarded, "threadIdx.x", reduce=True), "threadIdx.y")
    same(kernel("rows", [A, S], "S", bound(b, 3, body, "blockIdx.x")), {"S": SUM})


def test_a_loop_of_rows_inside_whose_length_differs() -> None:
    # Threads r = 0..3 have r + 1 rows each.
    row = 5 * r + j
    inner = loop(j, 0, r + 1, bound(k, 8, add(S, (row,), load(A, row, k)), "threadIdx.x", reduce=True))
    same(kernel("rows", [A, S], "S", bound(b, 1, bound(r, 4, inner, "threadIdx.y"), "blockIdx.x")), {"S": SUM})


def test_threads_reduce_after_a_serial_loop_around_them() -> None:
    row = 8 * b + r
    update = If(row < 20, add(S, (row,), load(A, row, 8 * o + k)))
    length = binary("min", Const(8, "int64"), 37 - 8 * o)
    region = bound(r, 8, bound(k, length, update, "threadIdx.x", reduce=True), "threadIdx.y")
    body = loop(o, 0, 5, If(binary("le", o, b + 3), region))
    made = same(kernel("rows", [A, S], "S", bound(b, 3, body, "blockIdx.x")), {"S": SUM})
    assert reductions(made)
    assert not any(isinstance(s, For) and any(isinstance(x, ThreadReduce) for x in walk(s)) for s in walk(made.body))


def test_several_elements() -> None:
    # The loop over rows is inside: each of its iterations is a reduction of its own.
    row = 4 * b + j
    body = bound(k, 8, loop(o, 0, 5, loop(j, 0, 4, add(S, (row,), load(A, row, 8 * o + k)))), "threadIdx.x", True)
    same(rows(body), {"S": SUM})
    lanes = loop(j, 0, 4, add(S, (row,), load(A, row, k)), LoopKind.VECTORIZED)
    same(rows(bound(k, 8, lanes, "threadIdx.x", True)), {"S": SUM})


def test_a_region_of_fewer_threads_than_the_block() -> None:
    more = bound(i, 32, store(A, (b, i), 1), "threadIdx.x")
    body = Seq((bound(k, 7, add(S, (b,), load(A, b, k)), "threadIdx.x", True), Barrier(), more))
    made = same(kernel("few", [A, S], "A S", bound(b, 20, body, "blockIdx.x")), {"S": SUM})
    assert reductions(made)[0].threads == (("threadIdx.x", 7),) and made.block == (32, 1, 1)


def test_every_thread_has_the_result() -> None:
    # t has a copy for each row; all threads of the row read it.
    t = array("t", (4,), "int32", "local")
    row = 4 * b + r
    body = Seq((
        bound(r, 4, store(t, r, 2), "threadIdx.y"),
        bound(r, 4, bound(k, 8, loop(o, 0, 5, add(t, (r,), load(A, row, 8 * o + k))), "threadIdx.x", True),
              "threadIdx.y"),
        bound(r, 4, bound(i, 10, loop(o, 0, 4, store(A, (row, 10 * o + i), load(t, r))), "threadIdx.x"),
              "threadIdx.y"),
    ))  # fmt: skip
    # Threads write what others have read: the barrier before.
    parts = list(body.body)
    parts.insert(2, Barrier())
    body = Seq(tuple(parts))
    made = same(kernel("own", [A, S], "A S", bound(b, 5, Allocate(t, body, ("threadIdx.y",)), "blockIdx.x")),
                {"t": SUM})  # fmt: skip
    assert reductions(made)[0].threads == (("threadIdx.x", 10),)


def test_tuples() -> None:
    """Argmax: of equal values the first column."""
    v, at = array("V", (20,), "int32"), array("P", (20,), "int32")
    x, y = (tuple(Var(f"{name}{n}", "int32") for n in range(2)) for name in "xy")
    first = binary("or", x[0] > y[0], binary("and", binary("eq", x[0], y[0]), x[1] < y[1]))
    results = Select(first, x[0], y[0], "int32"), Select(first, x[1], y[1], "int32")
    argmax = Combiner(x, y, results, (const(-(2**31), "int32"), const(2**31 - 1, "int32")))
    row, column = 4 * b + r, 8 * o + k
    place = cast(column, "int32")
    old, value = (load(v, row), load(at, row)), load(A, row, column)
    better = binary("or", old[0] > value, binary("and", binary("eq", old[0], value), old[1] < place))
    new = Var("V.new", "int32"), Var("P.new", "int32")
    stores = Seq((store(v, row, new[0]), store(at, row, new[1])))
    update = Let(new[0], Select(better, old[0], value, "int32"),
                 Let(new[1], Select(better, old[1], place, "int32"), stores))  # fmt: skip
    body = bound(r, 4, bound(k, 8, loop(o, 0, 5, update), "threadIdx.x", True), "threadIdx.y")
    source = kernel("argmax", [A, v, at], "V P", bound(b, 5, body, "blockIdx.x"))
    assert len(reductions(same(source, {"V": argmax, "P": argmax}))) == 1


def test_what_is_no_reduction() -> None:
    with pytest.raises(InternalError, match="update different elements"):
        to_device(rows(bound(k, 8, add(S, (k,), load(A, b, k)), "threadIdx.x", True)), {"S": SUM})
    with pytest.raises(InternalError, match="is no update"):
        to_device(rows(bound(k, 8, store(S, b, 1), "threadIdx.x", True)), {})
    length = cast(load(A, r, 0), "int64")
    inner = loop(j, 0, length, bound(k, 8, add(S, (j,), load(A, j, k)), "threadIdx.x", True))
    with pytest.raises(TargetError, match=r"inside the loop j .* not the same for all of them"):
        to_device(rows(bound(r, 4, inner, "threadIdx.y")), {"S": SUM})
