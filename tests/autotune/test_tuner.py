"""The tuning loop: it records all it measures, resumes, stops when told, and survives bad candidates."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang import topi
from tensorlang.autotune import (
    Interrupted,
    Limits,
    Phase,
    Progress,
    Result,
    Status,
    Task,
    create_task,
    on_phase,
    read_log,
    replay,
    tune,
)
from tensorlang.autotune.model.nest import Nest
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import arguments_of
from tensorlang.driver import lower
from tensorlang.errors import DefinitionError, RecordError, ScheduleError, TargetError
from tensorlang.schedule import Trace
from tensorlang.schedules.room import Columns, Constraint


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


@pytest.fixture(scope="module")
def tuned(task: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """Twelve trials in a log, with the progress of each told."""
    log = tmp_path_factory.mktemp("tuned") / "log"
    return tune(task, trials=12, log=log, seed=3, compare=True), log


def test_every_trial_is_in_the_log_as_it_was_measured(tuned: tuple[Result, Path], task: Task) -> None:
    result, log = tuned
    assert read_log(log).records == result.records
    assert len(result.records) == 12
    assert len({r.trace_key for r in result.records}) == 12
    assert all(task.accepts(r) for r in result.records)


def test_a_record_says_all_that_is_needed_to_judge_it(tuned: tuple[Result, Path], task: Task) -> None:
    record = tuned[0].records[0]
    assert record.workload.arguments == ("A: float32[24, 16]", "B: float32[16, 40]", "C: float32[24, 40]")
    assert record.seed == 3
    assert set(record.versions) >= {"tensorlang", "python", "numpy", "llvmlite", "islpy"}
    assert {"name", "system", "machine", "cpu", "caches", "peak_gflops"} <= set(record.host)
    assert record.workload.program == task.program.text
    assert record.verdict.legal
    assert record.target["kind"] == "llvm"
    assert record.decisions == Trace.from_json(record.trace).decisions
    assert Trace.from_json(record.trace).key == record.trace_key
    assert record.time.endswith("Z")
    assert record.estimate > 0


def test_the_best_is_the_fastest_checked_record(tuned: tuple[Result, Path]) -> None:
    result, _ = tuned
    assert result.best is not None
    assert result.best.checked
    fastest = sorted((r for r in result.records if r.ok), key=lambda r: r.median)
    assert result.best.trace_key in [r.trace_key for r in fastest[:2]]  # they are timed in turn when they are close
    assert result.comparison is not None
    assert result.peak_gflops > 0


def test_a_run_goes_on_where_the_log_ends(task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = tune(task, trials=6, log=log)
    told: list[Progress] = []
    second = tune(task, trials=10, log=log, callbacks=[told.append])
    assert second.records[:6] == first.records
    assert (second.resumed, len(second.records), len(told)) == (6, 10, 4)
    assert len({r.trace_key for r in second.records if r.status is not Status.NOISY}) == sum(
        r.status is not Status.NOISY for r in second.records
    )
    assert [p.trials for p in told] == [7, 8, 9, 10]
    again = tune(task, trials=10, log=log)
    assert (again.records, again.resumed) == (second.records, 10)


def test_records_of_other_programs_are_left_alone(task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tune(create_task("matmul", (8, 16, 4), threads=1), trials=2, log=log)
    result = tune(task, trials=2, log=log)
    assert result.resumed == 0
    assert len(read_log(log).records) == 4


def test_equal_seeds_propose_the_same_first_candidates(task: Task) -> None:
    limits = Limits(build=1e-3)  # nothing is built: only the order of proposals counts
    runs = [[r.trace_key for r in tune(task, trials=4, seed=5, limits=limits).records] for _ in range(2)]
    assert sorted(runs[0]) == sorted(runs[1])
    assert len(set(runs[0])) == 4


def test_ctrl_c_keeps_what_was_measured(task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def stop(progress: Progress) -> None:
        if progress.trials == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="same log to go on") as caught:
        tune(task, trials=50, log=log, callbacks=[stop])
    assert len(caught.value.result.records) == 3
    assert read_log(log).records == caught.value.result.records
    assert tune(task, trials=4, log=log).resumed == 3


def test_the_time_given_is_kept(task: Task) -> None:
    result = tune(task, trials=100_000, seconds=2)
    assert 0 < len(result.records) < 100_000
    assert result.seconds < 20


def test_the_librarys_schedule_is_measured_first_and_any_time_is_enough_for_it(task: Task, tmp_path: Path) -> None:
    log, told = tmp_path / "log", list[Phase]()
    with on_phase(told.append):
        result = tune(task, trials=100, seconds=1e-3, log=log)
    (record,) = result.records
    assert record is result.best
    assert record.sketch == "library"
    kernels = [
        str(lower(s, arguments_of(task.tensors), target=task.target).kernel)
        for s in (replay(record, task), topi.schedule(task.outputs, task.target, tuned=False))
    ]
    assert kernels[0] == kernels[1]
    assert read_log(log).records == (record,)
    assert replay(record, task).trace.key == record.trace_key
    assert record.estimate > 0
    assert (told[0], told[-1]) == (Phase.READING, Phase.BUILDING)
    assert not {Phase.SKETCHING, Phase.RANKING} & set(told)  # that was after the time given
    again = tune(task, trials=100, seconds=1e-3, log=log)
    assert again.records == (record,)


def test_every_phase_is_told_and_the_library_is_measured_before_sketches_are_made(task: Task) -> None:
    events: list[str] = []
    with on_phase(lambda phase: events.append(phase.value)):
        result = tune(task, trials=10, callbacks=[lambda progress: events.append(progress.record.sketch)])
    assert list(dict.fromkeys(e for e in events if e in list(Phase))) == [
        "reading",
        "building",
        "timing",
        "sketching",
        "ranking",
    ]
    assert events.index("library") < events.index("sketching") < events.index("ranking")
    assert set(result.phases) == set(Phase)
    assert 0 < sum(result.phases.values()) <= result.seconds


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"trials": -1}, "trials is a number of measurements, got -1"),
        ({"trials": "3"}, "trials is a number of measurements, got '3'"),
        ({"seconds": -1.0}, "seconds is a time or None, got -1.0"),
        ({"seconds": float("nan")}, "seconds is a time or None, got nan"),
        ({"early_stopping": 0}, "early_stopping is a number of trials or None, got 0"),
    ],
)
def test_what_does_not_bound_a_search_is_refused(task: Task, budget: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(message)):
        tune(task, **budget)


BROKEN = 10
"""Candidates of a broken sketch."""


@dataclass(frozen=True)
class _Broken:
    """A trace whose replay fails in the worker."""

    steps: Sequence[Mapping[str, Any]]
    values: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        return repr((self.steps, self.values))

    def with_decisions(self, values: Mapping[str, int]) -> _Broken:
        return replace(self, values=tuple(sorted(values.items())))

    def to_json(self) -> Any:
        return list(self.steps)


def _broken_sketch(task: Task, name: str, step: Mapping[str, Any]) -> Sketch:
    nest = sketches_of(task)[0]
    rows = nest.sample(np.random.default_rng(0), BROKEN)

    def described(values: Columns, count: int) -> tuple[Nest, ...]:
        return nest.describe(rows[values["n"].astype(int) % len(rows)])

    return Sketch(name, _Broken([step]), {"n": tuple(range(BROKEN))}, (), described)


def test_failures_are_recorded_and_tuning_goes_on(task: Task) -> None:
    broken = {
        Status.ILLEGAL: _broken_sketch(task, "illegal", {"step": "vectorize", "stage": "C", "axis": "k"}),
        Status.BUILD_ERROR: _broken_sketch(task, "unreadable", {"step": "unknown"}),
    }
    for status, sketch in broken.items():
        failed = tune(task, trials=3, sketches=[sketch], seed=1)
        assert [r.status for r in failed.records] == [status] * 3
        assert failed.best is None
    result = tune(task, trials=BROKEN + 4, sketches=[broken[Status.ILLEGAL], sketches_of(task)[0]], seed=1)
    assert result.best is not None
    assert sum(result.failures.values()) == sum(not r.ok for r in result.records)


def test_an_empty_space_names_what_emptied_it(task: Task) -> None:
    base = sketches_of(task)[0]
    starved = replace(base, constraints=(Constraint("the machine has a register", lambda v: v["rows"] < 0),))
    with pytest.raises(ScheduleError, match="the machine has a register"):
        tune(task, trials=1, sketches=[starved])


def test_only_this_machine_can_be_timed() -> None:
    foreign = "aarch64" if platform.machine() == "x86_64" else "x86_64"
    for target in ("interpreter", f"llvm -mtriple={foreign}-unknown-linux-gnu"):
        with pytest.raises(TargetError, match="cannot be timed on this machine"):
            tune(create_task("matmul", (8, 8, 8), target=target), trials=1)


def test_a_log_that_cannot_be_written_is_refused_before_measuring(task: Task, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write"):
        tune(task, trials=1, log=tmp_path / "no" / "folder")
    (tmp_path / "text").write_text("not a log\n")
    with pytest.raises(RecordError, match="not a tuning log"):
        tune(task, trials=1, log=tmp_path / "text")
