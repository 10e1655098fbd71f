"""Timing of one kernel: as many repeats as its place asks for, disturbed samples taken again."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tensorlang.dataclass import dataclass

SHORTEST_SAMPLE = 5e-4
WARMING = 0.02
SETTLED = 5
NEW_LEAST = 0.99
REPEATS = 10
FEWEST = 3
ENOUGH = 5
PRECISE = 0.005
LONGEST = 2.0
TOO_SLOW_AT_ONCE = 2.0
TOO_SLOW_AFTER_THREE = 1.3
CONFIDENCE = 3.0
LEAST_DOUBT = 0.05
MOST_REJECTED = 30
WAIT_SHARE = 0.01
ATTEMPTS = 3
PAUSE = 2e-3
LONGEST_PAUSES = 20

Take = Callable[[Callable[[], object], int], tuple[float, bool]]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of each repeat that counted; `rejected` samples were disturbed; `noisy`: too few are left."""

    seconds: tuple[float, ...]
    rejected: int = 0
    noisy: bool = False

    @property
    def spread(self) -> float:
        """Distance of the middle half of the repeats, as a share of the median; 0 for fewer than three."""
        if len(self.seconds) < FEWEST:
            return 0.0
        low, middle, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / middle


def waited_nanoseconds() -> int:
    """Nanoseconds that the threads of this process have waited for a CPU; always zero where unknown."""
    total = 0
    for task in _threads():
        try:
            total += int(_read(f"/proc/self/task/{task}/schedstat").split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return total


def _read(path: str) -> bytes:
    """What a small file of the system holds; many times a measurement, so without anything in between."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 256)
    finally:
        os.close(descriptor)


def _threads() -> list[int]:
    """Numbers of the threads of this process; empty where the system does not tell."""
    try:
        return [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208 - many times a measurement
    except OSError:
        return []


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
    """How many calls make a sample of at least 0.5 ms, given the seconds of a first call."""
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
    take: Take = sample,
    most_rejected: int = MOST_REJECTED,
    flush: Callable[[], object] | None = None,
) -> Timing:
    """Time a call that was run once already. `flush` runs before every sample, which is of one call then.

    Short calls are warmed up first. Stops after one sample over twice `best`, after three whose median is over 1.3
    times `best` or that say with confidence that it is over `best`, after five that agree within half a percent, after
    ten, or after two seconds and three samples. Disturbed samples are taken again, `most_rejected` times; then three
    good ones must do.
    """
    prepare = flush or _nothing
    for _ in range(ATTEMPTS):  # a short call that was disturbed must not pass for a long one
        prepare()
        first, clean = take(call, 1)
        if clean or first >= WARMING:
            break
    number = 1 if flush else calls_per_sample(call, first)
    warmed = not flush and warm_up(call, number, first, take)
    seconds = [first] if clean and number == 1 and not warmed else []
    rejected = 0
    while not _enough(seconds, best, number):
        prepare()
        value, clean = take(call, number)
        if clean:
            seconds.append(value)
            continue
        rejected += 1
        time.sleep(PAUSE * min(rejected, LONGEST_PAUSES))  # let whatever disturbed it pass
        if rejected >= most_rejected:
            return Timing(tuple(seconds), rejected, noisy=len(seconds) < FEWEST)
    return Timing(tuple(seconds), rejected)


def warm_up(call: Callable[[], object], number: int, first: float, take: Take) -> bool:
    """Sample until five in a row bring no new least, for at most 20 ms; tell whether there was anything to do.

    After a pause the first samples of a short call take up to four times as long as later ones: helper threads slept,
    and clocks were low.
    """
    spent = start = first * number
    least, stale = first, 0
    while stale < SETTLED and spent < WARMING:
        value, _ = take(call, number)
        spent += value * number
        stale = stale + 1 if value > NEW_LEAST * least else 0
        least = min(least, value)
    return spent > start


def _nothing() -> None:
    return


def _enough(seconds: list[float], best: float | None, number: int) -> bool:
    if not seconds:
        return False
    middle = statistics.median(seconds)
    if best is not None and middle > TOO_SLOW_AT_ONCE * best:
        return True
    if len(seconds) < FEWEST:
        return False
    if best is not None and (middle > TOO_SLOW_AFTER_THREE * best or cannot_win(seconds, best)):
        return True
    if len(seconds) >= ENOUGH and doubt(seconds) <= PRECISE * middle:
        return True
    return len(seconds) >= REPEATS or sum(seconds) * number > LONGEST


def doubt(seconds: Sequence[float]) -> float:
    """The standard error of the median, from the median of the distances from it: one outlier does not move it."""
    middle = statistics.median(seconds)
    apart = statistics.median(abs(s - middle) for s in seconds)
    return 1.2533 * 1.4826 * apart / math.sqrt(len(seconds))


def cannot_win(seconds: Sequence[float], best: float) -> bool:
    """Whether the median is over `best` by three standard errors, and by more than few repeats can tell."""
    middle = statistics.median(seconds)
    least = LEAST_DOUBT / math.sqrt(len(seconds)) * middle
    return middle - max(CONFIDENCE * doubt(seconds), least) > best


def time_interleaved(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    seconds: float,
    take: Take = sample,
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
def raised_priority() -> Iterator[bool]:
    """Run all threads with real-time priority where the system allows it (root on Linux); tell whether it did."""
    setter = getattr(os, "sched_setscheduler", None)
    raised: list[int] = []
    if setter is not None:
        for thread in _threads():
            with suppress(OSError):
                setter(thread, os.SCHED_RR, os.sched_param(1))
                raised.append(thread)
    try:
        yield bool(raised)
    finally:
        for thread in raised:
            with suppress(OSError):  # it has ended since
                setter(thread, os.SCHED_OTHER, os.sched_param(0))  # type: ignore[misc]
