"""A search with a log to go on from, live progress, and a result: alike for sketches and for templates."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from tensorlang.autotune.loop import Budget, History, nobody
from tensorlang.autotune.machines import Machines
from tensorlang.autotune.measuring.harness import Harness, WorkersLost
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.phases import Phase, Phases, timed_phases
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Interrupted, Progress, Result, count_failures
from tensorlang.autotune.task import Task
from tensorlang.autotune.tuners.measure import MeasureOption

Callback = Callable[[Progress], None]


class Search(Protocol):
    """Who proposes, by the loop of `autotune.loop`, for one task."""

    @property
    def task(self) -> Task: ...

    @property
    def seed(self) -> int: ...

    @property
    def history(self) -> History: ...

    def move_to(self, machines: Machines) -> None:
        """Search for these machines; TargetError when they cannot run the task."""

    def read(self, log: Path | None) -> None:
        """Take over what a log has of the task, before the first trial."""

    def tune(self, harness: Harness, budget: Budget) -> None:
        """Search until the budget or the space is used up."""


@dataclass(slots=True)
class Run:
    """A search that appends to `logs` and goes on from the first of them, by one budget after the other."""

    search: Search
    logs: Sequence[str | os.PathLike[str]] = ()
    _phases: Phases = field(default_factory=Phases)
    _spent: float = 0.0
    _own: int = 0
    _is_read: bool = False

    def go_on(
        self,
        trials: int,
        seconds: float | None,
        early_stopping: int | None,
        where: MeasureOption | Harness,
        callbacks: Sequence[Callback] = (),
        compare: bool = False,
    ) -> Result:
        """Search until there are `trials` measurements, those of the log included, or for so many `seconds`.

        A harness stays open. Ctrl-C raises Interrupted, which holds the result so far.
        """
        begun = time.monotonic()
        start, end = begun - self._spent, math.inf if seconds is None else begun + seconds
        with ExitStack() as stack:
            stack.enter_context(timed_phases(self._phases))
            self._phases.enter(Phase.READING)
            opened = self._opened(where, stack)
            self._read()
            history = self.search.history
            history.tell = partial(self._tell, callbacks, start)
            try:
                history.logs = [stack.enter_context(LogWriter(log_path(log))) for log in self.logs]
                harness = opened()
                self.search.tune(harness, Budget(self._own + trials, end, early_stopping))
                best = history.best
                return self._result(start, harness.compare(best.trace) if compare and best is not None else None)
            except KeyboardInterrupt:
                raise Interrupted(self._result(start)) from None
            except WorkersLost as lost:
                return self._result(start, ended=str(lost))
            finally:
                history.logs, history.tell, self._spent = (), nobody, time.monotonic() - start

    def _opened(self, where: MeasureOption | Harness, stack: ExitStack) -> Callable[[], Harness]:
        """What opens the harness of a task that was fitted to the machines."""
        if not isinstance(where, MeasureOption):
            return lambda: where
        machines = stack.enter_context(where.machines())
        self.search.move_to(machines)
        return lambda: stack.enter_context(machines.harness(self.search.task, self.search.seed, where.limits))

    def _read(self) -> None:
        """Take over the first log, once; records that the search had before do not count as trials."""
        if not self._is_read:
            self._own = len(self.search.history.records)
            self.search.read(log_path(self.logs[0]) if self.logs else None)
            self.search.history.resumed = len(self.search.history.records)
            self._is_read = True

    def _tell(self, callbacks: Sequence[Callback], start: float, record: TuningRecord) -> None:
        """Call the callbacks."""
        known = self.search.history
        elapsed, failures = time.monotonic() - start, count_failures(known.records)
        progress = Progress(record, known.best, len(known.records), known.resumed, failures, elapsed, known.peak)
        for callback in callbacks:
            callback(progress)

    def _result(self, start: float, comparison: Comparison | None = None, ended: str = "") -> Result:
        """The result so far."""
        known, task, spent = self.search.history, self.search.task, time.monotonic() - start
        phases = dict(self._phases.seconds)
        return Result(
            task, known.best, tuple(known.records), known.resumed, spent, known.peak, comparison, ended, phases
        )
