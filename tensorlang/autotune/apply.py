"""From a log to a schedule: the best record of a program, replayed with every check."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from tensorlang.autotune.records.log import Log
from tensorlang.autotune.records.lookup import Loaded, Nearest, Source, nearest_record
from tensorlang.autotune.records.record import TuningRecord, WorkloadId, place_of
from tensorlang.autotune.records.store import default_store, logs_to_read, open_source
from tensorlang.autotune.task import Task, arguments_of, task_of
from tensorlang.driver import lower
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.history import Attempts, warn_skipped
from tensorlang.schedule.recorded import argument_bytes, replay_recorded
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.words import format_count, format_threads, printable

T = TypeVar("T")
LogPath = str | os.PathLike[str]
Records = LogPath | Sequence[TuningRecord] | None
"""Where records are looked up: a log, records at hand, or None for the default store."""

_LONGEST = 300  # signs of the text of one record
_SHOWN = 5  # workloads that a message names
_MOST_TRIED = 8  # schedules of a program, where the fastest are refused
_MOST_READ = 64  # records of a log among which they are: a schedule may have been measured often


@dataclass(frozen=True, slots=True)
class Opened:
    """Records ready to be looked up. What `own` has wins over what `others` have, which are opened when it misses."""

    where: str
    own: Sequence[Source]
    others: Callable[[], Sequence[Source]] = tuple

    def best(self, key: str, place: str) -> TuningRecord | None:
        """The fastest ok record of a program in one place."""
        return _fastest(self.own, key, place) or _fastest(self.others(), key, place)

    def ranked(self, key: str, place: str) -> Iterator[TuningRecord]:
        """The ok records of a program in one place, fastest first: a few, each of other steps."""
        best = self.best(key, place)
        if best is None:
            return
        yield best
        known = {_steps(best)}
        for mine in (True, False):
            sources = self.own if mine else self.others()
            found = (record for source in sources for record in source.fastest(key, place, _MOST_READ))
            for record in sorted(found, key=lambda r: r.median):
                if _steps(record) not in known and len(known) < _MOST_TRIED:
                    known.add(_steps(record))
                    yield record

    def nearest(self, wanted: WorkloadId) -> Nearest | None:
        """The nearest record to a program, of the first log that has one."""
        found = (nearest_record(source, wanted) for source in (*self.own, *self.others()))
        return next((near for near in found if near is not None), None)

    def missing(self, task: Task) -> str:
        """Why there is no record of a task, and what comes nearest; safe to print."""
        return printable(self._missing(task))

    def _missing(self, task: Task) -> str:
        wanted, sources = task.workload, (*self.own, *self.others())
        places = dict.fromkeys(_place(r) for source in sources for r in source.bests(wanted.key))
        if places:
            machine = _place_text(str(task.target), task.threads)
            return f"{self.where} has {wanted} for {'; '.join(places)}, not for {machine}"
        statuses: Counter[str] = sum((source.statuses(wanted.key) for source in sources), Counter())
        if statuses:
            ended = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
            text = f"{self.where} has {format_count(statuses.total(), 'record')} of {wanted}, but none is ok ({ended})"
        else:
            known = list(dict.fromkeys(k.label for source in sources for k in source.workloads()))
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            has = ", ".join(known[:_SHOWN]) or "no records"
            text = f"{self.where} has no record of {wanted} ({wanted.key}); it has {has}{more}"
        near = self.nearest(wanted)
        return text if near is None else f"{text}; the nearest is {near}"


@contextmanager
def open_records(records: Records) -> Iterator[Opened]:
    """Open what records are looked up in; RecordError when it cannot be read, or the default store is empty.

    In the default store this machine's log comes first, then those of others. A log there that cannot be read is left
    out with a warning (RecordSkipped), as long as another one can.
    """
    if records is not None and not isinstance(records, str | os.PathLike):
        yield Opened("the list given", [Loaded(Log(Path(), tuple(records)))])
        return
    paths = logs_to_read(records)
    with ExitStack() as stack:
        if len(paths) == 1:
            yield Opened(str(paths[0]), [stack.enter_context(open_source(paths[0]))])
            return
        mine = paths[:1] if paths[0] == default_store() else []
        own, unread = _open_readable(stack, mine)

        @cache
        def others() -> Sequence[Source]:
            found, failed = _open_readable(stack, paths[len(mine) :])
            errors = [*unread, *failed]
            if errors and not own and not found:
                raise errors[0]
            for error in errors:
                warn_skipped(f"the default store: {error}")
            return found

        yield Opened(str(paths[0].parent), own, others)


def _open_readable(stack: ExitStack, paths: Sequence[Path]) -> tuple[list[Source], list[RecordError]]:
    """The logs that can be read, opened, and why the others cannot."""
    found, errors = [], []
    for path in paths:
        try:
            found.append(stack.enter_context(open_source(path)))
        except RecordError as error:
            errors.append(error)
    return found, errors


def find_best(log: Records, task: Task) -> TuningRecord:
    """Return the fastest record of a task in a log; RecordError says what the log has instead.

    None is the default store: this machine's log first, then those of others (the fastest among them).
    """
    with open_records(log) as opened:
        best = opened.best(task.workload.key, place_of(task.target.to_json(), task.threads))
        if best is None:
            raise RecordError(opened.missing(task))
        return best


def _steps(record: TuningRecord) -> str:
    return json.dumps(record.trace, sort_keys=True)


def _fastest(sources: Sequence[Source], key: str, place: str) -> TuningRecord | None:
    found = (source.best(key, place) for source in sources)
    return min((record for record in found if record is not None), key=lambda r: r.median, default=None)


def records_of(log: LogPath, task: Task) -> list[TuningRecord]:
    """All records of a task in a log, in order; none when there is no log yet."""
    if not Path(log).is_file():
        return []
    with open_source(log) as source:
        return source.records(task.workload.key, place_of(task.target.to_json(), task.threads))


def find_nearest(log: LogPath | None, task: Task) -> Nearest | None:
    """Return the record nearest to a task: of the same program elsewhere, of other sizes, or of the same structure."""
    with open_records(log) as opened:
        return opened.nearest(task.workload)


def _place(record: TuningRecord) -> str:
    return _place_text(record.target_text, record.threads)


def _place_text(target: str, threads: int) -> str:
    return f"{target} with {format_threads(threads)}"


def described(record: TuningRecord) -> str:
    """A record as the origin of a schedule, in a line that is safe to print."""
    sketch = f" ({record.sketch})" if record.sketch else ""
    text = f"the record of {record.time}: {record.gflops:.1f} GFLOP/s, {record.median * 1e3:.3g} ms{sketch}"
    return printable(" ".join(text.split()), _LONGEST)


def replay(record: TuningRecord, task: Task) -> Schedule:
    """Return the schedule of a record, proven legal again in its final state.

    RecordError when the record is of another program, or when its trace is not legal for this one.
    """
    try:
        return replayed(record, task)
    except ScheduleError as error:
        raise RecordError(f"the record's schedule of {record.workload} is refused: {error}") from error


def replayed(record: TuningRecord, task: Task) -> Schedule:
    """`replay`, with the ScheduleError of a trace that is not legal."""
    if record.workload.key != task.workload.key:
        raise RecordError(
            f"the record is of {record.workload} ({record.workload.key}), "
            f"not of {task.workload} ({task.workload.key}): the programs differ"
        )
    made = replay_recorded(create_schedule([t.op for t in task.outputs]), record.trace)
    made.origin = described(record)
    return made


def best_that_works(log: Records, task: Task, asked: str, use: Callable[[TuningRecord, Schedule], T]) -> T:
    """What `use` makes of the fastest record of a task that neither is refused, and of its schedule, proven again.

    Those before it are skipped with a warning. RecordError when there is none; it names what was refused.
    """
    attempts = Attempts(asked, str(task.workload), argument_bytes(task.program))
    with open_records(log) as opened:
        found = opened.ranked(task.workload.key, place_of(task.target.to_json(), task.threads))
        made = attempts.first(found, described, lambda record: use(record, replayed(record, task)))
        if made is not None:
            return made
        raise attempts.error() if attempts.refused else RecordError(opened.missing(task))


def apply_best(
    log: Records,
    tensors: Task | Sequence[Tensor],
    target: str | Target | None = None,
    threads: int | None = None,
) -> Schedule:
    """Return the best schedule that a log has for these tensors (inputs first, outputs last) on this target.

    None is the default store. The trace is replayed with all legality checks, and lowered, which a build with these
    arguments uses; one that is illegal, or cannot be lowered, is skipped with a warning (RecordSkipped), and the next
    best is taken. RecordError when the log cannot be read, has no record of exactly this
    program, target and thread count (it names the nearest), or holds refused ones only.
    """
    task = tensors if isinstance(tensors, Task) else task_of(tensors, target=target, threads=threads)

    def use(_: TuningRecord, made: Schedule) -> Schedule:
        lower(made, arguments_of(task.tensors), target=task.target)
        return made

    return best_that_works(log, task, "apply_best", use)
