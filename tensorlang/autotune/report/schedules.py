"""The best schedule of a search as Python text and as loops, proven legal again before it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tensorlang.autotune.apply import replay
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.report.figures import MALFORMED
from tensorlang.autotune.task import Task, arguments_of, create_task
from tensorlang.autotune.templates.task import template_task
from tensorlang.driver import lower
from tensorlang.schedule import Trace
from tensorlang.target.spec import Target


@dataclass(frozen=True, slots=True)
class ShownSchedule:
    """A schedule as Python statements and as a loop nest; `python_error` and `nest_error` say why one is missing."""

    python: str = ""
    nest: str = ""
    python_error: str = ""
    nest_error: str = ""


def show_schedule(record: TuningRecord, tasks: Iterable[Task] = (), run_files: bool = False) -> ShownSchedule:
    """Show the schedule of a record.

    The loops need the program: it is one of `tasks`, or made by the library operator that the record names. A record
    that names a file would run it, which happens with `run_files` only.
    """
    try:
        python = Trace.from_json(record.trace).to_python()
    except MALFORMED as error:
        return ShownSchedule(python_error=f"the trace of the record is none: {error}", nest_error="there is no trace")
    try:
        task = next((t for t in tasks if t.workload.key == record.workload.key), None) or _task(record, run_files)
        nest = str(lower(replay(record, task), arguments_of(task.tensors), target=task.target))
    except MALFORMED as error:
        return ShownSchedule(python, nest_error=str(error) or type(error).__name__)
    return ShownSchedule(python, nest)


def _task(record: TuningRecord, run_files: bool) -> Task:
    work, target = record.workload, Target.from_json(record.target)
    if ":" not in work.name and not work.name.endswith(".py"):
        return create_task(work.name, work.args, target, record.threads)
    if not run_files:
        raise ValueError(f"the program is made by {work.name}, which is not run unless you ask for it (--run-files)")
    made = template_task(work.name, work.args, target, record.threads)
    return create_task(work.name, work.args, target, record.threads) if made is None else made.task
