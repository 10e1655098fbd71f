"""What tuning ends with, for people and for machines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tensorlang.autotune import Result, Status, TuningRecord, create_task
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.cli.outcome import print_result, result_json
from tensorlang.schedule import create_schedule

TASK = create_task("matmul", (8, 8, 8), "llvm -mcpu=haswell", threads=1)


def record(status: Status = Status.OK, error: str = "") -> TuningRecord:
    """A record of the task without a schedule."""
    trace = create_schedule([t.op for t in TASK.outputs]).trace
    seconds = (1e-6,) if status is Status.OK else ()
    return TuningRecord(
        TASK.workload, TASK.target.to_json(), 1, "s", trace.to_json(), trace.key, {}, status, seconds, error
    )


def result(*records: TuningRecord) -> Result:
    """The result of a run that made these records; the first that is ok is the best."""
    best = next((r for r in records if r.ok), None)
    return Result(TASK, best, records, 0, 12.0, 50.0, None)


FAILED = (
    record(Status.CRASH, "signal 11\n  in the kernel \x1b[2J"),
    record(Status.TIMEOUT, ""),
    record(Status.TIMEOUT, "no end after 3 s"),
    record(Status.CRASH, "signal 6"),
    record(Status.CRASH, "signal 7"),
)


def test_failures_are_summed_up_with_the_first_message_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(record(), *FAILED), "log")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:] == [
        "6 trials in 12 s, failures: 3 crash, 2 timeout; log: log",
        "  first crash: signal 11 in the kernel \\u001b[2J",
        "  first timeout: no end after 3 s",
    ]
    assert any("1 µs" in line and "1.0" in line for line in lines)


def test_without_a_best_the_failures_remain(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result(*FAILED), "log")
    assert capsys.readouterr().out.startswith("5 trials in 12 s, failures: 3 crash, 2 timeout; log: log\n")
    data = json.loads(result_json(result(*FAILED), "log"))
    assert data["best"] is None
    assert data["messages"]["timeout"] == "no end after 3 s"


def test_the_competitor_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    comparison = Comparison((1e-6, 1e-6), (3e-6, 3e-6), "NumPy")
    print_result(replace(result(record()), comparison=comparison), "log")
    out = capsys.readouterr().out
    assert "3.00 times the speed of NumPy, timed in turn" in out
    assert "3 µs" in out
