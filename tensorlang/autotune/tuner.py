"""The tuning loop: propose, measure, record, learn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.measurer import Limits, Measurement, Measurer, require_native
from tensorlang.autotune.records.fingerprint import host, versions
from tensorlang.autotune.records.log import LogWriter, read_log
from tensorlang.autotune.records.record import TuningRecord, now
from tensorlang.autotune.result import Interrupted, Progress, Result, count_failures
from tensorlang.autotune.search.evolution import Candidate
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task

BATCH = 8
LONGEST_ERROR = 2000

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
) -> Result:
    """Tune a task and return the best schedule found.

    Stops at `trials` measurements (those already in `log` count) or after `seconds` of wall time. With a log,
    every measurement is appended as it is made, and an interrupted run goes on where it stopped. `sketches`
    replaces the generated search space. `compare` times the winner beside NumPy at the end.
    Ctrl-C raises Interrupted, which holds the result so far. Raises ScheduleError when the search space is empty,
    TargetError when this machine cannot run the target, RecordError when the log cannot be read or written.
    """
    start = time.monotonic()
    require_native(task)
    rng = np.random.default_rng(seed)
    space = require_candidates(sketches_of(task) if sketches is None else sketches, rng)
    earlier = [r for r in _records(log) if task.accepts(r)]
    run = _Run(task, Knowledge(space, make_scorer(task, seed)), rng, seed, tuple(callbacks), start, len(earlier))
    run.knowledge.resume(earlier)
    try:
        with ExitStack() as stack:
            writer = None if log is None else stack.enter_context(LogWriter(log))
            measurer = stack.enter_context(Measurer(task, seed, limits or Limits()))
            run.peak = measurer.peak_gflops()
            run.search(measurer, writer, trials, None if seconds is None else start + seconds)
            best = run.knowledge.best
            return run.result(measurer.compare(best.trace) if compare and best is not None else None)
    except KeyboardInterrupt:
        raise Interrupted(run.result()) from None


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
    peak: float = 0.0

    def search(self, measurer: Measurer, writer: LogWriter | None, trials: int, deadline: float | None) -> None:
        """Measure batch after batch until the trials, the time or the space are used up."""
        known = self.knowledge

        def over() -> bool:
            return deadline is not None and time.monotonic() >= deadline

        while len(known.records) < trials and not over():
            known.learn()
            batch = known.next_batch(min(BATCH, trials - len(known.records)), self.rng)
            if not batch:
                return
            traces = [candidate.trace.to_json() for candidate in batch]
            for position, measurement in measurer.measure(traces, known.best_seconds):
                record = self.record(batch[position], measurement)
                if writer is not None:
                    writer.append(record)
                known.add(record, batch[position])
                self.tell(record)
                if over():
                    return
            if writer is not None:
                writer.sync()

    def record(self, candidate: Candidate, measurement: Measurement) -> TuningRecord:
        """The record of a measured candidate."""
        trace = candidate.trace
        return TuningRecord(
            workload=self.task.workload,
            target=self.task.target.to_json(),
            threads=self.task.threads,
            sketch=candidate.sketch.name,
            trace=trace.to_json(),
            trace_key=trace.key,
            decisions=candidate.decisions,
            status=measurement.status,
            seconds=measurement.seconds,
            error=measurement.error[:LONGEST_ERROR],
            estimate=candidate.estimate,
            checked=measurement.checked,
            seed=self.seed,
            host=host(),
            versions=versions(),
            time=now(),
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

    def result(self, comparison: Comparison | None = None) -> Result:
        """The result so far."""
        known, spent = self.knowledge, time.monotonic() - self.start
        return Result(self.task, known.best, tuple(known.records), self.resumed, spent, self.peak, comparison)


def _records(log: str | os.PathLike[str] | None) -> tuple[TuningRecord, ...]:
    """The records of a log; none when there is no log yet."""
    return read_log(log).records if log is not None and Path(log).exists() else ()
