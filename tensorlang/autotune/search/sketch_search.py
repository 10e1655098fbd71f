"""What to measure of a program without a template: the library's schedule, then candidates of sketches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tensorlang.autotune.apply import records_of, replay
from tensorlang.autotune.loop import Budget, History, search
from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import Harness, Measurement, record_of
from tensorlang.autotune.model.cost_model import Transferred
from tensorlang.autotune.phases import Phase, enter
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.resuming import resumable
from tensorlang.autotune.search.evolution import Candidate, Scorer
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import each_sketch, library_sketch, require_iterations
from tensorlang.autotune.task import Task
from tensorlang.target.rates import core_of


@dataclass(slots=True)
class SketchSearch:
    """Proposes candidates of sketches: those given, or the library's schedule and then what the rules write."""

    task: Task
    seed: int = 0
    given: Sequence[Sketch] | None = None
    model: str | os.PathLike[str] | None = None
    history: History = field(default_factory=History)
    _learned: Transferred | None = None
    _library: Sketch | None = None
    _first: tuple[Candidate, TuningRecord] | None = None
    _scorer: Scorer | None = None
    _known: Knowledge | None = None
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def move_to(self, machines: Machines) -> None:
        """See Search."""
        self.task = machines.fit(self.task)

    def read(self, log: Path | None) -> None:
        """See Search: the fastest record is proven."""
        task = self.task
        if self.given is None:
            require_iterations(task)
        self._learned = chosen_model(self.model, task.target)
        records = [] if log is None else records_of(log, task)
        for record in resumable(records, task.program, str(task.workload), lambda record: replay(record, task)):
            self.history.take(record)

    def tune(self, harness: Harness, budget: Budget) -> None:
        """See Search: time is not over before the library's schedule is measured."""
        if self.given is None and self._library is None and budget.trials > len(self.history.records):
            self._library = library_sketch(self.task)
            if self._library is not None and not self._is_measured(_closed(self._library)):
                search(_Library(self, self._library, harness), harness, budget.for_one_more(self.history))
        self.scorer(harness)
        search(self, harness, budget)

    def _is_measured(self, sketch: Sketch) -> bool:
        records = self.history.records
        return any(r.trace_key == sketch.trace.key and r.status is not Status.NOISY for r in records)

    def scorer(self, harness: Harness) -> Scorer:
        """The judge of candidates, by the rates of the machine, which are measured when they are first asked for."""
        if self._scorer is None:
            self.history.peak = harness.peak_gflops()
            core = core_of(harness.rates(), self.task.target)
            self._scorer = make_scorer(self.task, self.seed, self._learned, core)
        return self._scorer

    def take_first(self, candidate: Candidate, measurement: Measurement) -> TuningRecord:
        """Take in the library's schedule."""
        self._first = candidate, self.take(candidate, measurement)
        return self._first[1]

    def propose(self, count: int, end: float) -> Sequence[Candidate]:
        """See Proposer."""
        known = self._known or self._sketched(end)
        if known is None:
            return ()
        enter(Phase.RANKING)
        known.learn()
        return known.next_batch(count, self._rng)

    def _sketched(self, end: float) -> Knowledge | None:
        """Make the sketches, and tell what was measured of them; None at the `end`."""
        enter(Phase.SKETCHING)
        sketches: list[Sketch] = []
        for sketch in each_sketch(self.task, self._library) if self.given is None else self.given:
            sketches.append(sketch)
            if time.monotonic() >= end:
                return None
        enter(Phase.RANKING)
        assert self._scorer is not None
        known = Knowledge(require_candidates(sketches, self._rng), self._scorer)
        known.resume(self.history.records[: self.history.resumed])
        if self._first is not None:
            known.see(self._first[0])
        self._known = known
        return known

    def take(self, candidate: Candidate, measurement: Measurement, seconds: float = 0.0) -> TuningRecord:
        """See Proposer."""
        sketch, known = candidate.sketch.name, self.history
        made = candidate.trace, candidate.decisions
        return known.take(record_of(measurement, self.task, sketch, *made, self.seed, candidate.estimate, known.peak))

    def study(self, candidate: Candidate, record: TuningRecord) -> None:
        """See Proposer: the library's schedule is studied with the first batch, beside which it means something."""
        assert self._known is not None
        if self._first is not None:
            self._known.study(*self._first)
            self._first = None
        self._known.study(candidate, record)


@dataclass(frozen=True, slots=True)
class _Library:
    """Proposes the library's schedule, and nothing else. It needs no rates to be measured, and its record does."""

    search: SketchSearch
    sketch: Sketch
    harness: Harness

    @property
    def history(self) -> History:
        return self.search.history

    def propose(self, count: int, end: float) -> Sequence[Sketch]:
        """See Proposer."""
        return (_closed(self.sketch),)

    def take(self, closed: Sketch, measurement: Measurement, seconds: float) -> TuningRecord:
        """See Proposer."""
        row = self.sketch.row(self.sketch.start or {}) or ()
        (candidate,) = self.search.scorer(self.harness).candidates([(self.sketch, row)])
        return self.search.take_first(candidate, measurement)

    def study(self, closed: Sketch, record: TuningRecord) -> None:
        """See Proposer: there is nothing else to propose."""


def _closed(sketch: Sketch) -> Sketch:
    """The sketch with the decisions that it starts from."""
    return replace(sketch, trace=sketch.trace.with_decisions(sketch.start or {}))
