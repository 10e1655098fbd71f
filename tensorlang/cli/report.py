"""`tensorlang report`: a page about tuning logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="The page (the log's name with .html, in this folder).")
@click.option("--workload", help="Only programs whose name holds this text, or with this key.")
@click.option("--run-files", is_flag=True, help="Run the files that records name, to show the loops of their programs.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON, and write a page only with -o.")
def report(files: Sequence[str], output: str | None, workload: str | None, run_files: bool, as_json: bool) -> None:
    """Write one HTML page about FILES: search curves, best schedules, estimates against times, failures.

    The page needs nothing else, and holds no script. A file named `default` is the default store. Best schedules are
    proven again to show their loops; a program of your own is shown with --run-files, which runs the file that a record
    names: ask for that with logs you trust.
    """
    from tensorlang.autotune.report.writing import report_logs
    from tensorlang.words import format_seconds, printable

    made = report_logs(files, workload, run_files)
    for line in made.skipped:
        click.echo(printable(line), err=True)
    path = output or (None if as_json else f"{Path(files[0]).stem}.html")
    if path is not None:
        made.write(path)
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=2))
        return
    for search in made.searches:
        best = "none timed" if search.best is None else f"best {format_seconds(search.best.median)}"
        click.echo(printable(f"{search.name}: {search.trials} trials, {best}"))
    click.echo(f"wrote {path}")
