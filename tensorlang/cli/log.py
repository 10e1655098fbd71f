"""`tensorlang log`: look into tuning logs, judge them, and change them whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tensorlang.cli.tables import print_records, print_table, speed_cells
from tensorlang.files import writing

if TYPE_CHECKING:
    from tensorlang.autotune import Log, TuningRecord
    from tensorlang.autotune.records.lookup import Source

FILES = click.argument("files", nargs=-1, required=True, type=click.Path())
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")


PROGRAMS = click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="[NAME=]FILE.py[:FUNCTION]",
    help="Where a function or template is that records name; once for each, or a file for all that it has.",
)
RUN_FILES = click.option(
    "--run-files", is_flag=True, help="Run the files that records name, to make their programs: trust them first."
)


@click.group()
def log() -> None:
    """Show, search, verify, merge and convert tuning logs.

    A file named `default` is the default store (TENSORLANG_STORE).
    """


@log.command()
@FILES
@click.option("--limit", type=click.IntRange(1), help="Show only the last records.")
@AS_JSON
def show(files: Sequence[str], limit: int | None, as_json: bool) -> None:
    """List the records of FILES, oldest first."""
    records = [record for part in read_logs(files) for record in part.records]
    records = records[-limit:] if limit else records
    if as_json:
        _print_json(record.to_json() for record in records)
        return
    print_records(records)


@log.command()
@FILES
@PROGRAMS
@RUN_FILES
@AS_JSON
def best(files: Sequence[str], programs: Sequence[str], run_files: bool, as_json: bool) -> None:
    """Print the fastest schedule of every workload in FILES, proven legal again.

    Steps that cannot be proven here are printed as comments: those of a program in a file of yours need --program or
    --run-files.
    """
    from tensorlang.autotune.importers.programs import sources_from
    from tensorlang.autotune.records.export import unproven_text
    from tensorlang.autotune.validation import proven
    from tensorlang.words import format_seconds, format_threads, printable

    found = _bests(files)
    if as_json:
        _print_json(record.to_json() for record in found)
        return
    for record, made in proven(found, sources_from(programs), run_files):
        speed = f"{format_seconds(record.median)}, {record.gflops:.1f} GFLOP/s"
        place = f"{record.target.get('cpu', '')}, {format_threads(record.threads)}"
        click.echo(f"# {_one_line(f'{record.workload}, {place}: {speed} ({record.time})')}")
        if isinstance(made, str):
            click.echo(f"# not proven here: {_one_line(made)}\n{unproven_text(record)}")
        else:
            click.echo(printable(str(made)))


@log.command()
@FILES
@click.option("-o", "--output", required=True, type=click.Path(), help="Where to write; may be one of FILES.")
@AS_JSON
def merge(files: Sequence[str], output: str, as_json: bool) -> None:
    """Merge FILES into one log: every record once, oldest first, torn lines left out."""
    from tensorlang.autotune import merge_logs
    from tensorlang.words import format_count

    merged, duplicates = merge_logs(_paths(files), output)
    _warn([merged.skipped])
    if as_json:
        _print_json([{"output": output, "records": len(merged.records), "duplicates": duplicates}])
        return
    counts = format_count(len(merged.records), "record"), format_count(len(files), "log")
    click.echo(f"{output}: {' from '.join(counts)}, {format_count(duplicates, 'duplicate')} dropped")


@log.command()
@click.argument("file", type=click.Path())
@click.option("-o", "--output", required=True, type=click.Path(), help="Folder of the new files.")
@click.option("--by", default="workload", show_default=True, help="workload, target, or workload,target.")
@AS_JSON
def split(file: str, output: str, by: str, as_json: bool) -> None:
    """Split FILE into one log for every workload or target, in a folder. FILE stays."""
    from tensorlang.autotune.records.rewriting import split_log

    parts = split_log(_path(file), output, [word.strip() for word in by.split(",")])
    if as_json:
        _print_json({"output": str(path), "records": len(part.records)} for path, part in parts.items())
        return
    print_table(("file", "records"), [(str(path), len(part.records)) for path, part in parts.items()])


@log.command()
@FILES
@click.option(
    "--all", "all_records", is_flag=True, help="Verify all records that claim to be legal, not only the best."
)
@PROGRAMS
@RUN_FILES
@AS_JSON
def validate(files: Sequence[str], all_records: bool, programs: Sequence[str], run_files: bool, as_json: bool) -> None:
    """Prove the best records of FILES legal again, each on its program, made from the operator or file it names.

    Ends with 1 when a record is refused, damaged, or of a program that its operator does not make any more. Files
    that records name are run with --run-files only, or those of --program instead.
    """
    from tensorlang.autotune.importers.programs import sources_from
    from tensorlang.autotune.validation import Outcome
    from tensorlang.autotune.validation import validate as verify
    from tensorlang.words import format_count, printable

    sources = sources_from(programs)
    if all_records:
        records = [r for part in read_logs(files) for r in part.records if r.verdict.legal]
    else:
        records = _bests(files)
    found = list(verify(records, sources, run_files))
    if as_json:
        _print_json(outcome.to_json() for outcome in found)
    else:
        rows = [(str(v.record.workload), v.record.threads, *speed_cells(v.record), v.outcome.value) for v in found]
        print_table(("workload", "threads", "median", "GFLOP/s", "outcome"), rows)
        for v in found:
            if v.why:
                click.echo(printable(f"{v.outcome.value}: {_first_line(v.why)}"))
        counts = ", ".join(f"{n} {o}" for o in Outcome if (n := sum(v.outcome is o for v in found)))
        click.echo(f"{format_count(len(found), 'record')}: {counts or 'nothing to verify'}")
    if not all(v.sound for v in found):
        raise click.exceptions.Exit(1)


@log.command()
@click.argument("first", type=click.Path())
@click.argument("second", type=click.Path())
@AS_JSON
def diff(first: str, second: str, as_json: bool) -> None:
    """Compare the best of every workload in two logs; a ratio above 1 says that SECOND is faster."""
    from tensorlang.autotune.records.comparison import compare_logs
    from tensorlang.words import format_seconds

    with ExitStack() as stack:
        found = compare_logs(*(_open(stack, file) for file in (first, second)))
    if as_json:
        _print_json(difference.to_json() for difference in found)
        return
    rows = []
    for each in found:
        times = ("-" if r is None else format_seconds(r.median) for r in (each.first, each.second))
        ratio = "-" if each.ratio is None else f"{each.ratio:.3f}"
        rows.append((str(each.either.workload), each.either.target.get("cpu", ""), each.either.threads, *times, ratio))
    print_table(("workload", "cpu", "threads", "first", "second", "ratio"), rows)


@log.command()
@FILES
@click.option("--format", "form", type=click.Choice(("csv", "json", "python")), default="csv", show_default=True)
@click.option("-o", "--output", type=click.Path(), help="Where to write (standard output).")
@click.option(
    "--best", "best_only", is_flag=True, help="Only the fastest record of every workload (always for python)."
)
@PROGRAMS
@RUN_FILES
def export(
    files: Sequence[str], form: str, output: str | None, best_only: bool, programs: Sequence[str], run_files: bool
) -> None:
    """Write the records of FILES as a CSV table, a JSON array, or a Python module of schedules.

    The module has what is proven legal again: a program in a file of yours needs --program or --run-files.
    """
    from tensorlang.autotune.importers.programs import sources_from
    from tensorlang.autotune.records.export import python_module, to_csv, to_json
    from tensorlang.autotune.validation import proven

    if best_only or form == "python":
        records = _bests(files)
    else:
        records = [record for part in read_logs(files) for record in part.records]
    if form == "python":
        found = list(proven(records, sources_from(programs), run_files))
        _warn(f"{record.workload} is left out: {why}" for record, why in found if isinstance(why, str))
        text = python_module(found)
    else:
        text = {"csv": to_csv, "json": to_json}[form](records)
    if output is None:
        click.echo(text, nl=False)
        return
    with writing(output):
        Path(output).write_text(text, encoding="utf-8")


@log.command(name="import")
@FILES
@click.option("-o", "--output", default="default", show_default=True, type=click.Path(), help="Log to append to.")
@click.option("--format", "form", help="What wrote FILES; told by the files themselves without it.")
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="[NAME=]FILE.py[:FUNCTION]",
    help="Where TVM's logs find a workload or a template; once for each, or a file for all that it has.",
)
@click.option("--target", metavar="TARGET", help="Of TVM's logs, instead of what they say.")
@click.option("--verify", is_flag=True, help="Run each schedule of TVM's logs on this machine first.")
@AS_JSON
def import_(
    files: Sequence[str],
    output: str,
    form: str | None,
    programs: Sequence[str],
    target: str | None,
    verify: bool,
    as_json: bool,
) -> None:
    """Append the records of FILES, in any known format, to a log; those it has already are left out.

    Logs of TVM's AutoTVM (0.2) and auto_scheduler (v0.2 to v0.6) are read line by line: each schedule is made of
    primitives and proven, or refused with the reason. In the default store they get a log of their own, which counts
    where this machine's has nothing.
    """
    from tensorlang.autotune.records.importing import append_missing
    from tensorlang.cli.imports import Options, outputs, read_files
    from tensorlang.words import format_count, printable

    parts = read_files(files, form, Options(programs, target, verify))
    _warn(part.log.skipped for part in parts)
    if as_json:
        _print_json(entry for part in parts for entry in part.entries)
    else:
        for text in (text for part in parts for text in part.texts):
            click.echo(printable(text))
    for path, there in outputs(parts, output).items():
        _, added, known = append_missing(path, [record for part in there for record in part.log.records])
        if as_json:
            _print_json([{"output": str(path), "records": added, "known": known}])
        else:
            counts = format_count(added, "record"), format_count(len(there), "file")
            click.echo(f"{path}: {' from '.join(counts)}, {known} known already")


@log.command()
@FILES
@AS_JSON
def repair(files: Sequence[str], as_json: bool) -> None:
    """Take torn lines out of FILES, into FILE.torn beside each; all whole lines stay as they are."""
    from tensorlang.autotune.records.rewriting import repair_log
    from tensorlang.words import format_count

    for file in _paths(files):
        done = repair_log(file)
        if as_json:
            torn = None if done.torn is None else str(done.torn)
            _print_json([{"file": str(file), "kept": done.kept, "removed": done.removed, "torn": torn}])
            continue
        where = f", {done.removed} torn ones moved to {done.torn}" if done.torn is not None else ", none torn"
        click.echo(f"{file}: {format_count(done.kept, 'line')} kept{where}")


def _path(file: str) -> Path:
    """One log; `default` is this machine's in the default store."""
    from tensorlang.autotune.records.store import log_path

    return log_path(file)


