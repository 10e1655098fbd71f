"""`python -m tensorlang.testing`: what runs for hours, and not with every test."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import click
from rich.console import Console

from tensorlang.errors import TensorlangError
from tensorlang.testing.soak.display import open_display, summary, table
from tensorlang.testing.soak.kinds import KINDS, known
from tensorlang.testing.soak.running import Plan, soak
from tensorlang.testing.soak.worker import Bounds


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def testing() -> None:
    """Test tensorlang itself, for as long as you like."""


@testing.command("soak", epilog=f"Kinds: {', '.join(KINDS)}, or module:function of your own.")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="How long.  [default: until Ctrl-C]")
@click.option("--cases", type=click.IntRange(1), help="At most so many cases of each kind.")
@click.option("--kinds", multiple=True, metavar="KIND", help="What to draw; several, also with commas.  [default: all]")
@click.option("--seed", type=click.IntRange(0), help="The seed of the first case.  [default: random]")
@click.option("--workers", type=click.IntRange(1), help="Processes.  [default: one for each core]")
@click.option("--limit", type=click.FloatRange(min=0, min_open=True), default=120.0, help="Seconds of one case.",
              show_default=True)  # fmt: skip
@click.option("--memory", type=click.IntRange(1), default=8, help="GiB of one process.", show_default=True)
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=Path("soak"), show_default=True,
              metavar="FOLDER", help="Where faults are written, one file each.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.pass_context
def soak_command(
    context: click.Context,
    seconds: float | None,
    cases: int | None,
    kinds: tuple[str, ...],
    seed: int | None,
    workers: int | None,
    limit: float,
    memory: int,
    output: Path,
    as_json: bool,
) -> None:
    """Draw programs, schedules, records and calls, and run them in processes of their own.

    A case is known by its kind and its seed, and is the same wherever it is run. What is wrong, crashes, hangs, takes
    too much memory, is an internal error, or no error of tensorlang is a fault: it is written to a file, with the
    command that runs it again, and the exit code is 1. Ctrl-C ends with the table so far.
    """
    names = [name for given in kinds for name in given.split(",") if name]
    first = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    cores = workers or len(os.sched_getaffinity(0))
    try:
        plan = Plan(known(names), first, output, cores, seconds, cases, Bounds(limit, memory << 30))
        signal.signal(signal.SIGINT, lambda *_: plan.stop.set())
        if not as_json:
            click.echo(f"from seed {first} on, {cores} worker{'s' * (cores > 1)}", err=True)
        with open_display(as_json) as watcher:
            counts = soak(plan, watcher)
    except TensorlangError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(counts.to_json()))
    else:
        Console(highlight=False, width=None if sys.stdout.isatty() else 120).print(table(counts))
        click.echo(summary(counts))
    context.exit(1 if counts.failed else 0)


if __name__ == "__main__":
    testing(prog_name="python -m tensorlang.testing")
