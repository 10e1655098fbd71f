"""Asynchronous copies: nobody sees them before they are waited for, whenever they really happen."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tensorlang.errors import InternalError
from tensorlang.ir.construct import StmtLike, array, index, indices, load, loop, store
from tensorlang.ir.expr import Expr, binary
from tensorlang.ir.stmt import (
    INDEX,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    If,
    Seq,
    Stmt,
)
from tensorlang.ir.threads import run
from tests.launches import BX, TX, launched

N = 8  # threads
STEPS = 6
A = array("A", (STEPS, 4 * N), INDEX)
OUT = array("out", (STEPS, 4 * N), INDEX)
i, j, k = indices("i j k")
COMMIT = AsyncCommit()


def result(body: StmtLike, planes: int, late: bool, check: bool = True) -> np.ndarray:
    """The array `out` of code over planes of shared memory."""
    tile = array("tile", (planes, 4 * N), INDEX, "shared")
    out = np.zeros((STEPS, 4 * N), np.int64)
    code = launched([A, OUT], "A out", body, (N,), scratch=[tile])
    run(code, {"A": np.arange(out.size).reshape(out.shape), "out": out}, late=late, check=check)
    return out


def copied(planes: int, step: Expr, valid: Expr | None = None) -> Seq:
    """Four elements a thread into the plane of a step, as one group."""
    tile = array("tile", (planes, 4 * N), INDEX, "shared")
    to = binary("floormod", step, index(planes)), TX * index(4)
    return Seq((AsyncCopy(tile, to, A, (step, TX * index(4)), 4, valid), COMMIT))


def pipeline(planes: int, pending: int, early: bool = False, barrier: bool = True) -> list[Stmt]:
    """Steps that turn rows around, with copies begun `planes - 1` steps ahead; `early`: before the barrier."""
    tile = array("tile", (planes, 4 * N), INDEX, "shared")
    ahead = copied(planes, i + index(planes - 1))
    begin = If(i + index(planes - 1) < index(STEPS), ahead, COMMIT)
    wait: list[Stmt] = [AsyncWait(pending), *([Barrier()] if barrier else [])]
    at = TX * index(4) + k
    turn = store(OUT, (i, at), load(tile, binary("floormod", i, index(planes)), index(4 * N - 1) - at))
    step = [begin, *wait] if early else [*wait, begin]
    return [
        *(copied(planes, index(first)) for first in range(planes - 1)),
        loop(i, 0, STEPS, [*step, loop(k, 0, 4, turn)]),
    ]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("planes", [2, 3, 4])
def test_a_pipeline_with_one_barrier_a_step(planes: int, late: bool) -> None:
    out = result(pipeline(planes, planes - 2), planes, late)
    np.testing.assert_array_equal(out, np.arange(out.size).reshape(out.shape)[:, ::-1])


@pytest.mark.parametrize("late", [False, True])
def test_a_wait_for_too_few_groups(late: bool) -> None:
    with pytest.raises(
        InternalError, match=r"reads tile\[0, 31\] while a copy to it by thread \(7, 0, 0\) is under way"
    ):
        result(pipeline(3, 2), 3, late)
    wrong = result(pipeline(3, 2), 3, late, check=False)
    assert late == bool((wrong != np.arange(wrong.size).reshape(wrong.shape)[:, ::-1]).any())


@pytest.mark.parametrize("late", [False, True])
def test_a_copy_begun_before_the_barrier_that_frees_its_plane(late: bool) -> None:
    with pytest.raises(InternalError, match=r"\(7, 0, 0\) writes tile\[0, 31\] and thread \(0, 0, 0\) reads it"):
        result(pipeline(2, 1, early=True), 2, late)


@pytest.mark.parametrize("late", [False, True])
def test_a_wait_joins_a_thread_with_itself_only(late: bool) -> None:
    with pytest.raises(InternalError, match=r"\(7, 0, 0\) writes tile\[0, 31\] and thread \(0, 0, 0\) reads it"):
        result(pipeline(3, 1, barrier=False), 3, late)
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    turn = store(OUT, (0, TX), load(tile, 0, index(4 * N - 1) - TX))
    with pytest.raises(InternalError, match=r"\(7, 0, 0\) writes tile\[0, 31\] and thread \(0, 0, 0\) reads it"):
        result([copied(1, index(0)), Barrier(), AsyncWait(0), turn], 1, late)
    own = store(OUT, (0, TX * index(4) + k), load(tile, 0, TX * index(4) + k))
    body: list[Stmt] = [copied(1, index(0)), AsyncWait(0), loop(k, 0, 4, own)]
    assert result(body, 1, late)[0].tolist() == list(range(4 * N))


def while_under_way() -> list[tuple[Callable[[], Stmt], str]]:
    """Statements, and what they do to an element that a copy goes to."""
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    return [
        (lambda: store(OUT, (0, TX), load(tile, 0, TX * index(4))), "reads"),
        (lambda: store(tile, (0, TX * index(4)), 0), "writes"),
        (lambda: copied(1, index(0)), "writes"),
        (lambda: AtomicUpdate(tile, (index(0), TX * index(4)), "add", index(1)), "updates"),
    ]


@pytest.mark.parametrize(("then", "verb"), while_under_way())
@pytest.mark.parametrize("before", [(), (AsyncWait(1),), (Barrier(),)])
def test_nobody_touches_what_is_under_way(then: Callable[[], Stmt], verb: str, before: Sequence[Stmt]) -> None:
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    filled: list[Stmt] = [loop(k, 0, 4, store(tile, (0, TX * index(4) + k), 0)), copied(1, index(0))]
    message = rf"thread \(0, 0, 0\) .* {verb} tile\[0, 0\] while a copy to it by thread \(0, 0, 0\) is under way"
    with pytest.raises(InternalError, match=message):
        result([*filled, *before, then()], 1, False)
    result([*filled, AsyncWait(0), then()], 1, True)


@pytest.mark.parametrize("late", [False, True])
def test_a_group_that_is_not_closed_is_not_waited_for(late: bool) -> None:
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    begin = AsyncCopy(tile, (index(0), TX), A, (index(0), TX), 1)
    use = store(OUT, (0, TX), load(tile, 0, TX))
    with pytest.raises(InternalError, match="is under way"):
        result([begin, AsyncWait(0), use], 1, late)
    with pytest.raises(InternalError, match="is under way"):
        result([begin, COMMIT, If(TX < 4, AsyncWait(0)), use], 1, late)
    with pytest.raises(InternalError, match=r"thread \(4, 0, 0\) .* is under way"):
        result([begin, COMMIT, If(TX < 4, COMMIT), AsyncWait(1), use], 1, late)
    assert result([begin, COMMIT, COMMIT, AsyncWait(1), use], 1, late)[0, :N].tolist() == list(range(N))


@pytest.mark.parametrize("late", [False, True])
def test_zeros_where_a_copy_is_not_valid(late: bool) -> None:
    """The source of those lies outside."""
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    inside = TX >= 3
    copy = AsyncCopy(tile, (index(0), TX), A, (index(0), TX - 3), 1, inside)
    own = store(OUT, (0, TX), load(tile, 0, TX))
    out = result([copy, COMMIT, AsyncWait(0), own], 1, late)
    assert out[0, :N].tolist() == [0, 0, 0, 0, 1, 2, 3, 4]


def test_all_elements_of_a_copy_lie_inside() -> None:
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    with pytest.raises(InternalError, match=r"\(7, 0, 0\) .* goes to tile\[0, 29\], outside"):
        result(AsyncCopy(tile, (index(0), TX * index(4) + 1), A, (index(0), TX), 4), 1, False)
    with pytest.raises(InternalError, match=r"\(5, 0, 0\) .* goes to A\[0, 29\], outside"):
        result(AsyncCopy(tile, (index(0), TX * index(4)), A, (index(0), TX + 24), 4), 1, False)
    with pytest.raises(InternalError, match=r"writes tile\[0, 1\] and thread"):
        result(AsyncCopy(tile, (index(0), TX), A, (index(0), TX), 2), 1, False)


@pytest.mark.parametrize("late", [False, True])
def test_nobody_writes_the_source_of_a_copy(late: bool) -> None:
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    begin = AsyncCopy(tile, (index(0), TX), A, (index(0), TX), 1)
    other, own = store(A, (0, TX + 1), 0), store(A, (0, TX), 0)
    with pytest.raises(InternalError, match=r"writes A\[0, 1\] and thread \(0, 0, 0\) reads it"):
        result([own, AsyncCopy(tile, (index(0), TX), A, (index(0), TX + 1), 1)], 1, late)
    with pytest.raises(InternalError, match=r"\(0, 0, 0\) writes A\[0, 1\] and thread \(1, 0, 0\) reads it"):
        result([begin, COMMIT, AsyncWait(0), other], 1, late)
    for unwaited in (own, Seq((Barrier(), other))):
        with pytest.raises(
            InternalError, match=r"\(0, 0, 0\) .* writes A\[0, [01]\] while a copy from it is under way"
        ):
            result([begin, COMMIT, AsyncWait(1), unwaited], 1, late)
    result([begin, COMMIT, AsyncWait(0), own, Barrier(), other], 1, late)


@pytest.mark.parametrize("late", [False, True])
def test_copies_of_a_block_end_with_it(late: bool) -> None:
    tile = array("tile", (1, 4 * N), INDEX, "shared")
    begin = AsyncCopy(tile, (index(0), TX), A, (index(0), TX), 1)

    def blocks(second: Stmt) -> None:
        code = launched([A], "A", If(BX.equal(0), begin, second), (N,), (2,), [tile])
        run(code, {"A": np.zeros((STEPS, 4 * N), np.int64)}, late=late)

    blocks(store(tile, (0, TX), 0))
    with pytest.raises(InternalError, match="blocks run in any order"):
        blocks(store(A, (0, TX), 0))
