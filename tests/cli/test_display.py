"""The live display: what it says of a run, and how long it thinks the rest will take."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from tensorlang.autotune import Progress, Status, TuningRecord
from tensorlang.autotune.records.record import WorkloadId
from tensorlang.cli.arguments import UNLIMITED
from tensorlang.cli.display import describe, plain_lines, progress_table, time_left
from tensorlang.cli.report import format_seconds

WORKLOAD = WorkloadId("matmul", (8, 8, 8, "float32"), "key", (), "float32", 1e9)
RECORD = TuningRecord(WORKLOAD, {}, 1, "s", [], "t", {}, Status.OK, (0.01,))
HALFWAY = Progress(RECORD, RECORD, 10, 0, Counter({"crash": 2}), 5.0, 200.0)


def test_a_run_is_described_in_words() -> None:
    assert dict(describe(HALFWAY, 20, None)) == {
        "trials": "10/20",
        "best": "100.0 GFLOP/s",
        "of peak": "50%",
        "failures": "2 crash",
        "left": "0:05",
    }


def test_a_run_without_a_limit_on_trials_counts_them() -> None:
    assert dict(describe(HALFWAY, UNLIMITED, 60.0))["trials"] == "10"


def test_nothing_is_claimed_before_the_first_good_candidate() -> None:
    cells = dict(describe(replace(HALFWAY, best=None, failures=Counter()), 20, None))
    assert cells["best"] == "none yet"
    assert "of peak" not in cells
    assert cells["failures"] == "none"


def test_an_unknown_peak_is_left_out() -> None:
    assert "of peak" not in dict(describe(replace(HALFWAY, peak_gflops=0.0), 20, None))


@pytest.mark.parametrize(
    ("trials", "seconds", "resumed", "left"),
    [
        (20, None, 0, 5.0),
        (20, 7.0, 0, 2.0),
        (12, 100.0, 0, 1.0),
        (20, None, 5, 10.0),
        (10, 100.0, 0, 0.0),
        (20, 3.0, 0, 0),
    ],
)
def test_time_left_is_what_ends_first(trials: int, seconds: float | None, resumed: int, left: float) -> None:
    assert time_left(replace(HALFWAY, resumed=resumed), trials, seconds) == pytest.approx(left)


def test_without_a_terminal_new_bests_and_the_end_get_a_line() -> None:
    text = io.StringIO()
    show = plain_lines(Console(file=text, width=200), 12, None)
    slower = replace(RECORD, seconds=(1.0,))
    show(HALFWAY)
    show(replace(HALFWAY, record=slower, trials=11))
    show(replace(HALFWAY, record=slower, trials=12))
    assert [line.split()[1] for line in text.getvalue().splitlines()] == ["10/12", "12/12"]


def test_on_a_terminal_it_is_one_row() -> None:
    text = io.StringIO()
    Console(file=text, width=200).print(progress_table(HALFWAY, 20, None))
    assert " ".join(text.getvalue().split()) == "trials 10/20 best 100.0 GFLOP/s of peak 50% failures 2 crash left 0:05"


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.234, "1.23 s"), (0.00853, "8.53 ms"), (4.6e-6, "4.6 µs"), (7.8e-8, "78 ns")]
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
