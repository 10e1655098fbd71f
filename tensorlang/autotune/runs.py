"""A search with a log to go on from, live progress, and a result: alike for sketches and for templates."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tensorlang.autotune.budget import check_budget
from tensorlang.autotune.loop import Budget, Search
from tensorlang.autotune.measuring.harness import Harness, WorkersLost
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.phases import Phase, timed_phases
from tensorlang.autotune.records.log import LogWriter
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Interrupted, Progress, Result, count_failures
from tensorlang.autotune.tuners.measure import MeasureOption

Callback = Callable[[Progress], None]


def run(
    search: Search[Any],
    trials: int,
    seconds: float | None,
    early_stopping: int | None,
    logs: Sequence[str | os.PathLike[str]],
    callbacks: Sequence[Callback],
    where: MeasureOption | Harness,
    compare: bool = False,
) -> Result:
    """Search until there are `trials` records, or for so many `seconds`; again with more trials, it goes on.

    The records that the first of the `logs` has count, and all get what is measured. A harness stays open.
    """
    check_budget(trials, seconds, early_stopping)
    start, history = time.monotonic(), search.history
    with ExitStack() as stack:
        phases = stack.enter_context(timed_phases())

        def tell(record: TuningRecord) -> None:
            elapsed, failures = time.monotonic() - start, count_failures(history.records)
            count, resumed = len(history.records), history.resumed
            progress = Progress(record, history.best, count, resumed, failures, elapsed, history.peak)
            for callback in callbacks:
                callback(progress)

        def result(comparison: Comparison | None = None, ended: str = "") -> Result:
            spent, took, records = time.monotonic() - start, dict(phases.seconds), tuple(history.records)
            best, peak = history.best, history.peak
            return Result(search.task, best, records, history.resumed, spent, peak, comparison, ended, took)

        phases.enter(Phase.READING)
        opened = _opened(search, where, stack)
        history = search.history
        search.read(log_path(logs[0]) if logs else None)
        try:
            history.logs, history.tell = [stack.enter_context(LogWriter(log_path(log))) for log in logs], tell
            harness = opened()
            end = math.inf if seconds is None else start + seconds
            search.tune(harness, Budget(trials, end, early_stopping))
            return result(harness.compare(history.best.trace) if compare and history.best is not None else None)
        except KeyboardInterrupt:
            raise Interrupted(result()) from None
        except WorkersLost as lost:
            return result(ended=str(lost))
        finally:
            history.logs, history.tell = (), None


def _opened(search: Search[Any], where: MeasureOption | Harness, stack: ExitStack) -> Callable[[], Harness]:
    """What opens the harness of the task, which is fitted to the machines."""
    if not isinstance(where, MeasureOption):
        return lambda: where
    machines = stack.enter_context(where.machines())
    search.move_to(machines)
    return lambda: stack.enter_context(machines.harness(search.task, search.seed, where.limits))
