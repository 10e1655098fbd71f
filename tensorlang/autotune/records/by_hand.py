"""Records of schedules that no tuner made."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.autotune.records.record import Status, TuningRecord, now
from tensorlang.autotune.task import Task
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller
from tensorlang.schedule import Schedule


def record_by_hand(task: Task, schedule: Schedule, seconds: Sequence[float]) -> TuningRecord:
    """Return the record of a schedule of your own, with the times that you took, for a LogWriter.

    The schedule is one of `task.outputs`. DefinitionError unless there are times, and all of them are greater than 0.

    Example:
        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> s = te.create_schedule(task.outputs)
        >>> outer, inner = s["C"].split("i", factor=4)
        >>> record = autotune.record_by_hand(task, s, [2e-6, 1e-6])
        >>> str(record.workload), record.median
        ('matmul(8, 8, 8, float32)', 1.5e-06)
    """
    times = tuple(float(value) for value in seconds)
    if not times or not all(0 < value < float("inf") for value in times):
        raise DefinitionError(
            f"a record wants times of runs in seconds, greater than 0, got {shown(seconds)}", caller()
        )
    steps = schedule.trace
    return TuningRecord(
        task.workload,
        task.target.to_json(),
        task.threads,
        "by hand",
        steps.to_json(),
        steps.key,
        {},
        Status.OK,
        times,
        time=now(),
    )
