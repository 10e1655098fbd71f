"""Scratch memory: kept by each thread, reused by every call, and counted by `memory()`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorlang
from tensorlang.errors import ArgumentError, TargetError
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Expr, Var
from tensorlang.ir.stmt import Allocate, CallPython, Kernel, LoopKind, Seq
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.memory import Memory
from tensorlang.runtime.threads import arena, release_scratch
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse

_ROOT = Path(__file__).parents[2]
i, j, n = indices("i j n")
Watch = Callable[[np.ndarray[Any, Any]], None]


def _compiled(kernel: Kernel, cores: int = 2) -> Executable:
    return backend("llvm").compile(kernel, parse(f"llvm -num-cores={cores}"))


def _shared(size: int | Expr, watch: Watch, sizes: tuple[Var, ...] = ()) -> Executable:
    """A kernel that uses `size` floats of scratch, and shows them to a Python function."""
    out, scratch = array("out", (n if sizes else 4,)), array("scratch", (size,))
    body = Seq((store(scratch, 0, 1.0), CallPython("watch", (scratch,)), store(out, 0, load(scratch, 0))))
    return _compiled(Kernel("shared", (out,), sizes, ("out",), Allocate(scratch, body), (("watch", watch),)))


def _both(shared: int, own: int, count: int, watch: Watch, cores: int = 2) -> Executable:
    """A kernel with scratch of the call, and of each thread of a team."""
    out, whole, mine = array("out", (count,)), array("whole", (shared,)), array("mine", (own,))
    inside = Seq((store(mine, 0, 1.0), CallPython("watch", (mine,)), store(out, i, load(mine, 0) + load(whole, 0))))
    region = loop(i, 0, count, Allocate(mine, inside), LoopKind.PARALLEL)
    body = Allocate(whole, Seq((store(whole, 0, 1.0), region)))
    return _compiled(Kernel("both", (out,), (), ("out",), body, (("watch", watch),)), cores)


def test_memory_is_what_is_in_use() -> None:
    used: list[int] = []
    kernel = _shared(1001, lambda _: used.append(arena()[1]))
    kernel(np.zeros(4, "f4"))
    assert kernel.memory() == Memory(shared=4032)  # 4004 bytes, in whole cache lines
    assert used == [4032]
    assert arena()[1] == 0


def test_memory_of_teams_is_what_is_in_use() -> None:
    here, seen = threading.get_ident(), dict[int, int]()

    def watch(_: object) -> None:
        seen[threading.get_ident()] = arena()[1]

    kernel = _both(1000, 100, 8, watch)
    kernel(np.zeros(8, "f4"))
    memory = kernel.memory()
    assert memory == Memory(shared=4032, per_thread=448, threads=2)
    assert (memory.total, str(memory)) == (4928, "4928 bytes: 4032 shared + 448 in each of 2 threads")
    assert len(seen) == 2
    assert {used for thread, used in seen.items() if thread != here} == {448}
    assert seen[here] == 4032 + 448


def test_memory_depends_on_sizes_and_iterations() -> None:
    kernel = _shared(n * 3, lambda _: None, (n,))
    assert kernel.memory(n=100) == Memory(1216)
    assert kernel.memory(n=0) == Memory(64)
    assert _both(10, 10, 1, lambda _: None, cores=4).memory() == Memory(64, 64, 1)
    assert _both(10, 10, 3, lambda _: None, cores=4).memory() == Memory(64, 64, 3)
    for sizes in ({}, {"m": 1}, {"n": 1, "m": 1}):
        with pytest.raises(ArgumentError, match="memory: expected the sizes n, got"):
            kernel.memory(**sizes)


def test_memory_without_scratch() -> None:
    out, small = array("out", (4,)), array("small", (4,), scope="local")
    body = loop(i, 0, 4, Allocate(small, Seq((store(small, 0, 1.0), store(out, i, load(small, 0))))))
    kernel = Kernel("small", (out,), (), ("out",), body)
    assert _compiled(kernel).memory() == Memory(0)
    with pytest.raises(TargetError, match="interpreter does not count scratch memory"):
        backend("interpreter").compile(kernel, parse("interpreter")).memory()


def test_a_warm_call_finds_its_memory_where_it_was() -> None:
    places: set[int] = set()
    kernel = _both(300_000, 5000, 8, lambda mine: places.add(mine.__array_interface__["data"][0]))
    values = np.zeros(8, "f4")
    kernel(values)
    kernel(values)
    places.clear()
    kept = arena()
    for _ in range(1000):
        kernel(values)
    assert (values == 2).all()
    assert arena() == kept
    assert len(places) == 2  # one for each thread


def test_pieces_begin_at_cache_lines_of_their_own() -> None:
    places: dict[int, int] = {}
    kernel = _both(10, 10, 8, lambda mine: places.update({threading.get_ident(): mine.__array_interface__["data"][0]}))
    kernel(np.zeros(8, "f4"))
    first, second = places.values()
    assert first % 64 == second % 64 == 0
    assert abs(first - second) >= 64


def test_a_call_within_a_call_takes_memory_of_its_own() -> None:
    release_scratch()
    inner_values, kept = np.zeros(4, "f4"), []
    inner = _shared(50_000, lambda scratch: scratch.fill(7))

    def call(scratch: np.ndarray[Any, Any]) -> None:
        scratch.fill(3)
        inner(inner_values)
        kept.append((float(scratch.min()), float(scratch.max()), arena()[1]))

    outer = _shared(20_000, call)
    for _ in range(3):
        outer(np.zeros(4, "f4"))
        assert arena()[1] == 0
    assert kept == [(3, 3, 80_000)] * 3
    assert arena()[0] >= 280_000
    assert inner_values[0] == 7


def test_released_memory_is_taken_anew() -> None:
    during: list[tuple[int, int, int]] = []

    def watch(_: object) -> None:
        release_scratch()  # in use: stays
        during.append(arena())

    kernel = _shared(1000, watch)
    kernel(np.zeros(4, "f4"))
    release_scratch()
    assert arena() == (0, 0, 0)
    kernel(np.zeros(4, "f4"))
    assert [used for _, used, _ in during] == [4032, 4032]
    release_scratch()
    release_scratch()
    assert tensorlang.runtime.release_scratch is release_scratch


def test_without_memory() -> None:
    kernel = _shared(n * 2**44, lambda _: None, (n,))
    for _ in range(3):
        with pytest.raises(MemoryError, match="shared: no memory for its scratch buffers"):
            kernel(np.zeros(4, "f4"))
        assert arena()[1] == 0
    _shared(1000, lambda _: None)(np.zeros(4, "f4"))


_RESIDENT = """
import os, threading
import numpy as np
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.stmt import Allocate, Kernel, LoopKind, Seq
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
i, j = indices("i j")
count = 1 << 18
out, whole, mine = array("out", (8,)), array("whole", (count,)), array("mine", (count,))
fill = lambda a: loop(j, 0, count, store(a, j, 1.0))
add = store(out, i, load(mine, i) + load(whole, i))
team = loop(i, 0, 8, Allocate(mine, Seq((fill(mine), add))), LoopKind.PARALLEL)
body = Allocate(whole, Seq((fill(whole), team)))
kernel = backend("llvm").compile(Kernel("both", (out,), (), ("out",), body), parse("llvm -num-cores=2"))
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE")
def call():
    values = np.zeros(8, "f4")
    kernel(values)
    assert (values == 2).all()
def in_thread():
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's process figures")
@pytest.mark.parametrize(("how", "times"), [("call", 1000), ("in_thread", 200)])
def test_a_process_does_not_grow(how: str, times: int) -> None:
    """A thousand calls of one thread, or calls of many threads that end and leave their memory."""
    code = f"""
for _ in range(20): {how}()
before = resident()
for _ in range({times}): {how}()
print(resident() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", _RESIDENT + code], cwd=_ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 64 << 20  # ended threads may still be leaving; 200 that stay would hold 400 MB


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_uses_its_copy() -> None:
    code = """
call()
child = os.fork()
if child == 0:
    call()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
call()
"""
    done = subprocess.run(
        [sys.executable, "-c", _RESIDENT + code], cwd=_ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
