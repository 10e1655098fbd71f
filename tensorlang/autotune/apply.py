"""From a log to a schedule: the best record of a program, replayed with every check."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tensorlang.autotune.records.log import best_record, read_log
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.task import Task, task_of
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.schedule import Schedule, Trace, create_schedule
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor


def find_best(log: str | os.PathLike[str], task: Task) -> TuningRecord:
    """Return the fastest record of a task in a log; RecordError says what the log has instead."""
    records = read_log(log).records
    best = best_record(records, task.accepts)
    if best is not None:
        return best
    same = [r for r in records if r.workload.key == task.workload.key]
    if not same:
        known = ", ".join(dict.fromkeys(str(r.workload) for r in records)) or "no records"
        raise RecordError(f"{Path(log)} has no record of {task.workload} ({task.workload.key}); it has {known}")
    if not any(r.ok for r in same):
        raise RecordError(f"{Path(log)} has {len(same)} records of {task.workload}, but none is ok")
    places = dict.fromkeys(f"{Target.from_json(r.target)} with {r.threads} thread(s)" for r in same if r.ok)
    wanted = f"{task.target} with {task.threads} thread(s)"
    raise RecordError(f"{Path(log)} has {task.workload} for {'; '.join(places)}, not for {wanted}")


def replay(record: TuningRecord, task: Task) -> Schedule:
    """Return the schedule of a record, proven legal again step by step.

    RecordError when the record is of another program, or when its trace is not legal for this one.
    """
    if record.workload.key != task.workload.key:
        raise RecordError(
            f"the record is of {record.workload} ({record.workload.key}), "
            f"not of {task.workload} ({task.workload.key}): the programs differ"
        )
    try:
        return Trace.from_json(record.trace).apply(create_schedule([t.op for t in task.outputs]))
    except ScheduleError as error:
        raise RecordError(f"the record's schedule of {record.workload} is refused: {error}") from error


def apply_best(
    log: str | os.PathLike[str],
    tensors: Task | Sequence[Tensor],
    target: str | Target | None = None,
    threads: int | None = None,
) -> Schedule:
    """Return the best schedule that a log has for these tensors (inputs first, outputs last) on this target.

    The trace is replayed with all legality checks. RecordError when the log cannot be read, has no record of
    exactly this program, target and thread count, or holds an illegal one.
    """
    task = tensors if isinstance(tensors, Task) else task_of(tensors, target=target, threads=threads)
    return replay(find_best(log, task), task)
