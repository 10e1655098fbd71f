"""Tuning without a template, and learning from logs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorlang.autotune.machines import LOCAL, Machines
from tensorlang.autotune.measuring.harness import Harness, Limits
from tensorlang.autotune.records.log import read_log
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.result import Result
from tensorlang.autotune.runs import Callback, run
from tensorlang.autotune.search.described import learn_model
from tensorlang.autotune.search.sketch import Sketch
from tensorlang.autotune.search.sketch_search import SketchSearch
from tensorlang.autotune.task import Task
from tensorlang.autotune.tuners.measure import MeasureOption
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller
from tensorlang.names import lookup


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
    early_stopping: int | None = None,
    model: str | os.PathLike[str] | None = None,
    measurer: Harness | None = None,
    runner: str | Machines = LOCAL,
) -> Result:
    """Tune a task and return the best schedule found.

    The library's own schedule is measured first. Stops at `trials` measurements (those already in `log` count) or after
    `seconds` of wall time, but not before one has worked, or a batch has failed. With a log,
    every measurement is appended as it is made, and an interrupted run goes on where it stopped; `default` is this
    machine's log in the default store. `sketches` replaces the generated search space. `compare` times the winner
    beside NumPy at the end. `early_stopping`: stop after so many trials of this run without a better one.
    `model`: a file of what was learned from other programs (train_model), which corrects the estimate from the start;
    `pretrained` is the one that comes with the package. They are of CPUs; a search for a GPU learns from itself alone.
    `measurer`: one of this task that is open, and stays so; its limits count then.
    `runner`: where candidates run: `local`, `dask://host:port`, or an open `Cluster`. A task for this machine is tuned
    for the machines of the cluster, and so the task of the result. `autotune.on_phase` tells what tuning is at.
    Ctrl-C raises Interrupted, which holds the result so far. Raises DefinitionError for a budget that is none,
    ScheduleError when the search space is empty, TargetError when no machine can run the target, RecordError when the
    log cannot be read or written.

        >>> from tensorlang import autotune
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> result = autotune.tune(task, trials=1)
        >>> result.best.status
        <Status.OK: 'ok'>
    """
    if not isinstance(task, Task):
        how = "create_task('matmul', (512, 512, 512)) and task_of(tensors) make one"
        raise DefinitionError(f"tune takes a task, got {shown(task)}; {how}", caller())
    search, logs = SketchSearch(task, seed, sketches, model), () if log is None else (log,)
    where = MeasureOption(limits or Limits(), runner) if measurer is None else measurer
    return run(search, trials, seconds, early_stopping, logs, callbacks, where, compare)


def train_model(
    logs: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str], seed: int = 0, run_files: bool = False
) -> int:
    """Learn from the records of some logs, and write the model to a file for `tune(..., model=path)`.

    Records of any programs count that can be made again by name; with `run_files`, by running the files that records
    name. Returns how many workloads the logs have; RecordError
    when too few records can be described, or a file cannot be read.

        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> log = Path(mkdtemp()) / "matmul.jsonl"
        >>> with autotune.LogWriter(log) as writer:
        ...     for factor in range(1, 10):
        ...         s = te.create_schedule(task.outputs)
        ...         outer, inner = s["C"].split("i", factor=factor)
        ...         writer.append(autotune.record_by_hand(task, s, [factor * 1e-6]))
        >>> autotune.train_model([log], log.with_name("model.ubj"))
        1
    """
    records = [record for log in logs for record in read_log(log_path(log)).records]
    learn_model(records, seed, run_files).save(path)
    return len({record.workload.key for record in records})


if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang.autotune.tuners.droplet import DropletTuner as DropletTuner
    from tensorlang.autotune.tuners.genetic import GATuner as GATuner
    from tensorlang.autotune.tuners.index import GridSearchTuner as GridSearchTuner
    from tensorlang.autotune.tuners.index import RandomTuner as RandomTuner
    from tensorlang.autotune.tuners.learned import XGBTuner as XGBTuner
    from tensorlang.autotune.tuners.tuner import Tuner as Tuner
else:
    __path__ = []  # its files are imported under the names that TVM's have

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)
