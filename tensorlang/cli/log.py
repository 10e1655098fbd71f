"""`tensorlang log`: look into tuning logs, take their best, merge them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tensorlang.autotune import Log, TuningRecord

FILES = click.argument("files", nargs=-1, required=True, type=click.Path())
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, one record a line.")


@click.group()
def log() -> None:
    """Show, search and merge tuning logs."""


@log.command()
@FILES
@click.option("--limit", type=click.IntRange(1), help="Show only the last records.")
@AS_JSON
def show(files: Sequence[str], limit: int | None, as_json: bool) -> None:
    """List the records of FILES, oldest first."""
    records = [record for part in _read(files) for record in part.records]
    records = records[-limit:] if limit else records
    if as_json:
        _print_json(records)
        return
    _print_table(records)


@log.command()
@FILES
@AS_JSON
def best(files: Sequence[str], as_json: bool) -> None:
    """Print the fastest schedule of every workload in FILES."""
    from tensorlang.autotune import best_records
    from tensorlang.cli.report import format_seconds, schedule_python
    from tensorlang.errors import RecordError

    found = best_records(record for part in _read(files) for record in part.records)
    if not found:
        raise RecordError(f"no record of {', '.join(files)} is ok")
    if as_json:
        _print_json(found)
        return
    for record in found:
        threads = f"{record.threads} thread{'s' * (record.threads > 1)}"
        speed = f"{format_seconds(record.median)}, {record.gflops:.1f} GFLOP/s"
        click.echo(f"# {record.workload}, {record.target.get('cpu', '')}, {threads}: {speed} ({record.time})")
        click.echo(schedule_python(record))


@log.command()
@FILES
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write; may be one of FILES.")
def merge(files: Sequence[str], output: str) -> None:
    """Merge FILES into one log: every record once, oldest first, torn lines left out."""
    from tensorlang.autotune import merge_logs

    merged, duplicates = merge_logs(files, output)
    _warn([merged])
    click.echo(f"{output}: {len(merged.records)} records from {len(files)} logs, {duplicates} duplicates dropped")


def _read(files: Iterable[str]) -> list[Log]:
    from tensorlang.autotune import read_log

    logs = [read_log(file) for file in files]
    _warn(logs)
    return logs


def _warn(logs: Iterable[Log]) -> None:
    for part in logs:
        if part.skipped:
            click.echo(f"warning: {part.skipped}", err=True)


def _print_json(records: Iterable[TuningRecord]) -> None:
    for record in records:
        click.echo(json.dumps(record.to_json()))


def _print_table(records: Sequence[TuningRecord]) -> None:
    from tensorlang.cli.report import format_seconds

    rows = [("time", "workload", "threads", "status", "median", "GFLOP/s", "sketch", "decisions")]
    for r in records:
        speed = (format_seconds(r.median), f"{r.gflops:.1f}") if r.seconds else ("-", "-")
        decisions = " ".join(f"{name}={value}" for name, value in r.decisions.items())
        rows.append((r.time, str(r.workload), str(r.threads), r.status.value, *speed, r.sketch, decisions))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
