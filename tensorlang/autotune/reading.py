"""Logs in auto_scheduler's words: measurements with the state of their schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tensorlang.autotune.arguments import meant
from tensorlang.autotune.dag import ComputeDAG
from tensorlang.autotune.measuring.harness import Measurement, record_of
from tensorlang.autotune.records.log import LogPath, LogWriter, best_record, read_log
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.search_task import SearchTask, find_workload, known_task
from tensorlang.autotune.tuners.measured import MeasureInput, MeasureResult, measured, status_of
from tensorlang.errors import RecordError
from tensorlang.target.spec import Target

Measured = tuple[MeasureInput, MeasureResult]


class RecordReader:
    """The measurements of a log. Their programs are those of tasks that there are, or of registered workloads."""

    def __init__(self, filename: LogPath) -> None:
        self._path = Path(log_path(filename))

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Return inputs and results, of at most so many lines. RecordError for a program that is not known."""
        records = read_log(self._path).records[skip_lines:]
        found = [read(record) for record in records[: max_lines or None]]
        return [inp for inp, _ in found], [result for _, result in found]

    def __iter__(self) -> Iterator[Measured]:
        for record in read_log(self._path).records:
            yield read(record)


def read(record: TuningRecord) -> Measured:
    """The measurement of a record; RecordError where nobody knows its program."""
    task = known_task(record.workload.key)
    function = find_workload(record.workload.name)
    if task is None and function is not None:
        task = SearchTask(
            function, meant(record.workload.args), Target.from_json(record.target), threads=record.threads
        )
    if task is None:
        name = record.workload.name
        raise RecordError(f"no task of this process is the program of the record, {name}; make its SearchTask first")
    return MeasureInput(task, ComputeDAG(task.task).state_of(record)), measured(record)


def load_best_record(
    filename: LogPath, workload_key: str | None = None, target: Target | None = None
) -> tuple[MeasureInput, MeasureResult] | tuple[None, None]:
    """Return the best measurement of a log, of a workload and a target if they are given; twice None if it has none.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile(suffix=".json") as log:
        ...     load_best_record(log.name)
        (None, None)
    """
    wanted = None if target is None else target.to_json()
    best = best_record(
        read_log(log_path(filename)).records,
        lambda r: workload_key in (None, r.workload.key) and wanted in (None, r.target),
    )
    return (None, None) if best is None else read(best)


def save_records(filename: LogPath, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Append measurements to a log, those made by hand, too.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tensorlang import autotune, te, topi
        >>> def square(n):
        ...     A = te.placeholder((n,), name="A")
        ...     return [A, topi.multiply(A, A)]
        >>> task = autotune.SearchTask(square, (8,))
        >>> s = te.create_schedule(task.task.outputs)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log, copy = Path(folder, "log.json"), Path(folder, "copy.json")
        ...     with autotune.LogWriter(log) as written:
        ...         written.append(autotune.record_by_hand(task.task, s, [1e-6]))
        ...     save_records(copy, *([one] for one in load_best_record(log)))
        ...     load_best_record(copy)[1].costs
        (1e-06,)
    """
    with LogWriter(log_path(filename)) as log:
        for inp, result in zip(inputs, results, strict=True):
            log.append(result.record or _by_hand(inp, result))


def _by_hand(inp: MeasureInput, result: MeasureResult) -> TuningRecord:
    status = Status.OK if result.ok else status_of(result.error_no)
    measurement = Measurement(status, tuple(result.costs) if result.ok else (), result.error_msg)
    return record_of(measurement, inp.program, "by hand", inp.trace, inp.trace.decisions, 0)
