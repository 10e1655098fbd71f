"""The tuning loop: propose, measure, record, learn."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tensorlang import dtypes
from tensorlang.autotune.cost_model import CostModel
from tensorlang.autotune.estimate import Estimate, Machine, estimate
from tensorlang.autotune.features import features
from tensorlang.autotune.jobs import Comparison
from tensorlang.autotune.log import Log, LogWriter, best_record, read_log
from tensorlang.autotune.measure import Limits, Measurement, Measurer
from tensorlang.autotune.nest import Nest
from tensorlang.autotune.records import Json, Status, TuningRecord, now
from tensorlang.autotune.search import Candidate, Rows, Scorer, propose
from tensorlang.autotune.sketch import Sketch, require_candidates
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task
from tensorlang.errors import TargetError
from tensorlang.target import measure_peak
from tensorlang.target.detect import runs_here
from tensorlang.version import VERSION

BATCH = 8
ELITES = 32
LONGEST_ERROR = 2000


@dataclass(frozen=True, slots=True)
class Progress:
    """What a callback sees after each trial: the peak is that of the task's dtype and threads; 0: unknown."""

    record: TuningRecord
    best: TuningRecord | None
    trials: int
    failures: Counter[str]
    elapsed: float
    peak_gflops: float
    resumed: int


@dataclass(frozen=True, slots=True)
class Result:
    """What tuning gave. `records` are all of this task, those resumed from the log included."""

    task: Task
    best: TuningRecord | None
    records: tuple[TuningRecord, ...]
    resumed: int
    seconds: float
    peak_gflops: float
    comparison: Comparison | None = None

    @property
    def failures(self) -> Counter[str]:
        """Number of records of each status that is not ok."""
        return Counter(r.status.value for r in self.records if not r.ok)


class Interrupted(KeyboardInterrupt):
    """Tuning was stopped by Ctrl-C; `result` holds what was measured, the log has it too."""

    def __init__(self, result: Result) -> None:
        super().__init__("tuning was interrupted; run it again with the same log to go on")
        self.result = result


@dataclass(slots=True)
class _State:
    """The growing knowledge of one run."""

    task: Task
    sketches: tuple[Sketch, ...]
    scorer: Scorer
    seed: int
    records: list[TuningRecord] = field(default_factory=list)
    rows: list[Rows] = field(default_factory=list)
    measured: list[TuningRecord] = field(default_factory=list)
    seen: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)

    @property
    def best(self) -> TuningRecord | None:
        return best_record(self.records)

    def learn(self) -> None:
        """Train the model on everything timed so far."""
        if self.measured:
            estimates = np.array([r.estimate for r in self.measured])
            seconds = np.array([r.median for r in self.measured])
            self.scorer.model.fit(np.stack(self.rows), estimates, seconds)

    def progress(self, record: TuningRecord, elapsed: float, peak: float, resumed: int) -> Progress:
        """What callbacks are told after `record`."""
        failures = Counter(r.status.value for r in self.records if not r.ok)
        return Progress(record, self.best, len(self.records), failures, elapsed, peak, resumed)

    def elites(self) -> list[tuple[int, tuple[int, ...]]]:
        """The best measured candidates, as (sketch number, row)."""
        numbers = {s.name: n for n, s in enumerate(self.sketches)}
        fastest = sorted(self.measured, key=lambda r: r.median)[:ELITES]
        return [(numbers[r.sketch], row_of(self.sketches[numbers[r.sketch]], r) or ()) for r in fastest]

    def resume(self, records: Sequence[TuningRecord]) -> None:
        """Take over records of an earlier run: they are not measured again, and they train the model."""
        by_name = {s.name: s for s in self.sketches}
        for record in records:
            self.records.append(record)
            if record.status is Status.NOISY:  # says nothing about the candidate: it may be measured again
                continue
            self.keys.add(record.trace_key)
            sketch = by_name.get(record.sketch)
            row = row_of(sketch, record) if sketch else None
            if sketch is not None and row is not None:
                self.seen.add((sketch.name, row))
                self.remember(record, self.scorer.candidate(sketch, row))

    def remember(self, record: TuningRecord, candidate: Candidate) -> None:
        """Keep the features of a timed candidate."""
        if record.ok and np.isfinite(record.estimate):
            self.rows.append(candidate.features)
            self.measured.append(record)

    def next_batch(self, count: int, rng: np.random.Generator) -> list[Candidate]:
        """Candidates that nobody measured yet; different decisions of one schedule count once."""
        fresh: list[Candidate] = []
        while not fresh:
            proposed = propose(self.sketches, self.scorer, self.seen, self.elites(), count, rng)
            for candidate in proposed:
                self.seen.add((candidate.sketch.name, candidate.row))
                key = candidate.trace.key
                if key not in self.keys:
                    self.keys.add(key)
                    fresh.append(candidate)
            if not proposed:
                break
        return fresh


def row_of(sketch: Sketch, record: TuningRecord) -> tuple[int, ...] | None:
    """The place of a record's decisions in a sketch; None when the sketch has no such candidates any more."""
    try:
        return tuple(values.index(record.decisions[name]) for name, values in sketch.knobs.items())
    except (KeyError, ValueError):
        return None


def make_scorer(machine: Machine, threads: int, seed: int) -> Scorer:
    """The standard judge of candidates on a machine."""

    def guess(nest: Nest) -> Estimate:
        return estimate(nest, machine, threads)

    def describe(nest: Nest, judged: Estimate) -> Rows:
        return features(nest, judged, machine)

    return Scorer(guess, describe, CostModel(seed))


