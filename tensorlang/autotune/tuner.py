"""The tuning loop: propose, measure, record, learn."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang.autotune.apply import records_of, replay
from tensorlang.autotune.budget import check_budget, checked_seed
from tensorlang.autotune.machines import LOCAL, Machines, machines_of
from tensorlang.autotune.measuring.harness import Harness, Limits, Measurement, WorkersLost, record_of
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.supply import overlapped
from tensorlang.autotune.model.cost_model import Transferred
from tensorlang.autotune.phases import Phase, Phases, timed_phases
from tensorlang.autotune.records.log import LogWriter, best_record, read_log
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Interrupted, Progress, Result, count_failures
from tensorlang.autotune.resuming import resumable
from tensorlang.autotune.search.described import learn_model
from tensorlang.autotune.search.evolution import Candidate
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import each_sketch, library_sketch, require_iterations
from tensorlang.autotune.task import Task
from tensorlang.names import lookup
from tensorlang.target.rates import core_of

Callback = Callable[[Progress], None]


def tune(
    task: Task,
    trials: int = 64,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    limits: Limits | None = None,
    sketches: Sequence[Sketch] | None = None,
    compare: bool = False,
    early_stopping: int | None = None,
    model: str | os.PathLike[str] | None = None,
    measurer: Harness | None = None,
    runner: str | Machines = LOCAL,
) -> Result:
    """Tune a task and return the best schedule found.

    The library's own schedule is measured first. Stops at `trials` measurements (those already in `log` count) or after
    `seconds` of wall time, but not before one has worked, or a batch has failed. With a log,
    every measurement is appended as it is made, and an interrupted run goes on where it stopped; `default` is this
    machine's log in the default store. `sketches` replaces the generated search space. `compare` times the winner
    beside NumPy at the end. `early_stopping`: stop after so many trials of this run without a better one.
    `model`: a file of what was learned from other programs (train_model), which corrects the estimate from the start;
    `pretrained` is the one that comes with the package. They are of CPUs; a search for a GPU learns from itself alone.
    `measurer`: one of this task that is open, and stays so; its limits count then.
    `runner`: where candidates run: `local`, `dask://host:port`, or an open `Cluster`. A task for this machine is tuned
    for the machines of the cluster, and so the task of the result. `autotune.on_phase` tells what tuning is at.
    Ctrl-C raises Interrupted, which holds the result so far. Raises DefinitionError for a budget that is none,
    ScheduleError when the search space is empty, TargetError when no machine can run the target, RecordError when the
    log cannot be read or written.
    """
    check_budget(trials, seconds, early_stopping)
    seed = checked_seed(seed)
    start = time.monotonic()
    with ExitStack() as stack:
        phases = stack.enter_context(timed_phases())
        phases.enter(Phase.READING)
        machines = None if measurer is not None else stack.enter_context(machines_of(runner))
        task = task if machines is None else machines.fit(task)
        if sketches is None:
            require_iterations(task)
        log = None if log is None else log_path(log)
        learned = chosen_model(model, task.target)
        earlier = [] if log is None else _earlier(log, task)
        run = _Run(task, seed, tuple(callbacks), start, phases, len(earlier), early_stopping, records=list(earlier))
        try:
            run.writer = None if log is None else stack.enter_context(LogWriter(log))
            harness = measurer
            if harness is None and machines is not None:
                harness = stack.enter_context(machines.harness(task, seed, limits or Limits()))
            assert harness is not None
            run.tune(harness, trials, None if seconds is None else start + seconds, sketches, learned)
            best = run.best
            return run.result(harness.compare(best.trace) if compare and best is not None else None)
        except KeyboardInterrupt:
            raise Interrupted(run.result()) from None
        except WorkersLost as lost:
            return run.result(ended=str(lost))


def _earlier(log: Path, task: Task) -> list[TuningRecord]:
    """The records of a task that a log has, the fastest of them proven."""
    return resumable(records_of(log, task), task.program, str(task.workload), lambda record: replay(record, task))


def train_model(
    logs: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str], seed: int = 0, run_files: bool = False
) -> int:
    """Learn from the records of some logs, and write the model to a file for `tune(..., model=path)`.

    Records of any programs count that can be made again by name; with `run_files`, by running the files that records
    name. Returns how many workloads the logs have; RecordError
    when too few records can be described, or a file cannot be read.
    """
    records = [record for log in logs for record in read_log(log_path(log)).records]
    learn_model(records, seed, run_files).save(path)
    return len({record.workload.key for record in records})


@dataclass(slots=True)
class _Run:
    """One call of `tune`. `records` begins with those of earlier runs; `library` is the candidate measured first."""

    task: Task
    seed: int
    callbacks: tuple[Callback, ...]
    start: float
    phases: Phases
    resumed: int
    early_stopping: int | None = None
    records: list[TuningRecord] = field(default_factory=list)
    best: TuningRecord | None = None
    peak: float = 0.0
    writer: LogWriter | None = None
    library: tuple[Candidate, TuningRecord] | None = None
    proposed: list[Candidate] = field(default_factory=list)
    results: dict[int, TuningRecord] = field(default_factory=dict)
    progress: int = 0
    """Records when the best one came; those of earlier runs count as one step."""

    def __post_init__(self) -> None:
        self.progress = self.resumed
        self.best = best_record(self.records)

    def tune(
        self,
        harness: Harness,
        trials: int,
        deadline: float | None,
        given: Sequence[Sketch] | None,
        learned: Transferred | None,
    ) -> None:
        """Measure the library's schedule, and then search, until the trials, the time or the space are used up.

        The time is not over before there is a result: one batch at least is looked through for one that works.
        """
        end, rng = math.inf if deadline is None else deadline, np.random.default_rng(self.seed)
        earlier = tuple(self.records)
        library = library_sketch(self.task) if given is None and trials > len(earlier) else None
        first = None if library is None else self._measured_first(harness, library)
        self.peak = harness.peak_gflops()
        scorer = make_scorer(self.task, self.seed, learned, core_of(harness.rates(), self.task.target))
        if first is not None and library is not None:
            (candidate,) = scorer.candidates([(library, library.row(library.start or {}) or ())])
            self.library = candidate, self.take(candidate, first)
        if self.is_over(end) or trials <= len(self.records) or self.is_stuck():
            return
        self.phases.enter(Phase.SKETCHING)
        sketches: list[Sketch] = []
        for sketch in each_sketch(self.task, library) if given is None else given:
            sketches.append(sketch)
            if self.is_over(end):
                return
        self.phases.enter(Phase.RANKING)
        space = require_candidates(sketches, rng)
        known = Knowledge(space, scorer)
        known.resume(earlier)
        if self.library is not None:
            known.see(self.library[0])
        self.search(harness, known, trials, end, rng)

    def _measured_first(self, harness: Harness, library: Sketch) -> Measurement | None:
        """What the library's schedule takes; None where an earlier run has measured it."""
        trace = library.trace.with_decisions(library.start or {})
        if any(r.trace_key == trace.key and r.status is not Status.NOISY for r in self.records):
            return None
        found = [measurement for _, measurement in harness.measure([trace.to_json()], self.best_seconds)]
        return found[0] if found else None

    def search(self, harness: Harness, known: Knowledge, trials: int, end: float, rng: np.random.Generator) -> None:
        """Measure what the search proposes."""

        def propose(count: int) -> int:
            self.phases.enter(Phase.RANKING)
            known.learn()
            batch = known.next_batch(count, rng)
            self.proposed += batch
            return len(batch)

        def study(number: int) -> None:
            if number == 0 and self.library is not None:
                known.study(*self.library)
            known.study(self.proposed[number], self.results[number])

        left = trials - len(self.records)
        numbers = overlapped(propose, self.results.__contains__, study, harness.batch, left)
        proposals = (None if n is None else self.proposed[n].trace.to_json() for n in numbers)
        until = math.inf if self.best is None else end
        with closing(harness.measure(proposals, self.best_seconds, until)) as measured:
            for position, measurement in measured:
                self.results[position] = self.take(self.proposed[position], measurement)
                if self.is_over(end, harness.batch) or self.is_stuck():
                    return
                if self.writer is not None and not len(self.results) % harness.batch:
                    self.writer.sync()

    def is_over(self, end: float, enough: int = 1 << 62) -> bool:
        """Whether the time is over: there is a result, or as many trials as are `enough` have brought none."""
        return time.monotonic() >= end and (self.best is not None or len(self.results) >= enough)

    def best_seconds(self) -> float | None:
        """The time to beat."""
        return None if self.best is None else self.best.median

    def take(self, candidate: Candidate, measurement: Measurement) -> TuningRecord:
        """Record what a candidate came to, and tell of it."""
        record = self.record(candidate, measurement)
        if self.writer is not None:
            self.writer.append(record)
        self.records.append(record)
        self.best = best_record([record] if self.best is None else [self.best, record])
        if self.best is record:
            self.progress = len(self.records)
        self.tell(record)
        return record

    def is_stuck(self) -> bool:
        """Whether as many trials of this run as `early_stopping` have brought nothing better."""
        return self.early_stopping is not None and len(self.records) - self.progress >= self.early_stopping

    def record(self, candidate: Candidate, measurement: Measurement) -> TuningRecord:
        """The record of a measured candidate."""
        return record_of(
            measurement,
            self.task,
            candidate.sketch.name,
            candidate.trace,
            candidate.decisions,
            self.seed,
            candidate.estimate,
            self.peak,
        )

    def tell(self, record: TuningRecord) -> None:
        """Call the callbacks."""
        elapsed, failures = time.monotonic() - self.start, count_failures(self.records)
        progress = Progress(record, self.best, len(self.records), self.resumed, failures, elapsed, self.peak)
        for callback in self.callbacks:
            callback(progress)

    def result(self, comparison: Comparison | None = None, ended: str = "") -> Result:
        """The result so far."""
        records, spent, phases = tuple(self.records), time.monotonic() - self.start, dict(self.phases.seconds)
        return Result(self.task, self.best, records, self.resumed, spent, self.peak, comparison, ended, phases)


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
