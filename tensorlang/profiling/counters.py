"""What the counters of the CPU say of a call: cycles, instructions and misses, by Linux's perf_event.

Source: perf_event_open(2). Each thread of the process is counted by itself, in user mode alone, as the usual setting of
`kernel.perf_event_paranoid` allows. Where a CPU has fewer counters than are asked for, Linux counts by turns, and says
for how long.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Protocol

from tensorlang.dataclass import dataclass

_HARDWARE, _SOFTWARE, _CACHE = 0, 1, 3
_READ_MISSES = 1 << 16
EVENTS = {
    "cycles": (_HARDWARE, 0),
    "instructions": (_HARDWARE, 1),
    "L1 misses": (_CACHE, _READ_MISSES),
    "last-level misses": (_HARDWARE, 3),
    "branch misses": (_HARDWARE, 5),
    "page faults": (_SOFTWARE, 2),
}
"""Names, with the type and the number of the event in `perf_event_attr`."""
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_DISABLED, _NO_KERNEL, _NO_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
_TIMES = 1 | 2
"""`read_format`: how long the event was wanted, and how long it was counted."""
_ATTRIBUTES = struct.Struct("IIQQQQQIIQ")
_CLOSE_ON_EXEC = 8
_ENABLE, _DISABLE = 0x2400, 0x2401
_USUAL = 2
"""The setting of Linux from which on processes may count themselves."""
_MOST_RUNS, _SPAN = 100, 0.02
"""Calls that are counted together, and the seconds that they are to take."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counts of a call by name, and why hardware has none, in words, or ""."""

    counts: Mapping[str, float]
    missing: str = ""

    def __str__(self) -> str:
        told = [f"{count:.3g} {name}" for name, count in self.counts.items()]
        cycles, done = (self.counts.get(name) for name in ("cycles", "instructions"))
        if cycles and done is not None:
            told.append(f"{done / cycles:.2f} instructions a cycle")
        if self.missing:
            told.append(f"{'no others' if told else 'none'}: {self.missing}")
        return f"counters: {', '.join(told)}"


class System(Protocol):
    """What the operating system does with events; all may raise OSError."""

    def threads(self) -> list[int]:
        """The threads of this process."""

    def open(self, kind: int, number: int, thread: int) -> int:
        """A descriptor of an event of a thread, which does not count yet."""

    def switch(self, descriptor: int, counts: bool) -> None:
        """Let an event count, or not."""

    def read(self, descriptor: int) -> tuple[int, int, int]:
        """The count of an event, for how long that was wanted, and for how long it was counted."""

    def close(self, descriptor: int) -> None:
        """Give a descriptor back."""


class Linux:
    """The system calls of Linux."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)

    def threads(self) -> list[int]:
        return [int(task.name) for task in Path("/proc/self/task").iterdir()]

    def open(self, kind: int, number: int, thread: int) -> int:
        flags = _DISABLED | _NO_KERNEL | _NO_HYPERVISOR
        attributes = _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, number, 0, 0, _TIMES, flags, 0, 0, 0)
        call = ctypes.c_long(_SYSCALL[platform.machine()])
        found = self._library.syscall(call, attributes, thread, -1, -1, ctypes.c_ulong(_CLOSE_ON_EXEC))
        if found < 0:
            raise OSError(ctypes.get_errno(), "perf_event_open")
        return int(found)

    def switch(self, descriptor: int, counts: bool) -> None:
        if self._library.ioctl(descriptor, ctypes.c_ulong(_ENABLE if counts else _DISABLE), 0) < 0:
            raise OSError(ctypes.get_errno(), "ioctl")

    def read(self, descriptor: int) -> tuple[int, int, int]:
        count, wanted, counted = struct.unpack("QQQ", os.read(descriptor, 24))
        return count, wanted, counted

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


def counted(run: Callable[[], object], system: System | None = None) -> Counters:
    """Count a call, as the mean of some; what the system does not let be counted is told in words, and is no error."""
    if system is None and (sys.platform != "linux" or platform.machine() not in _SYSCALL):
        return Counters({}, f"they are read by Linux's perf_event, and this is {platform.system()}")
    system = system or Linux()
    with ExitStack() as opened:
        try:
            events, missing = _opened(system, opened)
            _switch(system, events, True)
        except OSError as error:
            return Counters({}, _reason(error))
        runs, start = 0, perf_counter()
        while runs == 0 or (runs < _MOST_RUNS and perf_counter() - start < _SPAN):
            run()
            runs += 1
        try:
            _switch(system, events, False)
            return Counters(_totals(system, events, runs), missing)
        except OSError as error:
            return Counters({}, _reason(error))


def _switch(system: System, events: Sequence[tuple[str, int]], counts: bool) -> None:
    for _, descriptor in events:
        system.switch(descriptor, counts)


def _opened(system: System, opened: ExitStack) -> tuple[list[tuple[str, int]], str]:
    """Descriptors of the events that there are, of all threads, and why there are none of hardware."""
    events, missing = list[tuple[str, int]](), ""
    for thread in system.threads():
        for name, (kind, number) in EVENTS.items():
            try:
                descriptor = system.open(kind, number, thread)
            except OSError as error:
                if error.errno != errno.ESRCH and kind == _HARDWARE:  # a thread may have ended
                    missing = missing or _reason(error)
                continue
            opened.callback(system.close, descriptor)
            events.append((name, descriptor))
    return events, "" if any(name == "cycles" for name, _ in events) else missing


def _totals(system: System, events: Sequence[tuple[str, int]], runs: int) -> dict[str, float]:
    """The counts of one run, of all threads; of an event that was counted by turns as if it had been all the time."""
    found: dict[str, float] = {}
    for name, descriptor in events:
        count, wanted, on = system.read(descriptor)
        found[name] = found.get(name, 0.0) + (count * wanted / on if on else 0.0) / runs
    return {name: found[name] for name in EVENTS if name in found}


def _reason(error: OSError) -> str:
    """Why Linux counts nothing, and what would help."""
    match error.errno:
        case errno.EACCES | errno.EPERM if _paranoid() > _USUAL:
            return f"kernel.perf_event_paranoid is {_paranoid()}; sysctl kernel.perf_event_paranoid={_USUAL} permits it"
        case errno.EACCES | errno.EPERM:
            return "not permitted, as mostly in containers; docker run --cap-add=PERFMON permits it"
        case errno.ENOENT | errno.EOPNOTSUPP | errno.ENODEV | errno.ENXIO:
            return "this machine shows no counters of its CPU, as virtual machines mostly do not"
        case errno.EMFILE:
            return f"no descriptors are left for {len(EVENTS)} events of each thread; ulimit -n raises their number"
        case _:
            return f"perf_event_open failed: {os.strerror(error.errno or 0)}"


def _paranoid() -> int:
    try:
        return int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return _USUAL
