"""Records for other programs: tables for spreadsheets, JSON documents, Python scripts of schedules."""

from __future__ import annotations

import csv
import io
import json
import keyword
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorlang.autotune.importers.programs import Source
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.validation import proven
from tensorlang.errors import RecordError
from tensorlang.schedule import Schedule
from tensorlang.schedule.trace import Trace
from tensorlang.te.program import unique
from tensorlang.words import printable

_LONGEST = 1000  # signs of one line about a record
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

COLUMNS: Mapping[str, Callable[[TuningRecord], Any]] = {
    "time": lambda r: r.time,
    "workload": lambda r: str(r.workload),
    "key": lambda r: r.workload.key,
    "target": lambda r: r.target_text,
    "threads": lambda r: r.threads,
    "status": lambda r: r.status.value,
    "median_seconds": lambda r: r.median if r.seconds else "",
    "least_seconds": lambda r: min(r.seconds, default=""),
    "repeats": lambda r: len(r.seconds),
    "gflops": lambda r: r.gflops if r.seconds else "",
    "checked": lambda r: r.checked,
    "legal": lambda r: "" if r.verdict.legal is None else r.verdict.legal,
    "sketch": lambda r: r.sketch,
    "decisions": lambda r: r.choices_text,
    "seed": lambda r: r.seed,
    "host": lambda r: r.host.get("name", ""),
    "error": lambda r: r.error,
}


def to_csv(records: Iterable[TuningRecord]) -> str:
    """A table with one line a record; its schedules are not in it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(column(record)) for column in COLUMNS.values()] for record in records)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def to_json(records: Iterable[TuningRecord]) -> str:
    """One JSON array of records; `tensorlang log import` reads it back."""
    return json.dumps([record.to_json() for record in records], indent=1) + "\n"


_HEAD = '''"""Schedules from tuning records.

Every function takes a fresh schedule of the program that its docstring names; each step is proven legal again:

    from tensorlang import autotune, te
    task = autotune.create_task(NAME, ARGS)
    s = te.create_schedule([tensor.op for tensor in task.outputs])
"""
'''


def to_python(
    records: Iterable[TuningRecord], programs: Mapping[str, Source] | None = None, run_files: bool = False
) -> str:
    """A Python module of the schedules of records, each proven again on its program (`autotune.validation.proven`)."""
    return python_module(proven(records, programs, run_files))


def python_module(schedules: Iterable[tuple[TuningRecord, Schedule | str]]) -> str:
    """A Python module with one function a record, which applies its steps to a schedule of its program.

    Every record comes with its schedule, proven again, or with the reason why it has none: then it is a comment.
    RecordError when none has one.
    """
    schedules = list(schedules)
    reasons = [made for _, made in schedules if isinstance(made, str)]
    if reasons and len(reasons) == len(schedules):
        raise RecordError(f"no schedule of these records can be proven here; the first is {_line(reasons[0])}")
    taken: set[str] = set()
    parts = [_HEAD]
    for record, made in schedules:
        if isinstance(made, str):
            parts.append(f"# left out: {_line(str(record.workload))}: {_line(made)}\n")
            continue
        name = unique(_identifier(record), taken)
        taken.add(name)
        parts.append(_function(record, made, name))
    return "\n\n".join(parts)


def unproven_text(record: TuningRecord) -> str:
    """The steps of a record as comments: what they say, in a form that nobody can run."""
    try:
        steps = Trace.from_json(record.trace).to_python().splitlines()
    except RecordError as error:
        return f"# no steps: {_line(str(error))}\n"
    return "".join(f"# {_line(step)}\n" for step in steps)


def _line(text: str) -> str:
    """Text of a stranger as a part of one line."""
    return printable(" ".join(text.split()), _LONGEST)


def _identifier(record: TuningRecord) -> str:
    words = [Path(record.workload.name.rpartition(":")[2]).stem, *map(str, record.workload.args)]
    name = re.sub(r"\W+", "_", "_".join(words)).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"schedule_{name}"


def _function(record: TuningRecord, made: Schedule, name: str) -> str:
    work, threads = record.workload, f"{record.threads} thread{'s' * (record.threads > 1)}"
    text = f"{work}, program {work.key}, for {record.target_text}, {threads}."
    if record.ok:
        text += f" Median of {len(record.seconds)} repeats: {record.median:.4g} s."
    body = f"{_line(text)!r}\n{made}return s"
    return f"def {name}(s):\n{textwrap.indent(body, '    ')}\n"
