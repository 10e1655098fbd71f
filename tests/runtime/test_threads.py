"""How many threads run a kernel: settings, the calling thread's limit, and helpers shared by all calls."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensorlang
from tensorlang import config
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.expr import Var
from tensorlang.ir.overflow import MOST
from tensorlang.ir.stmt import Allocate, CallPython, Kernel, LoopKind, Seq
from tensorlang.runtime import threads as runtime_threads
from tensorlang.runtime.executable import Executable
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
from tensorlang.target.llvm.entry import emit_entry
from tensorlang.target.llvm.kernel import emit_kernel

_ROOT = Path(__file__).parents[2]
i, j = indices("i j")
PARALLEL = LoopKind.PARALLEL


def _compiled(kernel: Kernel, cores: int) -> Executable:
    return backend("llvm").compile(kernel, parse(f"llvm -num-cores={cores}"))


def _who(note: Callable[[object], object], cores: int, count: int = 8) -> Executable:
    """A kernel whose iterations call a Python function, in parallel."""
    out = array("out", (count,))
    body = loop(i, 0, count, CallPython("note", (out,)), PARALLEL)
    return _compiled(Kernel("who", (out,), (), ("out",), body, (("note", note),)), cores)


def test_a_limit_of_the_calling_thread() -> None:
    seen: set[int] = set()
    here, values = threading.get_ident(), np.zeros(8, "f4")

    def note(_: object) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.001)

    kernel = _who(note, 3)

    def team() -> int:
        seen.clear()
        kernel(values)
        return len(seen)

    assert team() == 3
    with tensorlang.threads(2):
        assert team() == 2
        with tensorlang.threads(1):
            assert (team(), seen) == (1, {here})
        with tensorlang.threads(100):
            assert team() == 3
        assert team() == 2
        other: list[int] = []
        thread = threading.Thread(target=lambda: other.append(team()))
        thread.start()
        thread.join()
        assert other == [3]
    assert team() == 3


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True, None])
def test_a_limit_is_a_whole_number(count: object) -> None:
    with pytest.raises(ArgumentError, match="expected a whole number of at least 1"), tensorlang.threads(count):  # type: ignore[arg-type]
        pass


def test_the_limit_ends_with_an_exception() -> None:
    seen: set[int] = set()

    def note(_: object) -> None:
        seen.add(threading.get_ident())
        time.sleep(0.001)

    kernel = _who(note, 2)
    with pytest.raises(ZeroDivisionError), tensorlang.threads(1):
        _ = 1 / 0
    kernel(np.zeros(8, "f4"))
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("variable", "expected"), [("1", 1), ("1,4", 1), ("100000", None), ("", None), ("many", None), ("0", None)]
)
def test_teams_are_no_larger_than_openmp_says(
    monkeypatch: pytest.MonkeyPatch, variable: str, expected: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    monkeypatch.delenv("TENSORLANG_NUM_THREADS", raising=False)
    cores = runtime_threads.available_cores()
    assert runtime_threads.default_threads() == (expected or cores)
    with config.override(num_threads=3):
        assert runtime_threads.default_threads() == 3
        assert parse("llvm").cores == 3
        assert parse("llvm -num-cores=5").cores == 5


_SHARED = """
import threading, time
import numpy as np
from tensorlang.ir.construct import array, indices, loop
from tensorlang.ir.stmt import CallPython, Kernel, LoopKind
from tensorlang.runtime.threads import helpers_taken
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse
(i,) = indices("i")
out = array("out", (12,))
running, most, taken, lock = set(), 0, 0, threading.Lock()
def note(_):
    global most, taken
    with lock:
        running.add(threading.get_ident())
        most, taken = max(most, len(running)), max(taken, helpers_taken())
    time.sleep(0.002)
    with lock:
        running.discard(threading.get_ident())
body = loop(i, 0, 12, CallPython("note", (out,)), LoopKind.PARALLEL)
kernel = backend("llvm").compile(Kernel("k", (out,), (), ("out",), body, (("note", note),)), parse("llvm -num-cores=3"))
start = threading.Barrier(4)
def call():
    start.wait()
    for _ in range(5):
        kernel(np.zeros(12, "f4"))
