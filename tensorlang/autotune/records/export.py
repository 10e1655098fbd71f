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

from tensorlang.autotune.records.record import TuningRecord
from tensorlang.schedule.trace import Trace
from tensorlang.te.program import unique

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
    writer.writerows([column(record) for column in COLUMNS.values()] for record in records)
    return text.getvalue()


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


def to_python(records: Iterable[TuningRecord]) -> str:
    """A Python module with one function a record, which applies its steps to a schedule of its program."""
    taken: set[str] = set()
    parts = [_HEAD]
    for record in records:
        name = unique(_identifier(record), taken)
        taken.add(name)
        parts.append(_function(record, name))
    return "\n\n".join(parts)


def _identifier(record: TuningRecord) -> str:
    words = [Path(record.workload.name.rpartition(":")[2]).stem, *map(str, record.workload.args)]
    name = re.sub(r"\W+", "_", "_".join(words)).strip("_")
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"schedule_{name}"


def _function(record: TuningRecord, name: str) -> str:
    work, threads = record.workload, f"{record.threads} thread{'s' * (record.threads > 1)}"
    text = f"{work}, program {work.key}, for {record.target_text}, {threads}."
    if record.ok:
        text += f" Median of {len(record.seconds)} repeats: {record.median:.4g} s."
    body = f"{text!r}\n{Trace.from_json(record.trace).to_python()}return s"
    return f"def {name}(s):\n{textwrap.indent(body, '    ')}\n"
