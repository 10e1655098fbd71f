"""Bulk copies under the interpreter: one thread begins them, zeros lie outside, and barriers are used in turn."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from tensorlang.errors import InternalError
from tensorlang.ir.construct import array, index, load, store
from tensorlang.ir.stmt import INDEX, AsyncCommit, AsyncWait, Barrier, BoxCopy, If, Stmt
from tensorlang.ir.threads import run
from tests.launches import TX, launched

N = 8  # threads
A = array("A", (6, 10), INDEX)
OUT = array("out", (4, N), INDEX)
TILE = array("tile", (2, 4, N), INDEX, "shared")
FILLED = array("filled", (2,), "uint64", "shared")
COMMIT, DONE = AsyncCommit(FILLED), AsyncWait(0, FILLED)
NUMBERS = np.arange(60).reshape(6, 10)
late = pytest.mark.parametrize("late", [False, True])


def box(row: int, column: int, plane: int = 0) -> BoxCopy:
    """Four rows of eight elements from some place on, to a plane."""
    zero = index(0)
    return BoxCopy(TILE, (index(plane), zero, zero), A, (index(row), index(column)), (4, N), FILLED)


def begun(*copies: Stmt) -> list[Stmt]:
    return [If(TX < 1, copy) for copy in copies]


def stored(plane: int = 0) -> list[Stmt]:
    return [store(OUT, (row, TX), load(TILE, plane, row, TX)) for row in range(4)]


def result(body: Sequence[Stmt], late: bool) -> np.ndarray:
    out = np.zeros((4, N), np.int64)
    code = launched([A, OUT], "A out", list(body), (N,), scratch=[TILE, FILLED])
    run(code, {"A": NUMBERS, "out": out}, late=late)
    return out


@late
@pytest.mark.parametrize(("row", "column"), [(0, 0), (1, 2), (4, 5), (-2, -3), (9, 20)])
def test_what_lies_outside_is_zero(row: int, column: int, late: bool) -> None:
    around = np.pad(NUMBERS, 30)[30 + row : 34 + row, 30 + column : 38 + column]
    found = result([*begun(box(row, column)), COMMIT, DONE, Barrier(), *stored()], late)
    np.testing.assert_array_equal(found, around)


@late
def test_all_copies_of_a_group_are_waited_for(late: bool) -> None:
    body = [*begun(box(0, 0), box(1, 1, 1)), COMMIT, *begun(box(2, 2)), COMMIT]
    with pytest.raises(InternalError, match=r"reads tile\[0, 0, 0\] while a copy to it by thread \(0, 0, 0\) is under"):
        result([*begun(box(0, 0)), COMMIT, COMMIT, AsyncWait(2, FILLED), Barrier(), *stored()], late)
    with pytest.raises(InternalError, match=r"writes tile\[0, 0, 0\] while a copy to it"):
        result(body, late)
    planes = [*begun(box(0, 0), box(1, 1, 1)), COMMIT, DONE, Barrier(), *stored(1)]
    np.testing.assert_array_equal(result(planes, late), NUMBERS[1:5, 1:9])


@late
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([box(0, 0)], "8 threads begin a copy that one thread begins for its block"),
        ([*begun(box(0, 0)), COMMIT], "a block ends while a copy to tile is under way"),
        (
            [COMMIT, COMMIT, COMMIT],
            "a group of copies takes a barrier at which threads wait for an earlier group",
        ),
        (
            begun(BoxCopy(TILE, (index(1), index(1), index(0)), A, (index(0), index(0)), (4, N), FILLED)),
            "a box (4, 8) reaches outside of tile",
        ),
        ([*begun(box(0, 0)), COMMIT, DONE, *stored()], "with no barrier between"),
    ],
)
def test_mistakes_are_found(body: list[Stmt], message: str, late: bool) -> None:
    with pytest.raises(InternalError, match=re.escape(message)):
        result(body, late)


def test_groups_of_other_barriers_are_counted_apart() -> None:
    other = array("other", (2,), "uint64", "shared")
    waits: list[Stmt] = [AsyncCommit(other), AsyncCommit(other), AsyncWait(0, other), *[AsyncCommit(other)] * 2]
    found = result([*begun(box(0, 0)), COMMIT, *waits, DONE, Barrier(), *stored()], True)
    np.testing.assert_array_equal(found, NUMBERS[:4, :8])
