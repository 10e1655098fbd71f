"""What to measure of a program without a template: the library's schedule, then candidates of sketches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from tensorlang.autotune.apply import records_of, replay
from tensorlang.autotune.budget import checked_seed
from tensorlang.autotune.loop import Budget, History, go_through
from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import Harness, Measurement, record_of
from tensorlang.autotune.model.cost_model import Transferred
from tensorlang.autotune.phases import Phase, enter
from tensorlang.autotune.records.log import LogPath
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.resuming import resumable
from tensorlang.autotune.search.evolution import Candidate, Scorer
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.pretrained import chosen_model
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import each_sketch, library_sketch, require_iterations
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.target.rates import core_of


@dataclass(slots=True)
class SketchSearch:
    """Proposes candidates of sketches: those given, or the library's schedule and then what the rules write."""

    task: Task
    seed: int = 0
    given: Sequence[Sketch] | None = None
    model: str | os.PathLike[str] | None = None
    history: History = field(default_factory=History)
    _is_read: bool = False
    _learned: Transferred | None = None
    _library: Sketch | None = None
    _first: tuple[Candidate, TuningRecord] | None = None
    _harness: Harness | None = None
    _scorer: Scorer | None = None
    _known: Knowledge | None = None
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.seed = checked_seed(self.seed)
        self._rng = np.random.default_rng(self.seed)

    def move_to(self, machines: Machines) -> None:
        self.task = machines.fit(self.task)

    def preload(self, log: LogPath) -> None:
        """Take over what a log has of the task, whatever log is read and written later."""
        task, known = self.task, self.history.records
        found = [record for record in records_of(log_path(log), task) if record not in known]
        for record in resumable(found, task.program, str(task.workload), lambda record: replay(record, task)):
            self.history.take(record)

    def read(self, log: Path | None) -> None:
        """See Search: the fastest record is proven."""
        if self._is_read:
            return
        task = self.task
        if self.given is None:
            require_iterations(task)
        self._learned = chosen_model(self.model, task.target)
        if log is not None:
            self.preload(log)
        self.history.resumed, self._is_read = len(self.history.records), True

    def tune(self, harness: Harness, budget: Budget) -> None:
        """See Search: time is not over before the library's schedule is measured."""
        self._harness = harness
        if self.given is None and self._library is None and budget.trials > len(self.history.records):
            self._library = library_sketch(self.task)
            if self._library is not None and not self._is_measured(self._library):
                go_through(self, harness, budget.for_one_more(self.history))
        self._judge()
        go_through(self, harness, budget)

    def _is_measured(self, sketch: Sketch) -> bool:
        records = self.history.records
        return any(r.trace_key == sketch.trace.key and r.status is not Status.NOISY for r in records)

    def _judge(self) -> Scorer:
        """The judge of candidates, by the rates of the machine, which are measured when they are first asked for."""
        if self._scorer is None and self._harness is not None:
            self.history.peak = self._harness.peak_gflops()
            core = core_of(self._harness.rates(), self.task.target)
            self._scorer = make_scorer(self.task, self.seed, self._learned, core)
        assert self._scorer is not None
        return self._scorer

    def propose(self, count: int, end: float) -> Sequence[Candidate | Sketch]:
        """See Search: the library's schedule is measured before rates, and needs no judge."""
        if self._scorer is None and self._library is not None:
            return (self._library,)
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
        self._known = Knowledge(require_candidates(sketches, self._rng), self._judge())
        self._known.resume(self.history.records[: self.history.resumed])
        if self._first is not None:
            self._known.see(self._first[0])
        return self._known

    def take(self, proposal: Candidate | Sketch, measurement: Measurement, seconds: float) -> TuningRecord:
        match proposal:
            case Candidate() as candidate:
                pass
            case Sketch() as sketch:
                (candidate,) = self._judge().candidates([(sketch, sketch.row(sketch.start or {}) or ())])
        name, made, known = candidate.sketch.name, (candidate.trace, candidate.decisions), self.history
        record = record_of(measurement, self.task, name, *made, self.seed, candidate.estimate, known.peak)
        if candidate is not proposal:
            self._first = candidate, record
        return known.take(record)

    def study(self, proposal: Candidate | Sketch, record: TuningRecord) -> None:
        """See Search: the library's schedule is studied with the first batch, beside which it means something."""
        if self._known is None or isinstance(proposal, Sketch):
            return
        if self._first is not None:
            self._known.study(*self._first)
            self._first = None
        self._known.study(proposal, record)
