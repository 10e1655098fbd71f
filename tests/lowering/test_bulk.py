"""Bulk copies through schedules: one thread begins the copy of a tile, all wait for it, and mistakes are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tensorlang import lower
from tensorlang.errors import InternalError
from tensorlang.ir import threads
from tensorlang.ir.expr import as_expr
from tensorlang.ir.stmt import (
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Barrier,
    BoxCopy,
    Kernel,
    Launch,
    LoopKind,
    Seq,
    Stmt,
    map_children,
    walk,
)
from tensorlang.lowering.bulk import _without_loops
from tensorlang.polyhedral.nest import Leaf, Loop, Sequence, Tree
from tensorlang.te.reference import evaluate
from tensorlang.testing.cuda_emulation import emulate_program, unavailable
from tests.lowering.bulk_programs import beside, blurred, given, m, n, product, rows, twice
from tests.programs import Case

emulated = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
HOPPER = "cuda -arch=sm_90a"

CASES: dict[str, tuple[Callable[[], Case], dict[str, int]]] = {
    "a product": (partial(product, (32, 64, 40)), {}),
    "as many tiles of one as of the other": (partial(product, (32, 32, 40), (4, 2)), {}),
    "fewer tiles than stages": (partial(product, (16, 32, 8), (4, 4)), {}),
    "tiles that reach outside": (partial(product, (37, 68, 52)), {}),
    "two stages": (partial(rows, (12, 64), (4, 16), 2), {}),
    "more stages than tiles": (partial(rows, (10, 128), (4, 32), 9, "int8"), {}),
    "several boxes": (partial(rows, (600, 16), (600, 8), 2), {}),
    "four dimensions": (partial(rows, (3, 2, 4, 64), (1, 16)), {}),
    "zeros around": (blurred, {}),
    "the loop runs again": (twice, {}),
    "beside copies of each thread": (beside, {}),
    "beside copies further ahead": (partial(beside, 2, 4), {}),
    "one tile in each run of the loop": (partial(beside, 2, 1, 32, 4), {}),
}
CASE = pytest.mark.parametrize("name", CASES)


def device(kernel: Kernel) -> list[Stmt]:
    """The statements of the kernels."""
    launches = (s for s in walk(kernel.body) if isinstance(s, Launch))
    return [s for launch in launches for s in walk(launch.kernel.body)]


def check(case: Case, kernel: Kernel, sizes: dict[str, int], run: Callable[..., None]) -> None:
    arrays = given(case, sizes)
    *inputs, output = arrays
    wanted = evaluate(case.s.original, {name: arrays[name] for name in inputs}, sizes)[output]
    arrays[output][...] = 99
    run(kernel, arrays, sizes)
    np.testing.assert_array_equal(arrays[output], wanted)


@pytest.mark.covering(1)
@CASE
@pytest.mark.parametrize("late", [False, True])
def test_the_interpreter_finds_no_race(name: str, late: bool) -> None:
    make, sizes = CASES[name]
    case = make()
    kernel = lower(*case, target=HOPPER).kernel
    assert any(isinstance(s, BoxCopy) for s in device(kernel))
    check(case, kernel, sizes, partial(threads.run, late=late))


@pytest.mark.parametrize(("name", "box"), [("four dimensions", (1, 2, 4, 16)), ("several boxes", (200, 8))])
def test_boxes_are_as_large_as_they_can_be(name: str, box: tuple[int, ...]) -> None:
    kernel = lower(*CASES[name][0](), target=HOPPER).kernel
    assert {s.box for s in device(kernel) if isinstance(s, BoxCopy)} == {box}


@emulated
@pytest.mark.parametrize("name", ["tiles that reach outside", "several boxes", "four dimensions", "zeros around"])
def test_the_text_does_the_same(name: str) -> None:
    make, sizes = CASES[name]
    case = make()
    kernel = lower(*case, target=HOPPER).kernel
    for mode in ("late", "at_once"):
        for seed in range(3):
            check(case, kernel, sizes, partial(emulate_program, mode=mode, seed=seed))


def test_sizes_need_not_be_known() -> None:
    case = product((n, 64, m))
    for target in (HOPPER, "interpreter"):
        kernel = lower(*case, target=target).kernel
        for sizes in ({"n": 21, "m": 44}, {"n": 16, "m": 8}, {"n": 3, "m": 0}):
            check(case, kernel, sizes, threads.run)


@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "opencl"])
def test_other_targets_run_the_loops_of_the_stage(target: str) -> None:
    case = beside()
    kernel = lower(*case, target=target).kernel
    assert not any(isinstance(s, BoxCopy) for s in device(kernel))
    assert {s.buffer.name for s in device(kernel) if isinstance(s, AsyncCopy)} == {"A.shared", "B.shared"}
    check(case, kernel, {}, threads.run)


def test_one_thread_copies_and_all_wait_at_the_barriers_that_there_were() -> None:
    case = product((32, 64, 40))
    made, plain = (device(lower(*case, target=f"cuda -arch={arch}").kernel) for arch in ("sm_90", "sm_80"))
    assert [s.pending for s in made if isinstance(s, AsyncWait)] == [1]
    assert sum(isinstance(s, Barrier) for s in made) == sum(isinstance(s, Barrier) for s in plain)
    counting = {s.barriers for s in made if isinstance(s, AsyncWait | AsyncCommit | BoxCopy)}
    (barriers,) = counting
    assert barriers is not None and str(barriers) == "A.shared.filled: uint64[3]"


def test_a_copy_by_itself_is_joined_with_no_other_group() -> None:
    waits = [s for s in device(lower(*beside(), target=HOPPER).kernel) if isinstance(s, AsyncWait)]
    assert {s.barriers is None for s in waits} == {True, False}


def changed(kernel: Kernel, change: Callable[[Stmt], Stmt | None]) -> Kernel:
    """The program with some statements of its launches replaced."""

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Launch):
            return replace(stmt, kernel=replace(stmt.kernel, body=visit(stmt.kernel.body)))
        return change(stmt) or map_children(stmt, visit)

    return replace(kernel, body=visit(kernel.body))


def without(kind: type[Stmt]) -> Callable[[Stmt], Stmt | None]:
    return lambda stmt: Seq(()) if isinstance(stmt, kind) else None


def too_late(stmt: Stmt) -> Stmt | None:
    return replace(stmt, pending=stmt.pending + 1) if isinstance(stmt, AsyncWait) else None


def by_all(stmt: Stmt) -> Stmt | None:
    """The copies without the test which thread begins them."""
    inside = getattr(stmt, "then", None)
    return inside if isinstance(inside, BoxCopy | Seq) and "threadIdx" in str(getattr(stmt, "cond", "")) else None


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(AsyncWait), "while a copy to it by thread .0, 0, 0. is under way"),
        (too_late, "while a copy to it by thread .0, 0, 0. is under way"),
        (without(Barrier), r"with no barrier between|while a copy to it"),
        (without(AsyncCommit), "while a copy to it"),
        (by_all, "64 threads begin a copy that one thread begins for its block"),
    ],
    ids=["no wait", "a wait for too few", "no barrier", "no group", "every thread copies"],
)
@pytest.mark.parametrize("late", [False, True])
def test_mistakes_are_found(change: Callable[[Stmt], Stmt | None], message: str, late: bool) -> None:
    case = product((16, 64, 40), tile=(16, 64, 8))
    kernel = lower(*case, target=HOPPER).kernel
    with pytest.raises(InternalError, match=message):
        threads.run(changed(kernel, change), given(case), late=late)


def test_loops_of_other_stages_stay_around_what_is_copied_in_bulk() -> None:
    """Loops of the stage itself go; one that the statement keeps stays, even with nothing else in it."""

    def loop(name: str, body: Tree) -> Loop:
        return Loop(name, name, "A.shared", as_expr(0), as_expr(4), LoopKind.SERIAL, "", (), body)

    nest = loop("k", loop("i", loop("j", Leaf(0))))
    assert _without_loops(nest, {0: {"k"}}) == loop("k", Leaf(0))
    assert _without_loops(nest, {0: {"k", "i"}}) == loop("k", loop("i", Leaf(0)))
    assert _without_loops(nest, {0: set()}) == Leaf(0)
    assert _without_loops(nest, {1: set()}) == nest
    both = loop("k", Sequence((loop("i", Leaf(0)), Leaf(1))))
    assert _without_loops(both, {0: set()}) == loop("k", Sequence((Leaf(0), Leaf(1))))