def _paths(files: Iterable[str]) -> list[Path]:
    """Logs by their names; `default` is all of the default store."""
    from tensorlang.autotune.records.store import logs_to_read

    return [path for file in files for path in logs_to_read(file)]


def read_logs(files: Iterable[str]) -> list[Log]:
    """Logs by their names, with a warning of what is skipped."""
    from tensorlang.autotune import read_log

    logs = [read_log(path) for path in _paths(files)]
    _warn(part.skipped for part in logs)
    return logs


def _open(stack: ExitStack, file: str | Path) -> Source:
    from tensorlang.autotune.records.store import open_source

    source = stack.enter_context(open_source(file if isinstance(file, Path) else _path(file)))
    _warn([source.skipped])
    return source


def _bests(files: Iterable[str]) -> list[TuningRecord]:
    """The fastest record of every workload, target and number of threads; RecordError when none is ok."""
    from tensorlang.autotune import best_records
    from tensorlang.errors import RecordError

    with ExitStack() as stack:
        found = best_records(record for path in _paths(files) for record in _open(stack, path).bests())
    if not found:
        raise RecordError(f"no record of {', '.join(files)} is ok")
    return found


def _warn(skipped: Iterable[str]) -> None:
    for text in filter(None, skipped):
        click.echo(f"warning: {_one_line(text)}", err=True)


def _print_json(entries: Iterable[Any]) -> None:
    for entry in entries:
        click.echo(json.dumps(entry))


def _one_line(text: str) -> str:
    """Text of a log in one line that is safe to print."""
    from tensorlang.words import printable

    return printable(" ".join(text.split()))


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
