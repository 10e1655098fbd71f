"""From a log to a schedule: the best record of a program, replayed with every check."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TypeVar

from tensorlang.autotune.fitting import Anchored, fitting, mains_with_others
from tensorlang.autotune.records.differences import program_differences, target_differences
from tensorlang.autotune.records.log import Log
from tensorlang.autotune.records.lookup import Loaded, Nearest, Source, nearest_record
from tensorlang.autotune.records.record import TuningRecord, WorkloadId, place_of
from tensorlang.autotune.records.store import default_store, logs_to_read, open_source
from tensorlang.autotune.task import Task, arguments_of, task_of
from tensorlang.dataclass import dataclass
from tensorlang.driver import lower
from tensorlang.errors import RecordError, ScheduleError
from tensorlang.files import is_file
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.schedule.history import Attempts, warn_skipped
from tensorlang.schedule.recorded import How, argument_bytes, replay_recorded
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.te.program import Program
from tensorlang.words import format_count, format_threads, printable

T = TypeVar("T")
LogPath = str | os.PathLike[str]
Records = LogPath | Sequence[TuningRecord] | None
"""Where records are looked up: a log, records at hand, or None for the default store."""

_LONGEST = 300  # signs of the text of one record
_SHOWN = 5  # workloads that a message names
_MOST_TRIED = 8  # schedules of a program, where the fastest are refused
_MOST_CARRIED = 32  # records of a program of other names that a search goes on from
_MOST_READ = 64  # records of a log among which they are: a schedule may have been measured often


@dataclass(frozen=True, slots=True)
class Fit:
    """A record that fits a program, and how its steps apply there; `elsewhere`: it was measured for another place."""

    record: TuningRecord
    how: How
    elsewhere: bool = False

    @property
    def origin(self) -> str:
        """What it is, in a line that is safe to print."""
        notes = [f"from the record of {self.record.workload}, as an anchor"] * isinstance(self.how, Anchored)
        notes += [f"measured for {_place(self.record)}"] * self.elsewhere
        return printable("; ".join([described(self.record), *notes]), _LONGEST)

    def replayed(self, fresh: Schedule) -> Schedule:
        """The schedule of the record, proven again, on a schedule without steps."""
        made = replay_recorded(fresh, self.record.trace, self.how)
        made.origin = self.origin
        return made


@dataclass(frozen=True, slots=True)
class Opened:
    """Records ready to be looked up. What `own` has wins over what `others` have, which are opened when it misses.

    `other_targets`: where nothing was measured for a target, records for others of its kind count.
    """

    where: str
    own: Sequence[Source]
    others: Callable[[], Sequence[Source]] = tuple
    other_targets: bool = False

    def best(self, program: Program, place: str) -> TuningRecord | None:
        """The fastest ok record of a program in one place."""
        found = (_fastest(sources, key, place) for sources in self._sources() for key in program.keys)
        return next((record for record in found if record is not None), None)

    def of_workload(self, workload: WorkloadId, target: Target) -> TuningRecord | None:
        """The fastest ok record of a workload for a target."""
        place = place_of(target.to_json(), target.cores)
        found = (_fastest(sources, workload.key, place) for sources in self._sources())
        return next((record for record in found if record is not None), None)

    def ranked(self, program: Program, target: Target, threads: int) -> Iterator[Fit]:
        """The ok records that fit a program on a target, each of other steps: a few.

        First those of the program, fastest first; then those of its main group, the largest part of the program first;
        then, if they count, those for other targets, in the same order.
        """
        place, known = place_of(target.to_json(), threads), set[str]()
        for record in self._candidates(program, place, target):
            if _steps(record) in known:
                continue
            how = fitting(record, program, target)
            if how is not None:
                known.add(_steps(record))
                yield Fit(record, how, record.place != place)
            if len(known) == _MOST_TRIED:
                return

    def _candidates(self, program: Program, place: str, target: Target) -> Iterator[TuningRecord]:
        """Records of a program, and of what may be its main group, the best first."""
        best = self.best(program, place)
        if best is not None:
            yield best
            for sources in self._sources():
                yield from _by_time(
                    source.fastest(key, place, _MOST_READ) for source in sources for key in program.keys
                )
        for key in self._anchors(program):
            for sources in self._sources():
                yield from _by_time(source.fastest(key, place, _MOST_READ) for source in sources)
        if self.other_targets:
            for key in (*program.keys, *self._anchors(program)):
                for sources in self._sources():
                    found = _by_time(source.bests(key) for source in sources)
                    yield from (record for record in found if record.target.get("kind") == target.kind)

    def _sources(self) -> Iterator[Sequence[Source]]:
        yield self.own
        yield self.others()

    def _anchors(self, program: Program) -> list[str]:
        """The keys of programs whose main group may be that of a program, those with most operations first."""
        mains = mains_with_others(program)
        if not mains:
            return []
        known = {k.key: k for sources in self._sources() for source in sources for k in source.workloads()}
        found = [k for k in known.values() if k.main in mains and k.key not in program.keys]
        return [k.key for k in sorted(found, key=lambda k: -k.operations)]

    def nearest(self, wanted: WorkloadId) -> Nearest | None:
        """The nearest record to a program, of the first log that has one."""
        found = (nearest_record(source, wanted) for source in (*self.own, *self.others()))
        return next((near for near in found if near is not None), None)

    def missing(self, task: Task) -> str:
        """Why there is no record of a task, and what comes nearest; safe to print."""
        return printable(self._missing(task))

    def _missing(self, task: Task) -> str:
        wanted, sources = task.workload, (*self.own, *self.others())
        keyed = [(source, key) for source in sources for key in task.program.keys]
        elsewhere = sorted((r for source, key in keyed for r in source.bests(key)), key=lambda r: not _alike(r, task))
        if elsewhere:
            places = "; ".join(dict.fromkeys(map(_place, elsewhere)))
            differ = target_differences(elsewhere[0], task.target, task.threads)
            text = f"{self.where} has {wanted} for {places}, not for {_place_text(str(task.target), task.threads)}"
            return f"{text}{differ and f' ({differ})'}{self._advice(elsewhere[0], task)}"
        statuses: Counter[str] = sum((source.statuses(key) for source, key in keyed), Counter())
        if statuses:
            ended = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
            text = f"{self.where} has {format_count(statuses.total(), 'record')} of {wanted}, but none is ok ({ended})"
        else:
            known = list(dict.fromkeys(k.label for source in sources for k in source.workloads()))
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            has = ", ".join(known[:_SHOWN]) or "no records"
            text = f"{self.where} has no record of {wanted} ({wanted.key}); it has {has}{more}"
        near = self.nearest(wanted)
        if near is None:
            return text
        found = (
            program_differences(near.record.workload.program, wanted.program),
            target_differences(near.record, task.target, task.threads),
        )
        differ = ", ".join(filter(None, found))
        return f"{text}; the nearest is {near}{differ and f': {differ}'}{self._advice(near.record, task)}"

    def _advice(self, record: TuningRecord, task: Task) -> str:
        """How a record that was measured elsewhere can be had."""
        here = record.place == place_of(task.target.to_json(), task.threads)
        if here or self.other_targets or not _alike(record, task) or fitting(record, task.program, task.target) is None:
            return ""
        return "; other_targets=True takes it, proven again"


def _alike(record: TuningRecord, task: Task) -> bool:
    """Whether a record is for a target of a task's kind."""
    return record.target.get("kind") == task.target.kind


