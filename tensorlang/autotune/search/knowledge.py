"""What a search knows: timed candidates, and what was proposed already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from tensorlang.autotune.model.cost_model import CostModel, Transferred
from tensorlang.autotune.model.judge import judge_of
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.search.evolution import Candidate, Evolution, Place, Scorer
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.target.rates import Core

ELITES = 32
GROWTH = 16  # the share of new results, as one in so many, that the model is trained again for


@dataclass(slots=True)
class Knowledge:
    """Grows by `resume`, `see` and `study`; `next_batch` draws on it."""

    sketches: tuple[Sketch, ...]
    scorer: Scorer
    _timed: list[tuple[Candidate, float]] = field(default_factory=list)
    _learned: int = 0
    _seen: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    _keys: set[str] = field(default_factory=set)
    _loops: set[tuple[str, bytes]] = field(default_factory=set)
    _evolution: Evolution = field(init=False)

    def __post_init__(self) -> None:
        self._evolution = Evolution(self.sketches, self.scorer)

    def study(self, candidate: Candidate, record: TuningRecord) -> None:
        """Let proposals draw on what a candidate came to."""
        if record.ok:
            self._timed.append((candidate, record.median))

    def resume(self, records: Sequence[TuningRecord]) -> None:
        """Take over records of an earlier run: they are not measured again, and they train the model."""
        by_name = {s.name: s for s in self.sketches}
        known: list[tuple[Sketch, tuple[int, ...], TuningRecord]] = []
        for record in records:
            if record.status is Status.NOISY:  # says nothing of the candidate, which may be measured again
                continue
            self._keys.add(record.trace_key)
            sketch = by_name.get(record.sketch)
            row = None if sketch is None else sketch.row(record.decisions)
            if sketch is not None and row is not None:
                self._seen.add((sketch.name, row))
                known.append((sketch, row, record))
        candidates = self.scorer.candidates([(sketch, row) for sketch, row, _ in known])
        for candidate, (_, _, record) in zip(candidates, known, strict=True):
            self._loops.add((candidate.sketch.name, candidate.loops))
            self.study(candidate, record)

    def see(self, candidate: Candidate) -> None:
        """Take in that a candidate was proposed: it is not proposed again."""
        self._seen.add((candidate.sketch.name, candidate.row))
        self._keys.add(candidate.trace.key)
        self._loops.add((candidate.sketch.name, candidate.loops))

    def learn(self) -> None:
        """Train the model on everything studied so far, when that is more by enough: training takes the longer, too."""
        if len(self._timed) - self._learned < max(1, self._learned // GROWTH):
            return
        self._learned = len(self._timed)
        rows = np.stack([candidate.features for candidate, _ in self._timed])
        estimates = np.array([candidate.estimate for candidate, _ in self._timed])
        self.scorer.model.fit(rows, estimates, np.array([seconds for _, seconds in self._timed]))

    def next_batch(self, count: int, rng: np.random.Generator) -> list[Candidate]:
        """Candidates that nobody measured yet; different decisions that make one schedule count once.

        The first batch begins with the starts of sketches.
        """
        fresh: list[Candidate] = []
        while not fresh:
            starts = self._starts(count)
            proposed = starts + self._evolution.propose(self._seen, self._elites(), count - len(starts), rng)
            for candidate in proposed:
                if (candidate.sketch.name, candidate.row) in self._seen:
                    continue
                key, loops = candidate.trace.key, (candidate.sketch.name, candidate.loops)
                if key not in self._keys and (loops not in self._loops or not candidate.loops):
                    fresh.append(candidate)
                self.see(candidate)
            if not proposed:
                break
        return fresh

    def _starts(self, count: int) -> list[Candidate]:
        """The candidates that sketches want measured first and nobody has measured."""
        rows = [(s, None if s.start is None else s.row(s.start)) for s in self.sketches]
        fresh = [(s, row) for s, row in rows if row is not None and (s.name, row) not in self._seen]
        return self.scorer.candidates(fresh[:count])

    def _elites(self) -> list[Place]:
        """The fastest candidates."""
        fastest = sorted(self._timed, key=lambda item: item[1])[:ELITES]
        return [(candidate.sketch, candidate.row) for candidate, _ in fastest]


def make_scorer(task: Task, seed: int, transferred: Transferred | None = None, core: Core | None = None) -> Scorer:
    """The standard judge of a task's candidates; `transferred` is what was learned from other programs.

    `core`: that of the machine which measures. What was learned elsewhere corrects the estimate of a usual core.
    """
    judge = judge_of(task.target, task.threads, core if transferred is None else None)
    return Scorer(judge.estimate, judge.features, CostModel(seed, transferred))
