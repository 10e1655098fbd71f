"""The loop that all searches share: batches, budgets, logs, and what is learned; nothing is built here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from tensorlang.autotune import SearchTask, TaskScheduler, TuningOptions, create_task, read_log, tune_template
from tensorlang.autotune.loop import Budget, History, go_through
from tensorlang.autotune.measuring.harness import Measurement
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.search.sketch_search import SketchSearch
from tensorlang.autotune.space import each_sketch
from tensorlang.autotune.task import Task
from tensorlang.autotune.templates.task import create
from tensorlang.autotune.tuners.index import GridSearchTuner, RandomTuner
from tensorlang.target import parse

from .fakes import FakeTrace
from .templates.programs import matmul
from .test_task_scheduler import scaled
from .tuners.fakes import FakeMachines, fake_measurer


@dataclass(frozen=True)
class Number:
    """A proposal."""

    n: int

    @property
    def trace(self) -> FakeTrace:
        return FakeTrace({"n": self.n})


@dataclass
class Counting:
    """Proposes 0, 1, 2, ... up to `end`, and notes in `events` what it is asked and told."""

    record: TuningRecord
    end: int = 1000
    task: Task = field(default_factory=lambda: create_task("matmul", (8, 8, 8), threads=1))
    seed: int = 0
    history: History = field(default_factory=History)
    events: list[Any] = field(default_factory=list)
    proposed: int = 0

    def move_to(self, machines: object) -> None:
        raise AssertionError(machines)

    def read(self, log: Path | None) -> None:
        raise AssertionError(log)

    def tune(self, harness: object, budget: Budget) -> None:
        raise AssertionError(budget)

    def propose(self, count: int, end: float) -> Sequence[Number]:
        made = [Number(n) for n in range(self.proposed, min(self.end, self.proposed + count))]
        self.proposed += len(made)
        self.events.append(count)
        return made

    def take(self, proposal: Number, measurement: Measurement, seconds: float) -> TuningRecord:
        assert seconds >= 0
        status, times = measurement.status, measurement.seconds
        return self.history.take(replace(self.record, status=status, seconds=times, trace_key=str(proposal.n)))

    def study(self, proposal: Number, record: TuningRecord) -> None:
        assert record.trace_key == str(proposal.n)
        self.events.append(f"study {proposal.n}")


def seconds_of(trace: Any) -> float:
    return float(1 + (trace["n"] - 9) ** 2)


def broken(trace: Any) -> bool:
    return True


def test_a_batch_is_proposed_by_the_results_of_all_before_the_last(record: TuningRecord) -> None:
    for backwards in (False, True):
        search = Counting(record)
        go_through(search, fake_measurer(seconds=seconds_of, batch=4, backwards=backwards)[0], Budget(7))
        studied = [f"study {n}" for n in range(7)]
        assert search.events == [2, 2, *studied[:2], 2, *studied[2:4], 1, *studied[4:]]


def test_what_is_left_at_the_end_is_studied_and_a_search_goes_on(record: TuningRecord) -> None:
    search, (harness, fake) = Counting(record, end=10), fake_measurer(seconds=seconds_of)
    go_through(search, harness, Budget(5))
    go_through(search, harness, Budget(100))
    assert [trace["n"] for trace in fake.seen] == list(range(10))
    assert sorted(e for e in search.events if isinstance(e, str)) == [f"study {n}" for n in range(10)]
    assert (search.history.best_at, search.history.best_seconds()) == (10, 1.0)


def test_time_is_over_when_one_has_worked_or_a_batch_has_failed(record: TuningRecord) -> None:
    late = Budget(100, end=-math.inf)
    good, bad = Counting(record), Counting(record)
    go_through(good, fake_measurer(seconds=seconds_of)[0], late)
    go_through(bad, fake_measurer(broken=broken, batch=6)[0], late)
    assert (len(good.history.records), len(bad.history.records)) == (1, 6)
    go_through(good, fake_measurer(seconds=seconds_of)[0], late)
    assert len(good.history.records) == 1
    go_through(good, fake_measurer(seconds=seconds_of)[0], late.for_one_more(good.history))
    assert len(good.history.records) == 2


@pytest.mark.parametrize("resumed", [0, 20])
def test_trials_without_a_better_one_are_those_of_this_run(resumed: int, record: TuningRecord) -> None:
    search = Counting(record)
    for _ in range(resumed):
        search.history.take(replace(record, seconds=(0.5,)))
    search.history.resumed = resumed
    go_through(search, fake_measurer(seconds=seconds_of)[0], Budget(100, early_stopping=5))
    assert len(search.history.records) == (15 if not resumed else resumed + 5)


def test_who_hears_of_a_record_finds_it_in_the_log(record: TuningRecord, tmp_path: Path) -> None:
    search, path, found = Counting(record), tmp_path / "log", list[int]()
    with LogWriter(path) as log:
        search.history.logs = (log,)
        search.history.tell = lambda record: found.append(len(read_log(path).records))
        go_through(search, fake_measurer(seconds=seconds_of)[0], Budget(4))
    assert found == [1, 2, 3, 4]


def test_templates_stop_early_too() -> None:
    there = FakeMachines(parse("llvm -mcpu=haswell"), seconds=lambda trace: 1.0)
    task = create(matmul, args=(16, 24, 12), threads=1)
    result = tune_template(task, 100, tuner=RandomTuner(task), runner=there, early_stopping=7)
    assert len(result.records) == 8
    assert {r.host["peak_gflops"] for r in result.records} == {100.0}


def test_what_a_tuner_had_measured_is_no_trial_of_a_later_run() -> None:
    task = create(matmul, args=(16, 24, 12), target="llvm -mcpu=haswell -num-cores=1")
    tuner, there = GridSearchTuner(task), FakeMachines(task.target)
    tuner.search(fake_measurer()[0], 5)
    result = tune_template(task, 3, tuner=tuner, runner=there)
    assert (result.resumed, len(result.records)) == (5, 8)
    assert len({r.trace_key for r in result.records}) == 8


def test_rounds_of_a_task_go_on_with_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Task]()

    def counted(task: Task, library: Any) -> Any:
        made.append(task)
        return each_sketch(task, library)

    monkeypatch.setattr("tensorlang.autotune.search.sketch_search.each_sketch", counted)
    tasks = [SearchTask(scaled, (n, 7.0), "llvm", threads=1) for n in (16, 24)]
    there = FakeMachines(parse("llvm -mcpu=haswell"), seconds=lambda trace: 1.0)
    options = TuningOptions(8, num_measures_per_round=2, verbose=0, runner=cast(Any, there))
    results = TaskScheduler(tasks, strategy="round-robin").tune(options)
    assert [len(r.records) for r in results] == [4, 4]
    assert [len({record.trace_key for record in r.records}) for r in results] == [4, 4]
    assert len(made) == 2
    assert [r.resumed for r in results] == [0, 0]


def test_the_log_of_a_search_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()

    def records_of(log: object, task: object) -> list[TuningRecord]:
        asked.append(log)
        return []

    monkeypatch.setattr("tensorlang.autotune.search.sketch_search.records_of", records_of)
    search = SketchSearch(create_task("matmul", (8, 8, 8), threads=1))
    for _ in range(2):
        search.read(tmp_path / "log")
    assert asked == [tmp_path / "log"]