def tune(
    task: Task,
    trials: int = 64,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    callbacks: Sequence[Callable[[Progress], None]] = (),
    limits: Limits | None = None,
    sketches: Sequence[Sketch] | None = None,
    compare: bool = False,
) -> Result:
    """Tune a task and return the best schedule found.

    Stops at `trials` measurements (those already in `log` count) or after `seconds` of wall time. With a log,
    every measurement is appended as it is made, and an interrupted run goes on where it stopped. `sketches`
    replaces the generated search space. `compare` times the winner beside NumPy at the end.
    Ctrl-C raises Interrupted, which holds the result so far. ScheduleError when the search space is empty.
    """
    start = time.monotonic()
    require_native(task)
    rng = np.random.default_rng(seed)
    space = require_candidates(sketches_of(task) if sketches is None else sketches, rng)
    earlier = [r for r in _earlier(log).records if task.accepts(r)] if log is not None else []
    writer = None if log is None else LogWriter(log)
    peak, comparison, state = 0.0, None, None
    try:
        with Measurer(task, seed, limits or Limits()) as measurer:
            peak = measured_peak(measurer, task)
            machine = Machine.of(task.target)
            state = _State(task, space, make_scorer(machine, task.threads, seed), seed)
            state.resume(earlier)
            deadline = None if seconds is None else start + seconds
            _loop(state, measurer, rng, trials, deadline, writer, callbacks, start, dtype_peak(task, peak))
            if compare and state.best is not None:
                comparison = measurer.compare(state.best.trace)
    except KeyboardInterrupt:
        kept = [] if state is None else state.records
        raise Interrupted(_result(task, kept, len(earlier), start, peak, None)) from None
    finally:
        if writer is not None:
            writer.sync()
            writer.close()
    return _result(task, state.records, len(earlier), start, peak, comparison)


def _loop(
    state: _State,
    measurer: Measurer,
    rng: np.random.Generator,
    trials: int,
    deadline: float | None,
    writer: LogWriter | None,
    callbacks: Sequence[Callable[[Progress], None]],
    start: float,
    peak: float,
) -> None:
    resumed = len(state.records)

    def best_seconds() -> float | None:
        return None if state.best is None else state.best.median

    while len(state.records) < trials and (deadline is None or time.monotonic() < deadline):
        state.learn()
        batch = state.next_batch(min(BATCH, trials - len(state.records)), rng)
        if not batch:
            return
        for position, measurement in measurer.measure([c.trace.to_json() for c in batch], best_seconds):
            candidate = batch[position]
            record = _record(state, candidate, measurement)
            if writer is not None:
                writer.append(record)
            state.records.append(record)
            state.remember(record, candidate)
            for callback in callbacks:
                callback(state.progress(record, time.monotonic() - start, peak, resumed))
            if deadline is not None and time.monotonic() > deadline:
                return
        if writer is not None:
            writer.sync()


def _record(state: _State, candidate: Candidate, measurement: Measurement) -> TuningRecord:
    trace = candidate.trace
    return TuningRecord(
        workload=state.task.workload,
        target=state.task.target.to_json(),
        threads=state.task.threads,
        sketch=candidate.sketch.name,
        trace=trace.to_json(),
        trace_key=trace.key,
        decisions=candidate.decisions,
        status=measurement.status,
        seconds=measurement.seconds,
        error=measurement.error[:LONGEST_ERROR],
        estimate=candidate.estimate,
        checked=measurement.checked,
        seed=state.seed,
        host=host(),
        versions=versions(),
        time=now(),
    )


def _result(
    task: Task,
    records: Sequence[TuningRecord],
    resumed: int,
    start: float,
    peak: float,
    comparison: Comparison | None,
) -> Result:
    spent = time.monotonic() - start
    return Result(task, best_record(records), tuple(records), resumed, spent, dtype_peak(task, peak), comparison)


def _earlier(log: str | os.PathLike[str]) -> Log:
    """The log to resume from; an empty one when the file does not exist or holds nothing yet."""
    path = Path(log)
    return read_log(path) if path.exists() else Log(path, ())


def require_native(task: Task) -> None:
    if task.target.kind != "llvm" or not runs_here(task.target):
        raise TargetError(f"target {task.target} cannot be timed on this machine; tune for 'llvm' (this machine)")


def measured_peak(measurer: Measurer, task: Task) -> float:
    """GFLOP/s of float32 multiply-adds on the task's threads, measured where candidates run; 0 when that fails.

    One thread's peak times the threads counts too: a busy machine can hold some of them up.
    """
    together, alone = (measurer.call(30.0, measure_peak, threads) for threads in (task.threads, 1))
    if together.status is not Status.OK or alone.status is not Status.OK:
        return 0.0
    return max(float(together.value["gflops"]), task.threads * float(alone.value["gflops"]))


def dtype_peak(task: Task, peak: float) -> float:
    """The peak for elements of the task's dtype: half of float32's for 64 bits; narrow floats compute in float32."""
    return peak * 32 / max(32, dtypes.info(task.workload.dtype).bits)


def host() -> Json:
    """Where a record was measured."""
    return {"name": platform.node(), "system": platform.system(), "machine": platform.machine()}


def versions() -> Json:
    """Versions that can change a measurement."""
    found: dict[str, Any] = {"tensorlang": VERSION, "python": platform.python_version()}
    for name in ("numpy", "llvmlite", "islpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
