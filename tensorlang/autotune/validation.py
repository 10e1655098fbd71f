"""Are the records of a log true to their programs? Each is replayed on its program, made again from its name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tensorlang import topi
from tensorlang.autotune.apply import replay
from tensorlang.autotune.importers.programs import Source
from tensorlang.autotune.records.record import Json, TuningRecord
from tensorlang.autotune.task import Task, create_task
from tensorlang.autotune.templates.registry import SHIPPED
from tensorlang.autotune.templates.task import template_task
from tensorlang.errors import RecordError, TensorlangError
from tensorlang.target.spec import Target

_OURS = topi.OPERATORS.keys() | SHIPPED.keys()
"""Names of records that mean what is in the package."""


class Outcome(StrEnum):
    """What a validation found. `legal` records can be applied; `unknown` ones may be, to the tensors at hand."""

    LEGAL = "legal"
    REFUSED = "refused"
    CHANGED = "changed"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome for one record, and why."""

    record: TuningRecord
    outcome: Outcome
    why: str = ""

    @property
    def sound(self) -> bool:
        """False when the record is at fault; what cannot be judged here is not."""
        return self.outcome in (Outcome.LEGAL, Outcome.UNKNOWN)

    def to_json(self) -> Json:
        """Return it as JSON-able data."""
        record = self.record
        return {
            "workload": str(record.workload),
            "key": record.workload.key,
            "trace_key": record.trace_key,
            "target": record.target,
            "threads": record.threads,
            "outcome": self.outcome.value,
            "why": self.why,
        }


def validate(records: Iterable[TuningRecord], programs: Mapping[str, Source] | None = None) -> Iterator[Validation]:
    """Replay records with all legality checks, each on its program.

    The canonical text of a program identifies it and is not read back: the program is made again from the operator, the
    function or the template that the record names, and its key must be the record's. `programs` says where these are
    now, by their names in the records, or by those of the functions alone (`importers.programs.sources_from`).
    Programs that were tuned as tensors have no such name; their records are `unknown` here, and are verified when they
    are applied.
    """
    made: dict[tuple[object, ...], Task | str] = {}
    for record in records:
        work, name = record.workload, (record.workload.name, record.workload.args, record.place)
        if work.program and hashlib.sha256(work.program.encode()).hexdigest()[:16] != work.key:
            yield Validation(record, Outcome.DAMAGED, "the program's text does not have the record's key")
            continue
        try:
            target = Target.from_json(record.target)
        except RecordError as error:
            yield Validation(record, Outcome.DAMAGED, str(error))
            continue
        if name not in made:
            made[name] = _make(record, target, programs or {})
        yield _validate(record, made[name])


def _make(record: TuningRecord, target: Target, programs: Mapping[str, Source]) -> Task | str:
    """The program of a record, made again, or why it cannot be."""
    work = record.workload
    name = _place(work.name, programs)
    if not _in_a_file(name) and name not in _OURS:
        return f"{work} names no operator and no file:function: it is proven when it is applied"
    try:
        made = template_task(name, work.args, target, record.threads)
        return create_task(name, work.args, target, record.threads) if made is None else made.task
    except TensorlangError as error:
        moved = _in_a_file(name) and not Path(name.rpartition(":")[0]).is_file()
        advice = "; if the file has moved, say where it is (--program FILE.py)" if moved else ""
        return f"{work} cannot be made again: {error}{advice}"


def _place(name: str, programs: Mapping[str, Source]) -> str:
    """Where what a record names is now."""
    if name in _OURS:
        return name
    known = {_function(source.name): source for source in programs.values()} | dict(programs)
    source = known.get(name) or known.get(_function(name))
    return name if source is None else source.name


def _function(place: str) -> str:
    return place.rpartition(":")[2]


def _in_a_file(name: str) -> bool:
    return ":" in name or name.endswith(".py")


def _validate(record: TuningRecord, task: Task | str) -> Validation:
    if isinstance(task, str):
        return Validation(record, Outcome.UNKNOWN, task)
    if task.workload.key != record.workload.key:
        return Validation(record, Outcome.CHANGED, f"{record.workload} is another program by now ({task.workload.key})")
    try:
        replay(record, task)
    except RecordError as error:
        return Validation(record, Outcome.REFUSED, str(error))
    return Validation(record, Outcome.LEGAL)
