"""The best schedule of a search as Python text and as loops, proven legal again before it is shown."""

from __future__ import annotations

from collections.abc import Iterable

from tensorlang.autotune.apply import replay
from tensorlang.autotune.records.export import unproven_text
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.remade import remake
from tensorlang.autotune.task import Task, arguments_of
from tensorlang.dataclass import dataclass
from tensorlang.driver import lower
from tensorlang.errors import TensorlangError
from tensorlang.limits import for_a_record
from tensorlang.schedule.recorded import argument_bytes, reason


@dataclass(frozen=True, slots=True)
class ShownSchedule:
    """A schedule as Python statements and as a loop nest; `python_error` and `nest_error` say why one is missing."""

    python: str = ""
    nest: str = ""
    python_error: str = ""
    nest_error: str = ""


def show_schedule(record: TuningRecord, tasks: Iterable[Task] = (), run_files: bool = False) -> ShownSchedule:
    """Show the schedule of a record.

    It is proven first, which needs the program: it is one of `tasks`, or made by the library operator that the record
    names. A record that names a file would run it, which happens with `run_files` only. Steps that nothing has proven
    are shown as comments.
    """
    try:
        task = next((t for t in tasks if record.workload.key in t.program.keys), None) or remake(
            record, run_files=run_files
        )
        made = replay(record, task)
    except Exception as error:
        return ShownSchedule(unproven_text(record), python_error=_why(error), nest_error=_why(error))
    try:
        with for_a_record(argument_bytes(task.program)):
            nest = str(lower(made, arguments_of(task.tensors), target=task.target))
    except Exception as error:
        return ShownSchedule(str(made), nest_error=_why(error))
    return ShownSchedule(str(made), nest)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, TensorlangError) else reason(error)
