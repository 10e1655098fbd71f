"""Logs of strangers: records of legal traces, damaged; what is read of them is legal and right, or is refused."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import Any

from tensorlang.autotune import RecordSkipped, Status, Task, TuningRecord, apply_best, read_log
from tensorlang.autotune.task import task_of
from tensorlang.errors import RecordError
from tensorlang.schedule import Schedule
from tensorlang.testing.soak.case import Outcome, Tell, Wrong
from tensorlang.testing.soak.comparing import run_on, told
from tensorlang.testing.soak.damages import damaged, torn
from tensorlang.testing.soak.drawing import Draws
from tensorlang.testing.strategies import ProgramCase, programs
from tensorlang.testing.traces import schedules

_TARGET = "llvm -num-cores=1"
_LONGEST = 2000


def run(seed: int, tell: Tell) -> Outcome:
    """Draw a log of up to three damaged records, each faster than the next, half of them before a good one."""
    draws = Draws(seed)
    case = draws.draw(programs(max_stages=2))
    task = task_of(list(case.tensors), "soak", (), _TARGET, threads=1)
    bad = [_record(draws.draw(schedules(case.outputs)), task, n) for n in range(draws.random.choice((1, 1, 2, 3)))]
    good = [_record(draws.draw(schedules(case.outputs)), task, 9)] if draws.random.random() < 0.5 else []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.write_bytes(_lines(bad, good, draws.random))
        tell(f"{case.program.text}{log.read_bytes().decode(errors='backslashreplace')[:100_000]}")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outcome = _used(log, task, case)
    for warning in caught:
        _judge(warning)
    return outcome


def _record(schedule: Schedule, task: Task, number: int) -> dict[str, Any]:
    """The record of a schedule as data."""
    trace = schedule.trace
    made = TuningRecord(
        workload=task.workload,
        target=task.target.to_json(),
        threads=task.threads,
        sketch="soak",
        trace=trace.to_json(),
        trace_key=trace.key,
        decisions={},
        status=Status.OK,
        seconds=(1e-6 * (number + 1),),
        checked=True,
        time="2026-01-01T00:00:00Z",
    )
    data: dict[str, Any] = json.loads(json.dumps(made.to_json()))
    return data


def _lines(bad: list[dict[str, Any]], good: list[dict[str, Any]], rng: Random) -> bytes:
    lines = [damaged(data, rng) for data in bad]
    lines = [torn(line, rng) if rng.random() < 0.1 else line for line in lines]
    return b"\n".join([*lines, *(json.dumps(data).encode() for data in good)]) + b"\n"


def _used(log: Path, task: Task, case: ProgramCase) -> Outcome:
    """Read the log, and build and run what it has for the program."""
    try:
        read_log(log)
        schedule = apply_best(log, task)
    except RecordError as error:
        if len(str(error)) > 50 * _LONGEST:
            raise Wrong(f"a message of {len(str(error)):,} signs") from error
        return Outcome.REFUSED
    try:
        run_on(case, schedule, _TARGET)
    except Wrong as error:
        raise Wrong(f"{error}\n{told(case.program.text, schedule)}") from None
    return Outcome.OK


def _judge(warning: warnings.WarningMessage) -> None:
    """A warning is that a record is skipped, in one line that is safe to print."""
    text = str(warning.message)
    if not issubclass(warning.category, RecordSkipped):
        raise Wrong(f"a warning of another kind, {warning.category.__name__}: {text}")
    if not text.isprintable() or len(text) > _LONGEST:
        raise Wrong(f"a warning that is no line of text: {text[:_LONGEST]!r}")
