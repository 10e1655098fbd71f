"""What an executable offers besides being called, and how fast a call is."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, TargetError
from tensorlang.ir.construct import array, indices, load, loop, store
from tensorlang.ir.stmt import Kernel, LoopKind
from tensorlang.runtime import cpython
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.timer import TimeEvaluator, Timing
from tensorlang.target.backend import backend
from tensorlang.target.detect import parse


def _add(size: int = 64, kind: LoopKind = LoopKind.VECTORIZED) -> Kernel:
    a, b, c = (array(name, (size,)) for name in "ABC")
    (i,) = indices("i")
    return Kernel("add", (a, b, c), (), ("C",), loop(i, 0, size, store(c, i, load(a, i) + load(b, i)), kind))


def _executable() -> Executable:
    return backend("llvm").compile(_add(), parse("llvm"))


def test_sources() -> None:
    executable = _executable()
    assert executable.source_forms == ("loops", "ll", "asm")
    assert executable.source("loops") == executable.source()
    assert "C[i] = A[i] + B[i]" in executable.source()
    assert executable.get_source() == executable.source("ll")
    assert executable.get_source("ll").startswith("define void @add.kernel(")
    assert "add.kernel:" in executable.get_source("asm")
    with pytest.raises(TargetError, match="no source 'ptx' for target llvm; it has loops, ll, asm"):
        executable.source("ptx")


def test_names() -> None:
    executable = _executable()
    assert executable.entry_name == "add"
    assert executable["add"] is executable
    with pytest.raises(KeyError, match="'sub'; this executable holds 'add'"):
        executable["sub"]
    assert repr(executable).startswith("Executable(add(A: float32[64], B: float32[64], C: float32[64]), target='llvm")


def test_a_warm_call_runs_no_python() -> None:
    executable = _executable()
    a, b, c = np.ones((3, 64), np.float32)
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        executable(a, b, c)
    finally:
        sys.setprofile(None)
    assert (entered, c[0]) == ([], 2)


def test_the_code_lives_as_long_as_the_executable() -> None:
    a, b, c = np.ones((3, 64), np.float32)
    for _ in range(3):
        call = _executable().__call__
        gc.collect()
        call(a, b, c)
    assert (c == 2).all()


def test_calls_from_several_threads() -> None:
    executable = backend("llvm").compile(_add(3000, LoopKind.PARALLEL), parse("llvm -num-cores=2"))
    failures: list[int] = []

    def work(seed: int) -> None:
        a, b = np.random.default_rng(seed).random((2, 3000), np.float32)
        for _ in range(50):
            c = np.zeros(3000, np.float32)
            executable(a, b, c)
            if not (c == a + b).all():
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_names_that_the_c_library_has() -> None:
    for name in ("exp", "main", "free", "1 odd name"):
        kernel = _add()
        named = Kernel(name, kernel.params, (), kernel.outputs, kernel.body)
        a, b, c = np.ones((3, 64), np.float32)
        backend("llvm").compile(named, parse("llvm"))(a, b, c)
        assert (c == 2).all()


@pytest.mark.parametrize("field", ["TYPE", "DATA", "RANK", "DESCRIPTION", "FLAGS", "TYPE_NUMBER", "BYTE_ORDER"])
def test_with_another_layout_of_arrays_the_safe_entry_takes_over(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """An offset eight bytes away stands for an interpreter or a NumPy that keeps the field elsewhere."""
    cpython.layout_is_known.cache_clear()
    monkeypatch.setattr(cpython, field, getattr(cpython, field) - 8)
    try:
        assert not cpython.layout_is_known()
        executable = _executable()
        a, b, c = np.ones((3, 64), np.float32)
        executable(a, b, c)
        assert (c == 2).all()
        with pytest.raises(ArgumentError, match="takes 3 arguments"):
            executable(a)
        with pytest.raises(ArgumentError, match="expected dtype float32"):
            executable(a, b, c.astype("f8"))
    finally:
        cpython.layout_is_known.cache_clear()


def test_the_safe_entry_runs_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpython, "layout_is_known", lambda: False)
    executable = _executable()
    a, b, c = np.ones((3, 64), np.float32)
    entered: list[str] = []
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None)
    try:
        executable(a, b, c)
    finally:
        sys.setprofile(None)
    assert entered[0] == "entry"
    assert "checked" in entered  # behind a wrapper of torch's compiler, where a test has loaded that


def test_this_interpreter_lays_arrays_out_as_the_fast_entry_expects() -> None:
    assert cpython.layout_is_known()


def test_time_evaluator() -> None:
    executable = _executable()
    a, b, c = np.ones((3, 64), np.float32)
    timing = executable.time_evaluator("add", None, number=5, repeat=4)(a, b, c)
    assert len(timing.results) == 4
    assert 0 < timing.min <= timing.median <= timing.max < 1
    with pytest.raises(ArgumentError, match="takes 3 arguments"):
        executable.time_evaluator("add")(a)


def test_timing_figures() -> None:
    timing = Timing((1.0, 2.0, 6.0))
    assert (timing.mean, timing.median, timing.min, timing.max) == (3.0, 2.0, 1.0, 6.0)
    assert timing.std == pytest.approx(np.std([1.0, 2.0, 6.0]))
    assert str(timing).startswith("mean 3000.0000 ms  median 2000.0000 ms")


def test_short_samples_are_lengthened() -> None:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    timing = TimeEvaluator(count, number=1, repeat=2, min_repeat_ms=2)()
    assert calls > 100
    assert timing.max < 1e-3
    for number, repeat, least in ((0, 1, 0), (1, 0, 0), (1, 1, -1)):
        with pytest.raises(ArgumentError, match="at least 1"):
            TimeEvaluator(count, number, repeat, least)
