"""Copies that run while threads compute: which arrays, where groups are closed, and how many may be under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorlang import lower, te
from tensorlang.ir import threads
from tensorlang.ir.stmt import AsyncCommit, AsyncCopy, AsyncWait, Kernel, Launch, Stmt, walk
from tests.programs import Case


def device(kernel: Kernel) -> list[Stmt]:
    """The statements of the kernels."""
    launches = (s for s in walk(kernel.body) if isinstance(s, Launch))
    return [s for launch in launches for s in walk(launch.kernel.body)]


def pending(kernel: Kernel) -> set[int]:
    return {s.pending for s in device(kernel) if isinstance(s, AsyncWait)}


def strips(stages: int, body: Any = lambda a: a, where: str = "shared") -> Case:
    """C = the mirrored strips of 4 of a row; a copy of each strip is made ahead."""
    A = te.placeholder((3, 30), name="A")
    P = te.compute((3, 30), lambda i, j: body(A[i, j]), name="P")
    C = te.compute((3, 30), lambda i, j: P[i, 29 - j], name="C")
    s = te.create_schedule(C.op)
    s[C].split("j", 4)
    s[C].bind("i", "blockIdx.x")
    s[C].bind("j_i", "threadIdx.x")
    s[P].compute_at(s[C], "j_o")
    s[P].set_scope(where)
    if where == "shared":
        s[P].bind("j", "threadIdx.x")
    s[P].pipeline(stages)
    return Case(s, (A, C))


def run(case: Case) -> None:
    s, args = case
    kernel = lower(s, args, target="interpreter").kernel
    a = np.arange(90, dtype=np.float32).reshape(3, 30)
    for late in (False, True):
        out = np.zeros_like(a)
        threads.run(kernel, {"A": a, "C": out}, late=late)
        np.testing.assert_array_equal(out, a[:, ::-1])


@pytest.mark.parametrize("stages", [2, 3, 4, 5, 9])
def test_all_tiles_but_the_one_that_is_read_may_be_under_way(stages: int) -> None:
    case = strips(stages)
    kernel = lower(*case, target="interpreter").kernel
    assert any(isinstance(s, AsyncCopy) for s in device(kernel)) and any(
        isinstance(s, AsyncCommit) for s in device(kernel)
    )
    assert max(pending(kernel)) == stages - 2
    run(case)


def test_what_is_computed_is_no_copy() -> None:
    s, args = strips(3, lambda a: a * 2)
    assert not any(isinstance(x, AsyncCopy | AsyncWait) for x in device(lower(s, args, target="interpreter").kernel))


def test_what_a_thread_has_for_itself_is_no_copy_under_way() -> None:
    A = te.placeholder((8, 12), name="A")
    C = te.compute((8, 12), lambda i, j: A[i, j] + 1, name="C")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "local", [C])
    s[C].bind("i", "threadIdx.x")
    s[C].split("j", 3)
    s[copy].compute_at(s[C], "j_o")
    s[copy].pipeline(3)
    assert not any(isinstance(x, AsyncCopy) for x in device(lower(s, (A, C), target="interpreter").kernel))


def test_a_wait_after_the_read_is_for_the_tile_of_the_next_iteration() -> None:
    """The barrier may stand at the end of the body: then one tile fewer may be under way."""
    A = te.placeholder((1,), name="A")
    B = te.compute((7,), lambda i: A[0], name="B")
    C = te.compute((3, 4), lambda i, j: B[i], name="C")
    s = te.create_schedule(C.op)
    copy = s.cache_read(A, "shared", [B])
    s[C].tile("i", "j", 4, 8)
    for axis, tag in (("i_o", "blockIdx.x"), ("j_o", "blockIdx.y"), ("i_i", "threadIdx.x"), ("j_i", "threadIdx.y")):
        s[C].bind(axis, tag)
    s[B].compute_at(s[C], "j_i")
    s[B].set_scope("shared")
    s[B].split("i", 2)
    s[B].bind("i_i", "threadIdx.z")
    s[copy].compute_at(s[B], "i_o")
    s[copy].pipeline(3)
    kernel = lower(s, (A, C), target="interpreter").kernel
    assert pending(kernel) == {1}
    for late in (False, True):
        out = np.zeros((3, 4), np.float32)
        threads.run(kernel, {"A": np.full(1, 7, np.float32), "C": out}, late=late)
        assert (out == 7).all()
