"""The program of a record, made again from the name that it has there.

Operators and templates of the package are known by their names. A file that a record names is run only where somebody
has asked for that, or has named the file: it may be anybody's record, and the file may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang import topi
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.task import Task, create_task
from tensorlang.autotune.templates.registry import SHIPPED
from tensorlang.autotune.templates.task import template_task
from tensorlang.errors import InternalError, RecordError, TensorlangError
from tensorlang.files import is_file
from tensorlang.limits import for_a_record
from tensorlang.schedule.recorded import reason
from tensorlang.target.spec import Target

_OURS = topi.OPERATORS.keys() | SHIPPED.keys()
"""Names of records that mean what is in the package."""


def remake(record: TuningRecord, places: Mapping[str, str] | None = None, run_files: bool = False) -> Task:
    """The task of a record; RecordError says why its program cannot be made again.

    `places`: where functions are (`file.py:function`), by their names in records, or by those of the functions alone.
    `run_files`: the files that records name may be run, too. The program may be another one by now: its key tells.
    """
    places = places or {}
    work, name = record.workload, _place(record.workload.name, places)
    if name not in _OURS and not _in_a_file(name):
        raise RecordError(f"{work} names no operator and no file:function: it is proven when it is applied")
    if name not in _OURS and name not in places.values() and not run_files:
        raise RecordError(
            f"the program is made by {name}, which is not run unless you ask for it (--run-files, --program)"
        )
    target = Target.from_json(record.target)
    try:
        with for_a_record(0):
            made = template_task(name, work.args, target, record.threads)
            return create_task(name, work.args, target, record.threads) if made is None else made.task
    except InternalError:
        raise
    except Exception as error:
        moved = _in_a_file(name) and not is_file(name.rpartition(":")[0])
        advice = "; if the file has moved, say where it is (--program FILE.py)" if moved else ""
        why = str(error) if isinstance(error, TensorlangError) else reason(error)
        raise RecordError(f"{work} cannot be made again: {why}{advice}") from error


def _place(name: str, places: Mapping[str, str]) -> str:
    """Where what a record names is now."""
    if name in _OURS:
        return name
    known = {_function(place): place for place in places.values()} | dict(places)
    return known.get(name) or known.get(_function(name)) or name


def _function(place: str) -> str:
    return place.rpartition(":")[2]


def _in_a_file(name: str) -> bool:
    return ":" in name or name.endswith(".py")