@contextmanager
def open_records(records: Records, other_targets: bool = False) -> Iterator[Opened]:
    """Open what records are looked up in; RecordError when it cannot be read, or the default store is empty.

    In the default store this machine's log comes first, then those of others. A log there that cannot be read is left
    out with a warning (RecordSkipped), as long as another one can.
    """
    if records is not None and not isinstance(records, str | os.PathLike):
        yield Opened("the list given", [Loaded(Log(Path(), tuple(records)))], other_targets=other_targets)
        return
    paths = logs_to_read(records)
    with ExitStack() as stack:
        if len(paths) == 1:
            yield Opened(str(paths[0]), [stack.enter_context(open_source(paths[0]))], other_targets=other_targets)
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

        yield Opened(str(paths[0].parent), own, others, other_targets)


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

        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> autotune.find_best([record], task).sketch
        'by hand'
    """
    with open_records(log) as opened:
        best = opened.best(task.program, place_of(task.target.to_json(), task.threads))
        if best is None:
            raise RecordError(opened.missing(task))
        return best


def find_fit(log: Records, task: Task, other_targets: bool = False) -> Fit:
    """Return the best record that fits a task, proven or not; RecordError says what the log has instead."""
    with open_records(log, other_targets) as opened:
        found = next(opened.ranked(task.program, task.target, task.threads), None)
        if found is None:
            raise RecordError(opened.missing(task))
        return found


def _by_time(found: Iterable[Iterable[TuningRecord]]) -> list[TuningRecord]:
    return sorted((record for each in found for record in each), key=lambda r: r.median)


def _steps(record: TuningRecord) -> str:
    return json.dumps(record.trace, sort_keys=True)


def _fastest(sources: Sequence[Source], key: str, place: str) -> TuningRecord | None:
    found = (source.best(key, place) for source in sources)
    return min((record for record in found if record is not None), key=lambda r: r.median, default=None)


def records_of(log: LogPath, task: Task) -> list[TuningRecord]:
    """All records of a task in a log, in order; none when there is no log yet.

    Of those that were measured under other names the fastest, carried over, come first.
    """
    if not is_file(log):
        return []
    place = place_of(task.target.to_json(), task.threads)
    with open_source(log) as source:
        found = [record for key in task.program.keys for record in source.records(key, place)]
    own = [record for record in found if task.accepts(record)]
    others = sorted((r for r in found if r.ok and not task.accepts(r)), key=lambda record: record.median)
    return [*_carried_over(others[:_MOST_CARRIED], task), *own]


def _carried_over(records: Sequence[TuningRecord], task: Task) -> Iterator[TuningRecord]:
    """Records of a program under the names that a task has; what does not fit is left out."""
    for record in records:
        with suppress(RecordError, ScheduleError):
            trace = replayed(record, task).trace
            yield replace(record, workload=task.workload, trace=trace.to_json(), trace_key=trace.key)


def find_nearest(log: LogPath | None, task: Task) -> Nearest | None:
    """Return the record nearest to a task: of the same program elsewhere, of other sizes, or of the same structure.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from tensorlang import autotune, te
    >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
    >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
    >>> log = Path(mkdtemp()) / "matmul.jsonl"
    >>> with autotune.LogWriter(log) as writer:
    ...     writer.append(record)
    >>> other = autotune.create_task("matmul", (16, 8, 8), threads=1)
    >>> str(autotune.find_nearest(log, other))
    'matmul(8, 8, 8, float32) (same name, other sizes)'
    """
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

        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> len(autotune.replay(record, task).trace.steps)
        0
    """
    try:
        return replayed(record, task)
    except ScheduleError as error:
        raise RecordError(f"the record's schedule of {record.workload} is refused: {error}") from error


