"""The one loop of tuning: what is proposed is measured, recorded, told of, and learned from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import Harness, Measurement, Recorded
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass

BATCHES = 2
"""That are measured at a time: the next one is proposed, and proven, while the last one is being built."""


@dataclass(slots=True)
class History:
    """The records of a search, the `resumed` ones of earlier runs first, and the best of them.

    What is taken in goes to the `logs`, and to `tell`. `best_at`: how many records there were when the best
    one came. `peak`: GFLOP/s of the machine that measures, 0 where it is unknown.
    """

    records: list[TuningRecord] = field(default_factory=list)
    resumed: int = 0
    best: TuningRecord | None = None
    best_at: int = 0
    peak: float = 0.0
    logs: Sequence[LogWriter] = ()
    tell: Callable[[TuningRecord], object] | None = None

    def take(self, record: TuningRecord) -> TuningRecord:
        """Take in a record: it is in the logs before anybody hears of it."""
        for log in self.logs:
            log.append(record)
        self.records.append(record)
        if record.ok and (self.best is None or record.median < self.best.median):
            self.best, self.best_at = record, len(self.records)
        if self.tell is not None:
            self.tell(record)
        return record

    def best_seconds(self) -> float | None:
        """The time to beat."""
        return None if self.best is None else self.best.median


@dataclass(frozen=True, slots=True)
class Budget:
    """`trials` measurements, those of earlier runs too, until `end` (of time.monotonic).

    `early_stopping`: so many trials of this run without a better one.
    """

    trials: int
    end: float = math.inf
    early_stopping: int | None = None

    def is_used_up(self, history: History, hopeless: bool = False) -> bool:
        """Whether to stop. Time is not over before one has worked, unless it is `hopeless`."""
        tried = len(history.records)
        is_late = time.monotonic() >= self.end and (hopeless or history.best is not None)
        since_better = tried - max(history.resumed, history.best_at)
        return is_late or tried >= self.trials or since_better >= (self.early_stopping or math.inf)

    def for_one_more(self, history: History) -> Budget:
        """The same for a single trial, however long it takes."""
        return replace(self, trials=min(self.trials, len(history.records) + 1), end=math.inf)


class Proposal(Protocol):
    """A schedule to measure."""

    @property
    def trace(self) -> Recorded: ...


P = TypeVar("P", bound=Proposal)


class Search(Protocol[P]):
    """Says what to measure next of a task, and learns of what came of it."""

    task: Task
    seed: int
    history: History

    def move_to(self, machines: Machines) -> None:
        """Search for these machines; TargetError when they cannot run the task."""

    def read(self, log: Path | None) -> None:
        """Take over what a log has of the task; not again before a later round."""

    def tune(self, harness: Harness, budget: Budget) -> None:
        """Go through the loop: once, or at first for a single trial."""

    def propose(self, count: int, end: float) -> Sequence[P]:
        """Up to `count` schedules that nobody measured yet; none when there are no more, or none before the `end`."""

    def take(self, proposal: P, measurement: Measurement, seconds: float) -> TuningRecord:
        """The record of what was measured, so many seconds after it was asked for, taken into the history."""

    def study(self, proposal: P, record: TuningRecord) -> None:
        """Draw on a result in proposals to come."""


def go_through(search: Search[P], harness: Harness, budget: Budget) -> None:
    """Measure what is proposed until the budget or the space is used up.

    What is proposed draws on the results of all batches but the last one, which is still being measured, in the order
    in which they were proposed: each is studied before the next batch. So proposals depend on times alone, not on how
    long builds take. Time is not over before one has worked, or as many as `harness.batch` have failed.
    """
    history = search.history
    if budget.is_used_up(history):
        return
    until = math.inf if history.best is None else budget.end
    left, size = budget.trials - len(history.records), max(1, harness.batch // BATCHES)
    given: list[P] = []
    begun: list[float] = []
    results: dict[int, TuningRecord] = {}

    def study(numbers: Iterable[int]) -> None:
        for number in numbers:
            search.study(given[number], results.pop(number))

    def traces() -> Iterator[Any]:
        earlier = last = range(0)
        while len(given) < left:
            while not all(number in results for number in earlier):
                yield None
            study(earlier)
            batch = search.propose(min(size, left - len(given)), until)
            if not batch:
                return
            earlier, last = last, range(len(given), len(given) + len(batch))
            given.extend(batch)
            for proposal in batch:
                begun.append(time.monotonic())
                yield proposal.trace.to_json()

    with closing(harness.measure(traces(), history.best_seconds, until)) as measured:
        for done, (number, measurement) in enumerate(measured, 1):
            results[number] = search.take(given[number], measurement, time.monotonic() - begun[number])
            if budget.is_used_up(history, hopeless=done >= harness.batch):
                break
            if done % harness.batch == 0:
                for log in history.logs:
                    log.sync()
    study(sorted(results))
