"""Are the records of a log true to their programs? Each is replayed on its program, made again from its name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from tensorlang.autotune.apply import replay
from tensorlang.autotune.importers.programs import Source
from tensorlang.autotune.records.record import Json, TuningRecord
from tensorlang.autotune.remade import remake
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, TensorlangError
from tensorlang.schedule import Schedule
from tensorlang.target.spec import Target
from tensorlang.te.forms import form_of


class Outcome(StrEnum):
    """What a validation found. `legal` records can be applied; `unknown` ones may be, to the tensors at hand."""

    LEGAL = "legal"
    REFUSED = "refused"
    CHANGED = "changed"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Validation:
    """The outcome for one record, and why; of a legal one its schedule."""

    record: TuningRecord
    outcome: Outcome
    why: str = ""
    schedule: Schedule | None = None

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


def validate(
    records: Iterable[TuningRecord], programs: Mapping[str, Source] | None = None, run_files: bool = False
) -> Iterator[Validation]:
    """Replay records with all legality checks, each on its program.

    The text of a program identifies it and is not read back: the program is made again from the operator, the
    function or the template that the record names, and its key must be the record's. `programs` says where these are
    now, by their names in the records, or by those of the functions alone (`importers.programs.sources_from`). Files
    that only records name are run with `run_files`: ask for that with logs of people whose programs you would run.
    Programs that were tuned as tensors have no such name; their records are `unknown` here, and are verified when they
    are applied.
    """
    made: dict[tuple[object, ...], Task | str] = {}
    places = {name: source.name for name, source in (programs or {}).items()}
    for record in records:
        work, name = record.workload, (record.workload.name, record.workload.args, record.place)
        if work.program and form_of(work.program).key != work.key:
            yield Validation(record, Outcome.DAMAGED, "the program's text does not have the record's key")
            continue
        try:
            Target.from_json(record.target)
        except RecordError as error:
            yield Validation(record, Outcome.DAMAGED, str(error))
            continue
        if name not in made:
            made[name] = _make(record, places, run_files)
        yield _validate(record, made[name])


def proven(
    records: Iterable[TuningRecord], programs: Mapping[str, Source] | None = None, run_files: bool = False
) -> Iterator[tuple[TuningRecord, Schedule | str]]:
    """Records with their schedules, proven again, or with the reason why they have none, in a line."""
    for found in validate(records, programs, run_files):
        why = f"{found.outcome.value}: {found.why.partition(chr(10))[0]}"
        yield found.record, why if found.schedule is None else found.schedule


def _make(record: TuningRecord, places: Mapping[str, str], run_files: bool) -> Task | str:
    """The program of a record, made again, or why it cannot be."""
    try:
        return remake(record, places, run_files)
    except TensorlangError as error:
        return str(error)


def _validate(record: TuningRecord, task: Task | str) -> Validation:
    if isinstance(task, str):
        return Validation(record, Outcome.UNKNOWN, task)
    if record.workload.key not in task.program.keys:
        return Validation(record, Outcome.CHANGED, f"{record.workload} is another program by now ({task.workload.key})")
    try:
        made = replay(record, task)
    except TensorlangError as error:
        return Validation(record, Outcome.REFUSED, str(error))
    return Validation(record, Outcome.LEGAL, schedule=made)
