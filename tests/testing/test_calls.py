"""Hostile calls: refused, or right; and what would be neither is noticed."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tensorlang.testing import calls
from tensorlang.testing.calls import CallFault, call_of, draw_call, program_of, run_call, run_calls
from tensorlang.testing.guarded import GuardedMemory
from tensorlang.testing.hostile import DAMAGES

FEW = 4
"""Programs of the sample: building them takes most of its time."""


def sample() -> Iterator[calls.Call]:
    rng = Random(14)
    while True:
        call = draw_call(rng)
        if call.program < FEW:
            yield call


def test_a_sample_of_hostile_calls() -> None:
    outcomes = Counter((call.damage, run_call(call)) for call in islice(sample(), 400))
    assert {damage for damage, _ in outcomes} == set(DAMAGES)
    assert outcomes["nothing", "ran"] > 50 and not outcomes["nothing", "refused"]
    assert sum(n for (_, what), n in outcomes.items() if what == "refused") > 150
    for damage in ("a masked array", "no array", "an exporter of nonsense", "a size that wraps around"):
        assert not outcomes[damage, "ran"], damage


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="100,000 calls are for the nightly profile"
)
def test_many_hostile_calls() -> None:
    counts = run_calls(100_000, seed=int.from_bytes(os.urandom(4), "big"))
    assert not counts.faults, str(counts)


def test_a_call_is_known_by_its_number() -> None:
    call = next(sample())
    names: dict[str, Any] = {}
    exec(call.reproducer, names)
    assert names["call_of"](call.seed) == call == call_of(call.seed)
    assert call.reproducer in str(call) and str(program_of(call.program)) in str(call)


def _sound(damage: str) -> calls.Call:
    return next(call for call in sample() if call.damage == damage and call.n > 1 and call.m > 1)


def test_a_byte_outside_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def writes_outside(*_: Any) -> None:
        memory = calls._memory()["A"]
        memory.bytes[memory._used.stop % memory.bytes.size or -1] ^= 255
        free = np.flatnonzero(memory.bytes == 0xA5)
        memory.bytes[free[0]] = 0

    monkeypatch.setattr(calls, "_entry", lambda *_: writes_outside)
    with pytest.raises(CallFault, match="memory around A was written by a call that ran"):
        run_call(_sound("nothing"))


@pytest.mark.parametrize(
    ("damage", "message"), [("nothing", "C is not what NumPy computes"), ("a masked array", "with wrong arguments ran")]
)
def test_a_kernel_that_takes_all_is_noticed(monkeypatch: pytest.MonkeyPatch, damage: str, message: str) -> None:
    monkeypatch.setattr(calls, "_entry", lambda *_: lambda *args, **named: None)
    with pytest.raises(CallFault, match=message):
        run_call(_sound(damage))


def test_another_error_and_two_verdicts_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> None:
        raise ValueError("of somebody else")

    monkeypatch.setattr(calls, "_entry", lambda *_: raises)
    with pytest.raises(CallFault, match="not an error of tensorlang, ValueError"):
        run_call(_sound("nothing"))
    monkeypatch.setattr(calls, "_run", lambda call, road: "ran" if road == "fast" else "refused")
    with pytest.raises(CallFault, match="the fast check says ran, the slow one refused"):
        run_call(_sound("nothing"))


def test_a_killed_process_is_told_by_its_last_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next process goes on behind it."""
    script = tmp_path / "python"
    script.write_text(
        '#!/bin/sh\ncase "$2" in\n*", 0, 5)") echo begin 3; kill -SEGV $$;;\n'
        "*) echo begin 4; echo outcomes ran=1;;\nesac\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    counts = run_calls(5, seed=1)
    assert counts.outcomes == {"ran": 1}
    (fault,) = counts.faults
    call = list(islice(calls._calls(1), 5))[3]
    assert fault == f"the process was killed (-11): {call}"
    assert "1 wrong" in str(counts)


@pytest.mark.skipif(sys.platform == "win32", reason="pages are guarded by mprotect")
def test_arrays_touch_their_guards() -> None:
    memory = GuardedMemory()
    for at_end in (True, False):
        array = memory.array((3, 5), "float32", at_end)
        start = array.ctypes.data - memory.bytes.ctypes.data
        assert start == (memory.bytes.size - array.nbytes if at_end else 0)
        array[...] = 1
        assert memory.is_intact()
        memory.bytes[0 if at_end else -1] = 1
        assert not memory.is_intact()
    with pytest.raises(ValueError, match="bytes, and there are"):
        memory.array((2**40,), "float32", at_end=True)
