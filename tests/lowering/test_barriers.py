"""Barriers of schedules: as many as dependences between threads need, where they run least often, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tensorlang import lower, te
from tensorlang.ir.stmt import Barrier, For, Kernel, Launch, Stmt, children, walk
from tensorlang.testing.check import check_schedule
from tests.error.device_programs import over_time, rows
from tests.programs import Case
from tests.threaded_programs import shared_matmul


def barriers(kernel: Kernel) -> list[int]:
    """How many loops of the device are around each barrier."""
    found: list[int] = []

    def visit(stmt: Stmt, depth: int) -> None:
        if isinstance(stmt, Barrier):
            found.append(depth)
        for child in children(stmt):
            visit(child, depth + isinstance(stmt, For))

    for launch in walk(kernel.body):
        if isinstance(launch, Launch):
            visit(launch.kernel.body, 0)
    return found


def placed(*steps: Callable[[Any], object], n: Any = 16) -> Case:
    """C in blocks of 8 x 8 with B at a block, after further steps."""
    s, args = rows(n, 16)
    s["C"].tile("i", "j", 8, 8)
    for axis, tag in (("i_o", "blockIdx.y"), ("j_o", "blockIdx.x"), ("i_i", "threadIdx.y"), ("j_i", "threadIdx.x")):
        s["C"].bind(axis, tag)
    s["B"].compute_at(s["C"], "j_o")
    s["B"].set_scope("shared")
    for step in steps:
        step(s)
    return Case(s, args)


def own_elements() -> Case:
    """Each thread reads what it wrote itself."""
    A = te.placeholder((32,), name="A")
    B = te.compute((32,), lambda i: A[i] + 1, name="B")
    C = te.compute((32,), lambda i: B[i] * 2, name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", 8)
    s[C].bind("i_o", "blockIdx.x")
    s[C].bind("i_i", "threadIdx.x")
    s[B].compute_at(s[C], "i_o")
    s[B].set_scope("shared")
    s[B].bind("i", "threadIdx.x")
    return Case(s, (A, C))


def mirrored(first: int = 0) -> Case:
    """Each thread reads what another one wrote; the loop that writes is numbered from `first` on."""
    s, args = own_elements()
    A = args[0]
    B = te.compute((32,), lambda i: A[i] + 1, name="B")
    C = te.compute((32,), lambda i: B[31 - i] * 2, name="C")
    s = te.create_schedule(C.op)
    s[C].split("i", 8)
    s[C].bind("i_o", "blockIdx.x")
    s[C].bind("i_i", "threadIdx.x")
    s[B].compute_at(s[C], "i_o")
    s[B].set_scope("shared")
    axis = str(s[B].shift("i", first)) if first else "i"
    s[B].bind(axis, "threadIdx.x")
    return Case(s, (A, C))


def bind_b(s: Any) -> None:
    s["B"].bind("i", "threadIdx.y")
    s["B"].bind("j", "threadIdx.x")


CASES: dict[str, tuple[Callable[[], Case], list[int]]] = {
    "computed by one thread": (placed, [0]),
    "computed by all threads": (lambda: placed(bind_b), [0]),
    "of any number of rows": (lambda: placed(bind_b, n=te.var("n")), [1, 1]),  # and between blocks that run in turn
    "each thread its own element": (own_elements, []),
    "other threads' elements": (mirrored, [0]),
    "threads numbered from 5 on": (lambda: mirrored(5), [0]),
    "tiles in a loop": (lambda: shared_matmul(16, 16, 32), [1, 1]),
    "a block alone": (lambda: shared_matmul(8, 8, 16), [1, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_barriers_are_those_that_are_needed(name: str) -> None:
    make, depths = CASES[name]
    s, args = make()
    assert barriers(lower(s, args, target="interpreter").kernel) == depths
    for size in (1, 13) if any(str(v) == "n" for v in s.program.sizes) else (None,):
        check_schedule(s, args, {} if size is None else {"n": size}, targets=("interpreter",))


def test_launches_of_the_host_need_no_barrier() -> None:
    s, args = over_time()
    s["sums"].bind("i", "threadIdx.x")
    assert barriers(lower(s, args, target="interpreter").kernel) == []
    check_schedule(s, args, targets=("interpreter",))


def test_parts_of_a_peeled_thread_loop_run_on_threads_of_one_number() -> None:
    """Parts of a loop on threads that isl makes without a loop still run where the barriers expect them."""
    T = te.compute((5, 9), lambda i, j: i, name="T")
    s = te.create_schedule(T.op)
    s.cache_write("T", "shared")
    s["T"].tile("i", "j", 4, 8, tail="peel")
    for axis, tag in (("i_o", "blockIdx.x"), ("j_o", "blockIdx.y"), ("i_i", "threadIdx.z"), ("j_i", "threadIdx.y")):
        s["T"].bind(axis, tag)
    s["T.shared"].compute_at(s["T"], "j_i")
    s["T.shared"].fuse("i", "j")
    s["T.shared"].split("i_j_fused", 3, tail="peel")
    s["T.shared"].bind("i_j_fused_i", "threadIdx.x")
    (launch,) = (x for x in walk(lower(s, (T,), target="interpreter").kernel.body) if isinstance(x, Launch))
    assert [str(extent) for extent in launch.kernel.grid] == ["2", "2", "1"]
    check_schedule(s, (T,), targets=("interpreter",))
