"""Figures of a log: grouped by program and place, right, and blind to numbers that nobody measured."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tensorlang.autotune import Status
from tensorlang.autotune.report.clock import elapsed_seconds
from tensorlang.autotune.report.figures import searches_of
from tensorlang.words import format_clock, format_seconds, format_speed, printable

from ..records.hand import hand_record
from .searches import made_search


def test_a_search_is_summed_up() -> None:
    records = made_search(40, 4)
    (search,) = searches_of(records)
    best = min((r for r in records if r.ok), key=lambda r: r.median)
    assert search.best is best
    assert (search.trials, len(search.timed), search.threads) == (40, 36, 1)
    assert [(f.status, f.count, f.message) for f in search.failures] == [("crash", 4, "signal 36")]
    assert search.speed(best.median) == pytest.approx(best.gflops)
    assert search.share == pytest.approx(best.gflops / 250)
    assert search.elapsed == 39
    assert search.machines == (("bench, Some CPU, 2 cores, 16 GiB", 40),)
    assert search.versions == (("tensorlang 1.2.3", 40),)


def test_the_curve_is_what_was_best_so_far() -> None:
    (search,) = searches_of(made_search(60, 0))
    curve = search.improvements()
    running = math.inf
    expected = []
    for trial in search.timed:
        if trial.seconds < running:
            running = trial.seconds
            expected.append(trial.number)
    assert [t.number for t in curve] == expected
    assert 1 < len(expected) < 60


def test_programs_and_places_are_searches_of_their_own() -> None:
    one = made_search(5, 0)
    two = [replace(r, threads=2) for r in one]
    other = [hand_record((8, 8, 8))]
    found = searches_of([*one[:2], *two, *other, *one[2:]])
    assert [(s.trials, s.threads) for s in found] == [(5, 1), (5, 2), (1, 1)]


@pytest.mark.parametrize(("factor", "rank"), [(1.0, 1.0), (3.0, 1.0), (-1.0, -1.0)])
def test_the_estimate_is_judged(factor: float, rank: float) -> None:
    times = [1e-3 * (1 + n) for n in range(9)]
    records = [
        hand_record(seconds=t, estimate=t * factor if factor > 0 else times[-1 - n]) for n, t in enumerate(times)
    ]
    (search,) = searches_of(records)
    assert search.accuracy is not None
    assert search.accuracy.rank == pytest.approx(rank)
    if factor > 0:
        assert search.accuracy.factor == pytest.approx(factor)


def test_without_estimates_nothing_is_said_of_them() -> None:
    (search,) = searches_of([hand_record(), hand_record(seconds=2e-3)])
    assert search.accuracy is None
    (constant,) = searches_of([hand_record(estimate=1e-3), hand_record(estimate=1e-3)])
    assert constant.accuracy is not None
    assert constant.accuracy.rank is None


@pytest.mark.parametrize("seconds", [math.inf, 1e-300, 1e300])
def test_times_that_no_clock_gives_are_left_out(seconds: float) -> None:
    (search,) = searches_of([hand_record(seconds=seconds)])
    assert search.best is None
    assert search.timed == ()


@pytest.mark.parametrize("flops", [0.0, -5.0, math.nan, math.inf, 1e-300])
def test_a_program_of_no_operations_counts_its_runs(flops: float) -> None:
    record = hand_record(seconds=0.5)
    (search,) = searches_of([replace(record, workload=replace(record.workload, flops=flops))])
    assert (search.unit, search.speed(0.5), search.share) == ("runs/s", 2.0, None)


@pytest.mark.parametrize("peak", ["fast", None, math.nan, math.inf, -1, 0, [1]])
def test_a_peak_that_is_none_is_unknown(peak: object) -> None:
    (search,) = searches_of([hand_record(host={"peak_gflops": peak, "memory": "much", "cores": None})])
    assert search.peak_gflops == 0
    assert search.share is None


def test_figures_are_json() -> None:
    (search,) = searches_of(made_search())
    data = json.loads(json.dumps(search.to_json(), allow_nan=False))
    assert data["trials"] == 40
    assert data["best"]["seconds"] == min(seconds for _, _, seconds in data["curve"])
    assert len(data["timed"]) == 36
    assert data["failures"] == [{"status": "crash", "count": 4, "message": "signal 36"}]


def test_only_failures_are_a_search_too() -> None:
    (search,) = searches_of([hand_record(status=Status.TIMEOUT, error="no end")])
    assert search.best is None
    assert search.improvements() == []
    assert json.loads(json.dumps(search.to_json()))["best"] is None


@pytest.mark.parametrize(
    ("seconds", "elapsed"),
    [
        ([0, 1, 3], [0, 1, 3]),
        ([0, 0, 0, 0, 1], [0, 0.25, 0.5, 0.75, 1]),
        ([0, 10, 50000, 50001], [0, 10, 10, 11]),
        ([30, 10, 12], [0, 0, 2]),
        ([0, 0, 0, -1, 0], [0, 1 / 3, 2 / 3, 2 / 3, 1]),
    ],
)
def test_pauses_and_clocks_that_go_back_take_no_time(seconds: list[int], elapsed: list[float]) -> None:
    stamps = [f"2026-01-{1 + s // 86400:02d}T{s // 3600 % 24:02d}:{s // 60 % 60:02d}:{s % 60:02d}Z" for s in seconds]
    if min(seconds) < 0:
        stamps = [f"2026-01-01T00:00:{s + 1:02d}Z" for s in seconds]
    assert elapsed_seconds(stamps) == pytest.approx(elapsed)


@pytest.mark.parametrize("time", ["", "yesterday", "2026-01-01T00:00:00", "9" * 400])
def test_a_time_that_is_none_gives_no_curve_over_time(time: str) -> None:
    assert elapsed_seconds(["2026-01-01T00:00:00Z", time]) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.234, "1.23 s"), (0.00853, "8.53 ms"), (4.6e-6, "4.6 µs"), (7.8e-8, "78 ns")]
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_other_words() -> None:
    assert [format_clock(s) for s in (5.9, 125, 3725)] == ["0:05", "2:05", "1:02:05"]
    assert [format_speed(v) for v in (256.04, 0.01234, 2.5e9)] == ["256.0", "0.0123", "2.5e+09"]
    assert printable("a\x1b[31m\u202eb\ud800\n\tc") == "a\\u001b[31m\\u202eb\\ud800\n\tc"
    assert printable("abcdef", 4) == "abcd … (2 characters more)"