callers = [threading.Thread(target=call) for _ in range(4)]
for caller in callers: caller.start()
for caller in callers: caller.join()
assert taken == 2, taken
assert 4 <= most <= 6, most
assert helpers_taken() == 0
"""


def test_callers_with_threads_of_their_own_share_the_helpers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHARED], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_calls_from_many_threads_do_not_meet() -> None:
    """Scratch of the call, scratch of each thread, and a nest of loops, from six threads at once."""
    a, c = array("a", (60, 40)), array("c", (60, 40))
    whole, row = array("whole", (60, 40)), array("row", (40,))
    copy = loop(i, 0, 60, loop(j, 0, 40, store(whole, (i, j), load(a, i, j))))
    doubled = loop(j, 0, 40, store(row, j, load(whole, i, j) * 2.0))
    back = loop(j, 0, 40, store(c, (i, j), load(row, j) + load(whole, i, j)))
    tripled = loop(i, 0, 60, Allocate(row, Seq((doubled, back))), PARALLEL)
    kernel = _compiled(Kernel("tripled", (a, c), (), ("c",), Allocate(whole, Seq((copy, tripled)))), 2)
    wrong: list[int] = []

    def work(seed: int) -> None:
        values = np.random.default_rng(seed).random((60, 40), np.float32)
        for _ in range(200):
            found = np.zeros_like(values)
            kernel(values, found)
            if not (found == values * 2 + values).all():
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert runtime_threads.helpers_taken() == 0


def test_an_exception_in_a_team_is_raised_once_all_have_ended() -> None:
    calls: list[int] = []

    def fail(_: object) -> None:
        calls.append(1)
        raise LookupError(f"call {len(calls)}")

    kernel = _who(fail, 2)
    for _ in range(30):
        calls.clear()
        with pytest.raises(LookupError, match=r"call [12]"):
            kernel(np.zeros(8, "f4"))
        assert len(calls) == 8
    assert runtime_threads.helpers_taken() == 0


def test_a_kernel_called_by_a_kernel() -> None:
    out = array("out", (64,), "int64")
    inner = _compiled(Kernel("inner", (out,), (), ("out",), loop(i, 0, 64, store(out, i, i), PARALLEL)), 2)
    results: list[bool] = []

    def call(_: object) -> None:
        values = np.zeros(64, np.int64)
        inner(values)
        results.append(bool((values == np.arange(64)).all()))

    _who(call, 2)(np.zeros(8, "f4"))
    assert results == [True] * 8


def test_long_kernels_leave_the_interpreter_to_others() -> None:
    a, b = array("a", (2000, 1000)), array("b", (2000,))
    total = loop(j, 0, 1000, store(b, i, load(b, i) * 0.5 + load(a, i, j)))
    kernel = _compiled(Kernel("long", (a, b), (), ("b",), loop(i, 0, 2000, total)), 1)
    span: list[float] = []
    data, result = np.ones((2000, 1000), "f4"), np.zeros(2000, "f4")

    def run() -> None:
        span.append(time.perf_counter())
        for _ in range(5):
            kernel(data, result)
        span.append(time.perf_counter())

    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is asked to let go: who runs beside the kernel runs because it did
    try:
        worker = threading.Thread(target=run)
        worker.start()
        ticks = []
        while worker.is_alive():
            time.sleep(0.0005)
            ticks.append(time.perf_counter())
        worker.join()
    finally:
        sys.setswitchinterval(before)
    assert any(span[0] < tick < span[1] for tick in ticks)


def test_what_no_thread_could_use_costs_no_lock() -> None:
    def releases(size: int | Var, kind: LoopKind = LoopKind.SERIAL) -> bool:
        a, b = array("a", (size,)), array("b", (size,))
        sizes = () if isinstance(size, int) else (size,)
        kernel = Kernel("copy", (a, b), sizes, ("b",), loop(i, 0, size, store(b, i, load(a, i)), kind))
        emitted = emit_kernel(kernel, parse("llvm"))
        assert emit_entry(emitted, kernel, MOST)
        return "call ptr @PyEval_SaveThread" in emitted.module.text()

    assert not releases(64)
    assert releases(100_000)
    assert releases(j)
    assert releases(64, PARALLEL)


def test_setting_errors_name_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORLANG_NUM_THREADS", "two")
    with pytest.raises(TensorlangError, match="TENSORLANG_NUM_THREADS='two': expected a whole number >= 1"):
        parse("llvm")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, math.inf),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
    ],
)
def test_a_container_may_have_less_than_its_cores(files: dict[str, str], wanted: float, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert runtime_threads.cpu_quota(tmp_path) == wanted
