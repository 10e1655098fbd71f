"""From logs to a report: read, select, show the best schedules, write the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from tensorlang.autotune.records.log import read_log
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import logs_to_read
from tensorlang.autotune.report.figures import Search, searches_of
from tensorlang.autotune.report.page import MOST_SEARCHES, report_page
from tensorlang.autotune.report.schedules import ShownSchedule, show_schedule
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError, TensorlangError


@dataclass(frozen=True, slots=True)
class Report:
    """The searches of some logs, and the best schedule of each by its number."""

    title: str
    searches: tuple[Search, ...]
    schedules: dict[int, ShownSchedule] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    def to_html(self) -> str:
        """The report as a page."""
        return report_page(self.title, self.searches, self.schedules, self.skipped)

    def to_json(self) -> dict[str, Any]:
        """The same figures as JSON values."""
        parts = []
        for number, search in enumerate(self.searches):
            shown = self.schedules.get(number, ShownSchedule())
            parts.append({**search.to_json(), "schedule": shown.python or None, "loops": shown.nest or None})
        return {"title": self.title, "skipped": list(self.skipped), "searches": parts}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page; TensorlangError when that fails."""
        try:
            Path(path).write_text(self.to_html(), encoding="utf-8")
        except OSError as error:
            raise TensorlangError(f"cannot write {os.fspath(path)}: {error.strerror}") from error


def make_report(
    title: str,
    records: Iterable[TuningRecord],
    tasks: Sequence[Task] = (),
    run_files: bool = False,
    skipped: Iterable[str] = (),
) -> Report:
    """Report on records. Loops of the best schedules need their programs: of `tasks`, or made again by name.

    `run_files`: records that name a file of the user run it for that.

        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> page = autotune.make_report("Products", [record], [task])
        >>> "Products" in page.to_html()
        True
    """
    searches = tuple(searches_of(records))
    largest = sorted(range(len(searches)), key=lambda n: -searches[n].trials)[:MOST_SEARCHES]
    schedules = {n: show_schedule(best, tasks, run_files) for n in largest if (best := searches[n].best) is not None}
    return Report(title, searches, schedules, tuple(filter(None, skipped)))


def report_logs(logs: Sequence[str | os.PathLike[str]], workload: str | None = None, run_files: bool = False) -> Report:
    """Report on logs (`default`: the default store), or on the programs in them whose name holds `workload`.

    RecordError when a log cannot be read, or has no such program.

        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> log = Path(mkdtemp()) / "matmul.jsonl"
        >>> with autotune.LogWriter(log) as writer:
        ...     writer.append(record)
        >>> "matmul" in autotune.report_logs([log]).to_html()
        True
    """
    read = [read_log(path) for log in logs for path in logs_to_read(log)]
    records = [record for part in read for record in part.records]
    title = ", ".join(part.path.name for part in read)
    if not records:
        raise RecordError(f"{title} has no records")
    chosen = [r for r in records if workload is None or workload in str(r.workload) or workload == r.workload.key]
    if not chosen:
        known = ", ".join(list(dict.fromkeys(str(r.workload) for r in records))[:5])
        raise RecordError(f"{title} has no program {workload!r}; it has {known}")
    return make_report(title, chosen, run_files=run_files, skipped=[part.skipped for part in read])
