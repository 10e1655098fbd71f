"""Timing of one kernel: adaptive repeats, and samples that are taken again when the system disturbed them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SHORTEST_SAMPLE = 2e-4
REPEATS = 10
FEWEST = 3
LONGEST = 2.0
TOO_SLOW_AT_ONCE = 2.0
TOO_SLOW_AFTER_THREE = 1.3
MOST_REJECTED = 30
WAIT_SHARE = 0.01
ATTEMPTS = 3
PAUSE = 2e-3
LONGEST_PAUSES = 20


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each repeat that counted; `rejected` samples were disturbed; `noisy`: too few are left."""

    seconds: tuple[float, ...]
    rejected: int = 0
    noisy: bool = False


def waited_nanoseconds() -> int:
    """Nanoseconds that the threads of this process have waited for a CPU; always zero where unknown."""
    total = 0
    try:
        tasks = list(Path("/proc/self/task").iterdir())
    except OSError:
        return 0
    for task in tasks:
        try:
            total += int((task / "schedstat").read_bytes().split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return total


def sample(call: Callable[[], object], number: int) -> tuple[float, bool]:
    """Return seconds a call over `number` calls, and whether they ran undisturbed."""
    before = waited_nanoseconds()
    start = time.perf_counter()
    for _ in range(number):
        call()
    spent = time.perf_counter() - start
    waited = waited_nanoseconds() - before
    return spent / number, waited <= WAIT_SHARE * spent * 1e9


def calls_per_sample(call: Callable[[], object], first: float) -> int:
    """How many calls make a sample of at least 0.2 ms, given the seconds of a first call."""
    if first >= SHORTEST_SAMPLE:
        return 1
    start = time.perf_counter()
    for _ in range(5):
        call()
    each = (time.perf_counter() - start) / 5
    return max(1, int(SHORTEST_SAMPLE / max(each, 1e-9)) + 1)


def time_kernel(
    call: Callable[[], object],
    best: float | None = None,
    take: Callable[[Callable[[], object], int], tuple[float, bool]] = sample,
) -> Timing:
    """Time a call that was run once already.

    Stops after one sample over twice `best`, after three whose median is over 1.3 times `best`, after ten, or
    after two seconds and three samples. Disturbed samples are taken again, 30 times at most; then three good ones
    must do.
    """
    first, clean = take(call, 1)
    number = calls_per_sample(call, first)
    seconds = [first] if clean and number == 1 else []
    rejected = 0
    while not _enough(seconds, best, number):
        value, clean = take(call, number)
        if clean:
            seconds.append(value)
            continue
        rejected += 1
        time.sleep(PAUSE * min(rejected, LONGEST_PAUSES))  # let whatever disturbed it pass
        if rejected >= MOST_REJECTED:
            return Timing(tuple(seconds), rejected, noisy=len(seconds) < FEWEST)
    return Timing(tuple(seconds), rejected)


def _enough(seconds: list[float], best: float | None, number: int) -> bool:
    if not seconds:
        return False
    middle = statistics.median(seconds)
    if best is not None:
        if middle > TOO_SLOW_AT_ONCE * best:
            return True
        if len(seconds) >= FEWEST and middle > TOO_SLOW_AFTER_THREE * best:
            return True
    spent = sum(seconds) * number
    return len(seconds) >= REPEATS or (len(seconds) >= FEWEST and spent > LONGEST)


def time_interleaved(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    seconds: float,
    take: Callable[[Callable[[], object], int], tuple[float, bool]] = sample,
) -> list[list[float]]:
    """Time several calls in turn, in one run, so that drifts of the clock hit all alike.

    Each call has run before. Returns the undisturbed seconds of each: of `rounds` rounds, fewer when `seconds` are
    over. A call that was always disturbed keeps its disturbed samples.
    """
    numbers = [calls_per_sample(call, take(call, 1)[0]) for call in calls]
    kept: list[list[float]] = [[] for _ in calls]
    noisy: list[list[float]] = [[] for _ in calls]
    start = time.perf_counter()
    for turn in range(rounds):
        if turn >= FEWEST and time.perf_counter() - start > seconds:
            break
        for call, number, good, bad in zip(calls, numbers, kept, noisy, strict=True):
            for _ in range(ATTEMPTS):
                value, clean = take(call, number)
                (good if clean else bad).append(value)
                if clean:
                    break
    return [good or bad for good, bad in zip(kept, noisy, strict=True)]


@contextmanager
def raised_priority() -> Iterator[None]:
    """Run with real-time priority where the system allows it (root on Linux); otherwise as before."""
    setter = getattr(os, "sched_setscheduler", None)
    raised = False
    if setter is not None:
        try:
            setter(0, os.SCHED_RR, os.sched_param(1))
            raised = True
        except OSError:
            pass
    try:
        yield
    finally:
        if raised and setter is not None:
            setter(0, os.SCHED_OTHER, os.sched_param(0))
