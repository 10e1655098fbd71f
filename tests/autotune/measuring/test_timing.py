"""Timing: when to stop, and what to do with disturbed samples; the clock is a script."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable

import pytest

from tensorlang.autotune.measuring import timing
from tensorlang.autotune.measuring.timing import (
    ENOUGH,
    FEWEST,
    MOST_REJECTED,
    REPEATS,
    SETTLED,
    Timing,
    sample,
    time_interleaved,
    time_kernel,
)

Take = Callable[[Callable[[], object], int], tuple[float, bool]]


def _script(samples: Iterable[tuple[float, bool]]) -> Take:
    rest = iter(samples)
    return lambda call, number: next(rest)


def _steady(seconds: float) -> Take:
    return lambda call, number: (seconds, True)


def _nothing() -> None:
    return


def test_five_repeats_that_agree_are_enough() -> None:
    assert time_kernel(_nothing, None, _steady(1e-2)).seconds == (1e-2,) * ENOUGH


def test_ten_repeats_when_they_do_not_agree() -> None:
    shaky = _script([(s, True) for s in (1e-2, 1.2e-2, 1.1e-2) * 4])
    assert len(time_kernel(_nothing, None, shaky).seconds) == REPEATS


def test_one_repeat_when_twice_as_slow_as_the_best() -> None:
    assert len(time_kernel(_nothing, 1e-2, _steady(2.1e-2)).seconds) == 1


def test_three_repeats_when_clearly_slower_than_the_best() -> None:
    assert len(time_kernel(_nothing, 1e-2, _steady(1.4e-2)).seconds) == FEWEST


def test_three_repeats_when_they_say_with_confidence_that_it_is_slower() -> None:
    assert len(time_kernel(_nothing, 1e-2, _steady(1.1e-2)).seconds) == FEWEST


def test_a_wide_spread_says_nothing_with_confidence() -> None:
    shaky = _script([(s, True) for s in (0.8e-2, 1.2e-2, 1.1e-2, 0.9e-2) * 3])
    assert len(time_kernel(_nothing, 1e-2, shaky).seconds) == REPEATS


def test_five_repeats_that_agree_when_near_the_best() -> None:
    assert len(time_kernel(_nothing, 1e-2, _steady(1.01e-2)).seconds) == ENOUGH


def test_a_faster_one_is_timed_until_its_repeats_agree() -> None:
    assert len(time_kernel(_nothing, 1e-2, _steady(0.5e-2)).seconds) == ENOUGH


def test_short_calls_are_sampled_until_they_get_no_shorter() -> None:
    falling = [2e-3, 9e-4, 8e-4, 7e-4, 6e-4]
    take = _script([(s, True) for s in falling + [6e-4] * (SETTLED + REPEATS)])
    result = time_kernel(_nothing, None, take)
    assert set(result.seconds) == {6e-4}


def test_caches_are_flushed_before_every_sample_and_calls_not_looped() -> None:
    order: list[str] = []
    time_kernel(lambda: order.append("call"), None, flush=lambda: order.append("flush"))
    assert len(order) >= 2 * ENOUGH
    assert order == ["flush", "call"] * (len(order) // 2)


def test_spread_is_that_of_the_middle_half() -> None:
    assert Timing((1.0, 1.0, 1.0, 1.0, 9.0)).spread == 0
    assert Timing((1.0, 2.0, 3.0, 4.0, 5.0)).spread == pytest.approx(2 / 3)
    assert Timing((1.0, 2.0)).spread == 0


def test_slow_kernels_are_repeated_less() -> None:
    assert len(time_kernel(_nothing, None, _steady(1.5)).seconds) == FEWEST


def test_disturbed_samples_do_not_count() -> None:
    take = _script([(9.0, False), *[(1e-2, True)] * 3, (8.0, False), *[(1e-2, True)] * 2])
    result = time_kernel(_nothing, None, take)
    assert result.seconds == (1e-2,) * ENOUGH
    assert (result.rejected, result.noisy) == (1, False)


def test_always_disturbed_is_noisy_and_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PAUSE", 0)
    result = time_kernel(_nothing, None, lambda call, number: (1.0, False))
    assert (result.seconds, result.rejected, result.noisy) == ((), MOST_REJECTED, True)


def test_three_good_samples_do_when_the_rest_is_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PAUSE", 0)
    result = time_kernel(_nothing, None, _script([(1.0, True)] * FEWEST + [(1.0, False)] * MOST_REJECTED))
    assert (len(result.seconds), result.noisy) == (FEWEST, False)


def test_short_kernels_are_looped_inside_a_sample() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1

    result = time_kernel(call)
    assert calls > 20 * REPEATS
    assert all(0 < s < 1e-4 for s in result.seconds)


def test_a_short_call_that_was_disturbed_at_first_is_still_looped() -> None:
    numbers: list[int] = []

    def take(call: Callable[[], object], number: int) -> tuple[float, bool]:
        numbers.append(number)
        return (1e-3, False) if len(numbers) == 1 else (1e-6, True)

    time_kernel(_nothing, None, take)
    assert numbers[:2] == [1, 1]
    assert min(numbers[2:]) > 1


def test_a_sample_is_seconds_a_call() -> None:
    seconds, _ = sample(lambda: time.sleep(0.01), 3)
    assert 0.01 <= seconds < 0.1


def test_interleaving_takes_turns() -> None:
    order: list[str] = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    taken: list[int] = []

    def take(call: Callable[[], object], number: int) -> tuple[float, bool]:
        call()
        taken.append(number)
        return (1.0 if order[-1] == "a" else 2.0), True

    a, b = time_interleaved(calls, 4, 60.0, take)
    assert order == ["a", "b"] * 5
    assert (statistics.median(a), statistics.median(b), len(a)) == (1.0, 2.0, 4)


def test_interleaving_keeps_disturbed_samples_only_when_there_are_no_others() -> None:
    def take(call: Callable[[], object], number: int) -> tuple[float, bool]:
        return (1.0, True) if call is first else (2.0, False)

    def first() -> None:
        return

    good, bad = time_interleaved([first, _nothing], 3, 60.0, take)
    assert good == [1.0] * 3
    assert bad
    assert set(bad) == {2.0}
