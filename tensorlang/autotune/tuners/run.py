"""Tuning a template as a program without one is tuned: a log to go on from, live progress, a result."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tensorlang.autotune.machines import LOCAL, Machines
from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.result import Result
from tensorlang.autotune.runs import Callback, run
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.learned import XGBTuner
from tensorlang.autotune.tuners.measure import MeasureOption
from tensorlang.autotune.tuners.tuner import Configurations, Tuner
from tensorlang.errors import DefinitionError


def tune_template(
    task: TemplateTask,
    trials: int = 64,
    seconds: float | None = None,
    log: str | os.PathLike[str] | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    limits: Limits | None = None,
    compare: bool = False,
    tuner: Tuner | None = None,
    runner: str | Machines = LOCAL,
    model: str | os.PathLike[str] | None = None,
    early_stopping: int | None = None,
) -> Result:
    """Tune a template's task (XGBTuner, unless a tuner is given), as `autotune.tune` does a task without a template.

    Measurements of the task in `log` count, and are not made again. Time is not over before one configuration has
    worked, or a batch has failed. Raises Interrupted at Ctrl-C, ScheduleError when no configuration is legal.
    `early_stopping`, `runner` and `model` as for `autotune.tune`.

        >>> from tensorlang import autotune, te
        >>> @autotune.template("docs/fivefold")
        ... def fivefold(n):
        ...     x = te.placeholder((n,), name="x")
        ...     y = te.compute((n,), lambda i: x[i] * 5, name="y")
        ...     s, knobs = te.create_schedule(y.op), autotune.get_config()
        ...     knobs.define_split("tile", y.op.axis[0], num_outputs=2)
        ...     outer, inner = knobs["tile"].apply(s, y, y.op.axis[0])
        ...     return s, [x, y]
        >>> task = autotune.task.create("docs/fivefold", (64,), "llvm")
        >>> len(autotune.tune_template(task, trials=1).records)
        1
    """
    if tuner is not None and model is not None:
        raise DefinitionError("got a tuner and a model; give the model to the tuner: XGBTuner(task, model=...)")
    search = Configurations(tuner or XGBTuner(task, seed=seed, model=model))
    where, logs = MeasureOption(limits or Limits(), runner), () if log is None else (log,)
    return run(search, trials, seconds, early_stopping, logs, callbacks, where, compare)