def replayed(record: TuningRecord, task: Task) -> Schedule:
    """`replay`, with the ScheduleError of a trace that is not legal."""
    return fit_of(record, task).replayed(fresh_schedule(task))


def fit_of(record: TuningRecord, task: Task) -> Fit:
    """How a record applies to a task; RecordError when it is of another program."""
    how = fitting(record, task.program, task.target)
    if how is None:
        raise RecordError(
            f"the record is of {record.workload} ({record.workload.key}), "
            f"not of {task.workload} ({task.workload.key}): the programs differ"
        )
    return Fit(record, how)


def fresh_schedule(task: Task) -> Schedule:
    return create_schedule([t.op for t in task.outputs])


def best_that_works(
    log: Records, task: Task, asked: str, use: Callable[[TuningRecord, Schedule], T], other_targets: bool = False
) -> T:
    """What `use` makes of the best record that fits a task and is not refused, and of its schedule, proven again.

    Those before it are skipped with a warning. RecordError when there is none; it names what was refused.
    """
    attempts = Attempts(asked, str(task.workload), argument_bytes(task.program))
    with open_records(log, other_targets) as opened:
        found = opened.ranked(task.program, task.target, task.threads)
        made = attempts.first(found, _origin, lambda fit: use(fit.record, fit.replayed(fresh_schedule(task))))
        if made is not None:
            return made
        raise attempts.error() if attempts.refused else RecordError(opened.missing(task))


def _origin(fit: Fit) -> str:
    return fit.origin


def apply_best(
    log: Records,
    tensors: Task | Sequence[Tensor],
    target: str | Target | None = None,
    threads: int | None = None,
    other_targets: bool = False,
) -> Schedule:
    """Return the best schedule that a log has for these tensors (inputs first, outputs last) on this target.

    None is the default store. Names of tensors and axes, and the order of declaration, may be others than when the
    record was made. Where there is no record of the program, one of its main group (a product, a convolution) applies,
    if all before and behind that is made element by element; with `other_targets` also one for another target of the
    same kind, or another number of threads. `origin` of the schedule says so. The trace is replayed with all legality
    checks, and lowered, which a build with these arguments uses; one that is illegal, or cannot be lowered, is skipped
    with a warning (RecordSkipped), and the next best is taken. RecordError when the log cannot be read, has no record
    that fits (it names the nearest, and in what it differs), or refused ones only.

        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> len(autotune.apply_best([record], task).trace.steps)
        0
    """
    task = tensors if isinstance(tensors, Task) else task_of(tensors, target=target, threads=threads)

    def use(_: TuningRecord, made: Schedule) -> Schedule:
        lower(made, arguments_of(task.tensors), target=task.target)
        return made

    return best_that_works(log, task, "apply_best", use, other_targets)
