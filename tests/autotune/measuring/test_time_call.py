"""When a call gets real-time priority, and when it is given up as noisy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tensorlang.autotune.measuring import jobs
from tensorlang.autotune.measuring.jobs import TIME_SLICE, time_call
from tensorlang.autotune.measuring.timing import MOST_REJECTED, Timing
from tensorlang.autotune.records.record import Status

GOOD, NOISY = Timing((1.0,) * 5), Timing((), MOST_REJECTED, noisy=True)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What timing gives, in order; what it was asked is appended to `asked`."""
    timings: list[Any] = []
    asked: list[Any] = []
    raised = [False]

    def time_kernel(
        call: object,
        best: float | None,
        take: object = None,
        most_rejected: int = MOST_REJECTED,
        flush: object = None,
    ) -> Timing:
        asked.append((raised[0], most_rejected))
        timing: Timing = timings.pop(0)
        return timing

    @contextmanager
    def raised_priority() -> Iterator[bool]:
        raised[0] = True
        yield True
        raised[0] = False

    monkeypatch.setattr(jobs, "time_kernel", time_kernel)
    monkeypatch.setattr(jobs, "raised_priority", raised_priority)
    yield [timings, asked]
    assert timings == []


def _nothing() -> None:
    return


LONG, SHORT = 2 * TIME_SLICE, TIME_SLICE / 2


def test_an_undisturbed_call_needs_no_priority(script: list[Any]) -> None:
    script[0] += [GOOD]
    result = time_call(_nothing, LONG, None)
    assert (result.status, result.timing, result.priority) == (Status.OK, GOOD, False)


def test_a_long_disturbed_call_gets_priority_soon(script: list[Any]) -> None:
    script[0] += [NOISY, GOOD]
    result = time_call(_nothing, LONG, None)
    assert (result.status, result.timing, result.priority) == (Status.OK, GOOD, True)
    assert script[1] == [(False, jobs.PATIENCE), (True, MOST_REJECTED)]


def test_an_urgent_long_call_gets_it_at_once(script: list[Any]) -> None:
    script[0] += [GOOD]
    assert time_call(_nothing, LONG, None, urgent=True).priority
    assert script[1] == [(True, MOST_REJECTED)]


def test_a_short_call_waits_for_quiet_moments_instead(script: list[Any]) -> None:
    script[0] += [NOISY]
    result = time_call(_nothing, SHORT, None, urgent=True)
    assert (result.status, result.priority) == (Status.NOISY, False)
    assert script[1] == [(False, MOST_REJECTED)]
    assert "is the machine busy?" in result.error


def test_disturbed_with_priority_is_noisy(script: list[Any]) -> None:
    script[0] += [NOISY, NOISY]
    result = time_call(_nothing, LONG, None)
    assert (result.status, result.priority) == (Status.NOISY, True)
