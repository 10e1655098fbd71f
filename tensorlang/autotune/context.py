"""Tuned records in use: templates, `build` and `topi.schedule` take the best of a log, and say when it has none."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Literal

from tensorlang.autotune.apply import Fit, Records, open_records
from tensorlang.autotune.devices import named_device
from tensorlang.autotune.records.log import LogPath
from tensorlang.autotune.records.record import TuningRecord, WorkloadId
from tensorlang.autotune.records.store import logs_to_read
from tensorlang.autotune.task import Task, arguments_of, count_operations
from tensorlang.autotune.templates.registry import Scheduled, TemplateFunction, chooser
from tensorlang.autotune.templates.task import TemplateTask, collect
from tensorlang.errors import DefinitionError, RecordError, shown
from tensorlang.files import exists
from tensorlang.location import caller
from tensorlang.schedule import Schedule, Trace, create_schedule
from tensorlang.schedule.history import Attempts, Known, history, in_use, say
from tensorlang.schedule.recorded import argument_bytes
from tensorlang.target import parse
from tensorlang.target.spec import Target
from tensorlang.te.operation import PlaceholderOp, buffers
from tensorlang.te.program import Program

Miss = Literal["warn", "error", "ignore"]


class HistoryMiss(UserWarning):
    """A program was scheduled or built where tuned records are in use, and there is none of it."""


class Answers:
    """Answers for programs that have no schedule yet from records."""

    def __init__(self, records: Records, other_targets: bool = False) -> None:
        self._records, self._other_targets = records, other_targets

    def ranked(self, program: Program, target: Target, threads: int) -> Iterator[Fit]:
        """The records that fit a program, the best first: a few, each of other steps."""
        with open_records(self._records, self._other_targets) as opened:
            yield from opened.ranked(program, named_device(target), threads)

    def find(self, s: Schedule, target: Target) -> Iterator[Known]:
        """See History: the steps of the best records."""
        for fit in self.ranked(s.original, target, target.cores):
            yield Known(fit.record.trace, fit.origin, fit.how)

    def missing(self, s: Schedule, target: Target) -> str:
        """See History: what comes nearest."""
        return self.missing_of(_task_of(s.original, target))

    def missing_of(self, task: Task) -> str:
        """Why there is no record of a task, and what comes nearest."""
        try:
            with open_records(self._records, self._other_targets) as opened:
                return opened.missing(task)
        except RecordError as error:
            return str(error)

    def missed(self, s: Schedule, target: Target) -> None:
        """See History: nobody is told."""


class DefaultStore(Answers):
    """The default store, which is asked after all histories in use."""

    def __init__(self) -> None:
        super().__init__(None)

    def ranked(self, program: Program, target: Target, threads: int) -> Iterator[Fit]:
        """The records that fit a program, the best first; none for an empty store."""
        try:
            logs_to_read(None)
        except RecordError:
            return
        yield from super().ranked(program, target, threads)


STORE = DefaultStore()
"""Where `build(schedule="best")` and `topi.schedule` look, by the name that lower floors know."""


_entered: ContextVar[tuple[ExitStack, ...]] = ContextVar("tensorlang_histories_entered", default=())
"""What leaves the contexts that are entered here, outermost first: threads may share a context."""


class ApplyHistoryBest(Answers):
    """A context in which the best records of a log are used. See `apply_history_best`."""

    def __init__(
        self, records: LogPath | Iterable[TuningRecord] | None, miss: Miss = "warn", other_targets: bool = False
    ) -> None:
        if miss not in ("warn", "error", "ignore"):
            raise DefinitionError(f"miss is 'warn', 'error' or 'ignore', got {miss!r}")
        self.miss = miss
        if records is None or isinstance(records, str | os.PathLike):
            missing = [path for path in logs_to_read(records) if not exists(path)]
            if missing:
                raise RecordError(f"no such log: {missing[0]}")
            super().__init__(records, other_targets)
        else:
            given = tuple(records) if isinstance(records, Iterable) else (records,)
            if not all(isinstance(record, TuningRecord) for record in given):
                raise DefinitionError(f"records are a log, tuning records, or None, got {shown(records)}")
            super().__init__(given, other_targets)
        self._told: set[tuple[str, Target, int]] = set()

    def __enter__(self) -> ApplyHistoryBest:
        stack = ExitStack()
        stack.callback(chooser.reset, chooser.set(_choose))
        stack.enter_context(history(self))
        _entered.set((*_entered.get(), stack))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        *outer, stack = _entered.get()
        _entered.set(tuple(outer))
        stack.close()

    def query(
        self, task: Task | TemplateTask | Target | str, workload: WorkloadId | None = None
    ) -> TuningRecord | None:
        """The best record of a task, or of a target and the workload of a task, as AutoTVM asks.

        On a miss None, for a task with a warning, or RecordError if `miss` is `error`.
        """
        if workload is not None and isinstance(task, Target | str):
            with open_records(self._records, self._other_targets) as opened:
                return opened.of_workload(workload, parse(task))
        wanted = task.task if isinstance(task, TemplateTask) else task
        if not isinstance(wanted, Task):
            raise DefinitionError(f"query takes a task of create_task or task.create, got {shown(task)}")
        fit = next(self.ranked(wanted.program, wanted.target, wanted.threads), None)
        if fit is None:
            self.tell(wanted)
            return None
        return fit.record

    def missed(self, s: Schedule, target: Target) -> None:
        """See History: as `miss` says."""
        self.tell(_task_of(s.original, target))

    def tell(self, task: Task) -> None:
        """Warn once of a task without a record, or raise RecordError, or neither, as `miss` says."""
        place = task.workload.key, task.target, task.threads
        if self.miss == "error":
            raise RecordError(self.missing_of(task))
        if self.miss == "warn" and place not in self._told:
            self._told.add(place)
            where = caller()
            text = f"no tuned record, and a schedule that nobody tuned instead: {self.missing_of(task)}"
            warnings.warn_explicit(text, HistoryMiss, where.file, where.line)


def _choose(function: TemplateFunction, args: tuple[Any, ...]) -> Scheduled | None:
    """What a template gives when it is called plainly: the schedule of its best record that is not refused."""
    task = collect(function, args)
    contexts = [records for records in in_use() if isinstance(records, ApplyHistoryBest)]
    work = task.task.workload
    attempts = Attempts("template", str(work), argument_bytes(task.task.program))
    for context in contexts:
        found = context.ranked(task.task.program, task.target, task.task.threads)
        made = attempts.first(found, lambda fit: fit.origin, partial(scheduled, task))
        if made is not None:
            return made
    if attempts.refused:
        raise attempts.error() from attempts.refused[0][1]
    contexts[0].tell(task.task)
    return None


def scheduled(task: TemplateTask, fit: Fit) -> Scheduled:
    """The schedule of a record by its template, where that still gives these steps; else by the steps alone."""
    chosen = task.config_of(fit.record)
    if chosen is not None:
        s, tensors = task.instantiate(chosen)
        if s.trace.key == Trace.from_json(fit.record.trace).key:
            s.origin = fit.origin
            return s, tensors
    say(f"{task.name} has no such configuration (any more); the steps of the record are replayed")
    return fit.replayed(create_schedule([t.op for t in task.task.outputs])), arguments_of(task.task.tensors)


def apply_history_best(
    records: LogPath | Iterable[TuningRecord] | None, miss: Miss = "warn", other_targets: bool = False
) -> ApplyHistoryBest:
    """Use the best records of a log: `with autotune.apply_history_best("tuning.jsonl"):`.

    Inside, a template that is called plainly gives its best schedule, `tensorlang.build` builds the best schedule of
    a program that has none yet, and so does `topi.schedule`. Schedules are proven legal again: of a record that is
    refused a warning (RecordSkipped) says why, and the next best is taken; RecordError when there is none. The target
    is that of the call, or of `with target:`. `records`: a log, records, or None for the default store. Which records
    fit a program, and what `other_targets` adds, says `apply_best`. Contexts may be nested: the inner one is asked
    first. A program without a record in any of them keeps what it has, and a warning (HistoryMiss) names the nearest
    record of the inner one; `miss="error"` raises RecordError instead, `miss="ignore"` says nothing. The logger
    `tensorlang` says at INFO what is used, and TENSORLANG_LOG=tuner does on standard error.

        >>> from tensorlang import autotune, te, topi
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> with autotune.apply_history_best([record]):
        ...     s = topi.schedule(task.outputs, task.target)
        >>> len(s.trace.steps)
        0
    """
    return ApplyHistoryBest(records, miss, other_targets)


def _task_of(program: Program, target: Target) -> Task:
    """A program as a task, to look for its records."""
    arguments = [op for op in program.ops if isinstance(op, PlaceholderOp) or op.name in program.outputs]
    given = [b for op in arguments for b in buffers(op)]
    spelt = tuple(f"{b.name}: {b.dtype}[{', '.join(map(str, b.shape))}]" for b in given)
    name = ", ".join(program.outputs)
    work = WorkloadId(name, (), program.key, spelt, given[-1].dtype, count_operations(program), program.text)
    tensors = tuple(op.output(k) for op in arguments for k in range(op.num_outputs))
    return Task(work, tensors, program, named_device(target), target.cores)
