"""Tables on standard output: as wide as a terminal, and in files and pipes one line a row."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from tensorlang.words import format_seconds, format_threads, printable

if TYPE_CHECKING:
    from rich.console import Console

    from tensorlang.autotune import TuningRecord

_LONGEST_ERROR = 200
_RECORD = ("time", "workload", "threads", "status", "median", "GFLOP/s", "sketch", "decisions")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; in a terminal cells that are too long take several lines."""
    from rich.table import Table

    cells = [[printable(str(cell)) for cell in row] for row in rows]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for n, name in enumerate(columns):
        numbers = all(row[n].replace(".", "").isdigit() or row[n] == "-" for row in cells)
        table.add_column(name, justify="right" if numbers and cells else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    _console(_natural_width(columns, cells)).print(table)


def print_records(records: Sequence[TuningRecord]) -> None:
    """Print records in a table. Where a terminal is too narrow for it, what a run of them shares is its heading."""
    rows = [
        (r.time, str(r.workload), r.threads, r.status.value, *speed_cells(r), r.sketch, r.choices_text) for r in records
    ]
    wide = _natural_width(_RECORD, [[printable(str(cell)) for cell in row] for row in rows])
    if wide <= _console(wide).width:
        print_table(_RECORD, rows)
        return
    for number, (heading, group) in enumerate(groupby(records, _heading)):
        click.echo(f"{chr(10) if number else ''}{printable(heading)}")
        shown = [(_clock(r), r.status.value, *speed_cells(r), _schedule(r)) for r in group]
        print_table(("time", "status", "median", "GFLOP/s", "schedule"), shown)


def speed_cells(record: TuningRecord) -> tuple[str, str]:
    """The median and the speed of a record."""
    return (format_seconds(record.median), f"{record.gflops:.1f}") if record.seconds else ("-", "-")


def _heading(record: TuningRecord) -> str:
    """What records of one search on one day share."""
    return f"{record.workload}, {format_threads(record.threads)}, {record.time.partition('T')[0]}"


def _clock(record: TuningRecord) -> str:
    return record.time.partition("T")[2].removesuffix("Z")


def _schedule(record: TuningRecord) -> str:
    """How a candidate was made, and what became of it."""
    made = ": ".join(filter(None, (record.sketch, record.choices_text)))
    error = record.error.strip().partition("\n")[0]
    return f"{made}\n{printable(error, _LONGEST_ERROR)}" if error else made


def _console(wide: int) -> Console:
    """The terminal; in files and pipes a page of some width."""
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else wide)


def _natural_width(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """How wide a table is whose cells have one line each."""
    return sum(max(map(len, column)) + 2 for column in zip(columns, *cells, strict=True))


def wrapped(line: str) -> str:
    """A line for a terminal: where it is too long the rest is indented further. In files and pipes as it is."""
    if not sys.stdout.isatty():
        return line
    indent = line[: len(line) - len(line.lstrip())]
    width = _console(0).width
    return textwrap.fill(
        line.strip(), width, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False
    )
