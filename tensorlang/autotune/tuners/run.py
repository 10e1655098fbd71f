"""Tuning a template as a program without one is tuned: a log to go on from, live progress, a result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from tensorlang.autotune.budget import check_budget, checked_seed
from tensorlang.autotune.callback import log_to_file
from tensorlang.autotune.machines import LOCAL, Machines, machines_of
from tensorlang.autotune.measuring.harness import Harness, Limits, WorkersLost
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.phases import Phase, Phases, timed_phases
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Interrupted, Progress, Result, count_failures
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.learned import XGBTuner
from tensorlang.autotune.tuners.measure import MeasureInput, MeasureResult
from tensorlang.autotune.tuners.tuner import Tuner
from tensorlang.errors import DefinitionError


def tune_template(
    task: TemplateTask,
    trials: int = 64,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    callbacks: Sequence[Callable[[Progress], None]] = (),
    limits: Limits | None = None,
    compare: bool = False,
    tuner: Tuner | None = None,
    runner: str | Machines = LOCAL,
    model: str | os.PathLike[str] | None = None,
) -> Result:
    """Tune a template's task (XGBTuner, unless a tuner is given), as `autotune.tune` does a task without a template.

    Measurements of the task in `log` count, and are not made again. However few the `seconds` are, one configuration is
    measured. Raises Interrupted at Ctrl-C, ScheduleError when no configuration is legal. `runner` and `model` as for
    `autotune.tune`.
    """
    check_budget(trials, seconds)
    seed = checked_seed(seed)
    if tuner is not None and model is not None:
        raise DefinitionError("got a tuner and a model; give the model to the tuner: XGBTuner(task, model=...)")
    search = tuner or XGBTuner(task, seed=seed, model=model)
    with timed_phases() as phases, machines_of(runner) as machines:
        phases.enter(Phase.READING)
        search.move_to(machines)

        def opened() -> Harness:
            return machines.harness(search.task.task, seed, limits or Limits())

        return _tune(search, opened, trials, seconds, log, callbacks, compare, phases)


def _tune(
    search: Tuner,
    opened: Callable[[], Harness],
    trials: int,
    seconds: float | None,
    log: str | os.PathLike[str] | None,
    callbacks: Sequence[Callable[[Progress], None]],
    compare: bool,
    phases: Phases,
) -> Result:
    start = time.monotonic()
    log = None if log is None else log_path(log)
    resumed = 0 if log is None else search.load_history(log)
    peak = 0.0

    def tell(_: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for result in results:
            if result.record is not None:
                best = None if search.best is None else search.best.record
                spent = time.monotonic() - start
                failures = count_failures(search.records)
                progress = Progress(result.record, best, search.trials, resumed, failures, spent, peak)
                for callback in callbacks:
                    callback(progress)

    def ended(comparison: Comparison | None = None, why: str = "") -> Result:
        best = None if search.best is None else search.best.record
        spent = time.monotonic() - start
        took = dict(phases.seconds)
        return Result(search.task.task, best, tuple(search.records), resumed, spent, peak, comparison, why, took)

    try:
        with ExitStack() as stack:
            appenders = [] if log is None else [log_to_file(log)]
            measurer = stack.enter_context(opened())
            peak = measurer.peak_gflops()
            told, count = [*appenders, tell], max(0, trials - resumed)
            if seconds is not None and search.best is None and count:
                search.search(measurer, 1, None, told)
                count = max(0, trials - search.trials)
            left = None if seconds is None else max(0.0, start + seconds - time.monotonic())
            search.search(measurer, count, None, told, left)
            best = ended().best
            return ended(measurer.compare(best.trace) if compare and best is not None else None)
    except KeyboardInterrupt:
        raise Interrupted(ended()) from None
    except WorkersLost as lost:
        return ended(why=str(lost))
