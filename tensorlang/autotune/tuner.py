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
from tensorlang.autotune.records.log import LogWriter, read_log
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Interrupted, Progress, Result, count_failures
from tensorlang.autotune.resuming import resumable
from tensorlang.autotune.search.described import learn_model
from tensorlang.autotune.search.evolution import Candidate
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task
from tensorlang.names import lookup

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

    Stops at `trials` measurements (those already in `log` count) or after `seconds` of wall time. With a log,
    every measurement is appended as it is made, and an interrupted run goes on where it stopped; `default` is this
    machine's log in the default store. `sketches` replaces the generated search space. `compare` times the winner
    beside NumPy at the end. `early_stopping`: stop after so many trials of this run without a better one.
    `model`: a file of what was learned from other programs (train_model), which corrects the estimate from the start;
    `pretrained` is the one that comes with the package. They are of CPUs; a search for a GPU learns from itself alone.
    `measurer`: one of this task that is open, and stays so; its limits count then.
    `runner`: where candidates run: `local`, `dask://host:port`, or an open `Cluster`. A task for this machine is tuned
    for the machines of the cluster, and so the task of the result.
    Ctrl-C raises Interrupted, which holds the result so far. Raises DefinitionError for a budget that is none,
    ScheduleError when the search space is empty, TargetError when no machine can run the target, RecordError when the
    log cannot be read or written.
    """
    check_budget(trials, seconds, early_stopping)
    seed = checked_seed(seed)
    start = time.monotonic()
    with ExitStack() as stack:
        machines = None if measurer is not None else stack.enter_context(machines_of(runner))
        task = task if machines is None else machines.fit(task)
        rng = np.random.default_rng(seed)
        log = None if log is None else log_path(log)
        space = require_candidates(sketches_of(task) if sketches is None else sketches, rng)
        earlier = [] if log is None else _earlier(log, task)
        knowledge = Knowledge(space, make_scorer(task, seed, chosen_model(model, task.target)))
        run = _Run(task, knowledge, rng, seed, tuple(callbacks), start, len(earlier), early_stopping)
        run.knowledge.resume(earlier)
        try:
            run.writer = None if log is None else stack.enter_context(LogWriter(log))
            harness = measurer
            if harness is None and machines is not None:
                harness = stack.enter_context(machines.harness(task, seed, limits or Limits()))
            assert harness is not None
            run.peak = harness.peak_gflops()
            run.search(harness, trials, None if seconds is None else start + seconds)
            best = run.knowledge.best
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
    """One call of `tune`."""

    task: Task
    knowledge: Knowledge
    rng: np.random.Generator
    seed: int
    callbacks: tuple[Callback, ...]
    start: float
    resumed: int
    early_stopping: int | None = None
    peak: float = 0.0
    writer: LogWriter | None = None
    proposed: list[Candidate] = field(default_factory=list)
    results: dict[int, TuningRecord] = field(default_factory=dict)
    progress: int = 0
    """Records when the best one came; those of earlier runs count as one step."""

    def __post_init__(self) -> None:
        self.progress = self.resumed

    def search(self, harness: Harness, trials: int, deadline: float | None) -> None:
        """Measure until the trials, the time or the space are used up."""
        known, end = self.knowledge, math.inf if deadline is None else deadline
        left = trials - len(known.records)
        numbers = overlapped(self.propose, self.results.__contains__, self.study, harness.batch, left)
        proposals = (None if n is None else self.proposed[n].trace.to_json() for n in numbers)
        with closing(harness.measure(proposals, known.best_seconds, end)) as measured:
            for position, measurement in measured:
                record = self.record(self.proposed[position], measurement)
                if self.writer is not None:
                    self.writer.append(record)
                known.note(record)
                if known.best is record:
                    self.progress = len(known.records)
                self.results[position] = record
                self.tell(record)
                if time.monotonic() >= end or self.is_stuck():
                    return
                if self.writer is not None and not len(self.results) % harness.batch:
                    self.writer.sync()

    def propose(self, count: int) -> int:
        """Propose up to so many more candidates, and tell how many there are."""
        self.knowledge.learn()
        batch = self.knowledge.next_batch(count, self.rng)
        self.proposed += batch
        return len(batch)

    def study(self, number: int) -> None:
        """Let proposals draw on what became of a candidate."""
        self.knowledge.study(self.proposed[number], self.results[number])

    def is_stuck(self) -> bool:
        """Whether as many trials of this run as `early_stopping` have brought nothing better."""
        return self.early_stopping is not None and len(self.knowledge.records) - self.progress >= self.early_stopping

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
        records = self.knowledge.records
        elapsed = time.monotonic() - self.start
        progress = Progress(
            record, self.knowledge.best, len(records), self.resumed, count_failures(records), elapsed, self.peak
        )
        for callback in self.callbacks:
            callback(progress)

    def result(self, comparison: Comparison | None = None, ended: str = "") -> Result:
        """The result so far."""
        records, spent = tuple(self.knowledge.records), time.monotonic() - self.start
        return Result(self.task, self.knowledge.best, records, self.resumed, spent, self.peak, comparison, ended)


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
