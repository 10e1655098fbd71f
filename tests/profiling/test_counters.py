"""Counters of the CPU: what is made of what a system says, why there are none, and the calls of this one."""

from __future__ import annotations

import errno
import mmap
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tensorlang.profiling import counters
from tensorlang.profiling.counters import EVENTS, Counters, Linux, counted

NAMES = {row: name for name, row in EVENTS.items()}


class Faked:
    """A system of two threads; of the second one events are counted in a quarter of the time.

    `refused` are errors of events, `broken` is that of switching them on.
    """

    def __init__(self, refused: Mapping[str, int] = {}, broken: int = 0) -> None:
        self.refused, self.broken = refused, broken
        self.events = dict[int, tuple[str, int]]()
        self.counts = dict[int, bool]()
        self.closed = list[int]()

    def threads(self) -> list[int]:
        return [7, 8]

    def open(self, kind: int, number: int, thread: int) -> int:
        name = NAMES[kind, number]
        if name in self.refused:
            raise OSError(self.refused[name], "refused")
        self.events[len(self.events)] = name, thread
        return len(self.events) - 1

    def switch(self, descriptor: int, counts: bool) -> None:
        if self.broken:
            raise OSError(self.broken, "broken")
        self.counts[descriptor] = counts

    def read(self, descriptor: int) -> tuple[int, int, int]:
        assert not self.counts[descriptor]
        name, thread = self.events[descriptor]
        amount = 200 * (1 + list(EVENTS).index(name))
        return (amount, 100, 100) if thread == 7 else (amount // 4, 100, 25)

    def close(self, descriptor: int) -> None:
        self.closed.append(descriptor)


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_MOST_RUNS", 2)
    monkeypatch.setattr(counters, "_SPAN", 60.0)


def test_counts_are_those_of_one_call_in_all_threads_and_all_of_the_time() -> None:
    system, seen = Faked(), list[list[bool]]()
    found = counted(lambda: seen.append(list(system.counts.values())), system)
    assert found.counts == {name: 200 * (1 + n) for n, name in enumerate(EVENTS)} and not found.missing
    assert seen == [[True] * 12] * 2 and sorted(system.closed) == list(range(12))
    assert str(found).startswith("counters: 200 cycles, 400 instructions, 600 L1 misses")
    assert str(found).endswith("page faults, 2.00 instructions a cycle")


def test_an_event_that_was_never_counted_is_zero() -> None:
    class Crowded(Faked):
        def read(self, descriptor: int) -> tuple[int, int, int]:
            return 0, 100, 0

    assert set(counted(lambda: None, Crowded()).counts.values()) == {0.0}
    assert "a cycle" not in str(counted(lambda: None, Crowded()))


def test_single_events_that_a_cpu_does_not_have_are_left_out() -> None:
    found = counted(lambda: None, Faked({"L1 misses": errno.ENOENT, "branch misses": errno.EOPNOTSUPP}))
    assert set(found.counts) == set(EVENTS) - {"L1 misses", "branch misses"} and not found.missing


HARDWARE = [name for name in EVENTS if name != "page faults"]


@pytest.mark.parametrize(
    ("error", "paranoid", "reason"),
    [
        (errno.ENOENT, 2, "this machine shows no counters of its CPU, as virtual machines mostly do not"),
        (errno.EACCES, 3, "kernel.perf_event_paranoid is 3; sysctl kernel.perf_event_paranoid=2 permits it"),
        (errno.EPERM, 1, "not permitted, as mostly in containers; docker run --cap-add=PERFMON permits it"),
        (errno.EMFILE, 2, "no descriptors are left for 6 events of each thread; ulimit -n raises their number"),
        (errno.ENOSYS, 2, "perf_event_open failed: Function not implemented"),
    ],
)
def test_why_there_are_none(monkeypatch: pytest.MonkeyPatch, error: int, paranoid: int, reason: str) -> None:
    monkeypatch.setattr(counters, "_paranoid", lambda: paranoid)
    found = counted(lambda: None, Faked(dict.fromkeys(HARDWARE, error)))
    assert found == Counters({"page faults": 1200.0}, reason)
    assert str(found) == f"counters: 1.2e+03 page faults, no others: {reason}"
    assert counted(lambda: None, Faked(dict.fromkeys(EVENTS, error))) == Counters({}, reason)
    assert counted(lambda: None, Faked(broken=error)) == Counters({}, reason)


def test_errors_of_what_is_counted_are_its_own() -> None:
    def fails() -> None:
        raise FileNotFoundError("its own")

    system = Faked()
    with pytest.raises(FileNotFoundError, match="its own"):
        counted(fails, system)
    assert len(system.closed) == 12


def test_other_systems_are_told_what_reads_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert str(counted(lambda: None)) == "counters: none: they are read by Linux's perf_event, and this is Darwin"


@pytest.mark.skipif(sys.platform != "linux", reason="perf_event is Linux's")
def test_the_calls_of_this_system() -> None:
    """Virtual machines show page faults alone, and some containers nothing: what is missing has a reason then."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = counted(lambda: mmap.mmap(-1, 1 << 20).write(b"x" * (1 << 20)), Linux())
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert found.counts or found.missing
    assert found.counts.get("page faults", 1) >= 1  # of memory that nobody had
    if "cycles" in found.counts:
        assert found.counts["cycles"] > 0 and found.counts["instructions"] > 0
