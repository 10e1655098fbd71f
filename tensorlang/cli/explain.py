"""`tensorlang explain`: a log, predicted against measured; or a program, its loops and what would make it slow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tensorlang.cli.log import RUN_FILES, read_logs
from tensorlang.cli.show import ARGUMENTS, TARGET, kernel_of
from tensorlang.cli.tables import wrapped

if TYPE_CHECKING:
    from tensorlang.autotune.explanation import Explanation


@click.command()
@click.argument("log", metavar="LOG|FILE.py:FUNCTION")
@ARGUMENTS
@TARGET
@click.option("--count", type=click.IntRange(1), default=5, show_default=True, help="Records of each workload.")
@RUN_FILES
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def explain(log: str, arguments: str | None, target: str, count: int, run_files: bool, as_json: bool) -> None:
    """Explain records of LOG: the fastest of each workload, and those that the estimate misjudges most.

    Or a program: what each loop of its schedule may do and why, what stages cost in memory, and what would make its
    kernel slow, each with a step that would help. FUNCTION returns tensors, or a schedule and its tensors.

    Shown are the measured, the estimated and the learned time, the terms of the estimate, its stages, and the features
    that change the prediction most, each with its factor.
    """
    from tensorlang.autotune.explanation import explain as explain_log

    if re.search(r"\.py(:|$)", log):
        _program(kernel_of(log, arguments, target), as_json)
        return
    records = [record for part in read_logs([log]) for record in part.records]
    for found in explain_log(records, count, run_files):
        click.echo(json.dumps(found.to_json()) if as_json else _text(found))


def _program(kernel: Any, as_json: bool) -> None:
    """Print what the schedule of a kernel is, and the warnings of its loops."""
    found = kernel.origin.schedule.explain(target=kernel.target)
    click.echo(json.dumps(found.to_json()) if as_json else str(found), nl=as_json)


def _text(found: Explanation) -> str:
    """An explanation in a few lines."""
    from tensorlang.autotune.records.record import spelt_choices
    from tensorlang.words import format_seconds, format_threads, printable

    def times(parts: Mapping[str, float]) -> str:
        return ", ".join(f"{name} {format_seconds(value)}" for name, value in parts.items())

    predicted = "only an order of candidates" if found.predicted is None else format_seconds(found.predicted)
    measured, estimate = format_seconds(found.measured), format_seconds(found.estimate)
    lines = [
        f"{found.workload} on {format_threads(found.threads)}: {found.sketch}",
        f"  decisions {spelt_choices(found.decisions)}",
        f"  measured {measured}, estimated {estimate}, predicted {predicted}",
        f"  terms: {times(found.terms)}",
        f"  stages: {times(found.stages)}",
        *(f"  x {driver.factor:.3f} for {driver.name} = {driver.value:.4g}" for driver in found.drivers),
    ]
    return "\n".join(wrapped(printable(line)) for line in lines)
