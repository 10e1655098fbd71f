"""`python -m benchmarks operators-report RESULT.json ...`: the tables of docs/operator_benchmarks.md.

What stands outside the marks in that page is written by hand, and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from benchmarks.report import Result, contestants, cores, failures, header, table, time, write_tables

PAGE = Path(__file__).parents[1] / "docs" / "operator_benchmarks.md"


@click.command("operators-report")
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--page", default=PAGE, type=click.Path(exists=True, dir_okay=False, path_type=Path), show_default=True)
def command(results: Sequence[Path], page: Path) -> None:
    """Write the RESULTS of `benchmarks operators --json` into the page."""
    write_tables(results, page, section)


def section(result: Result) -> Iterator[str]:
    """One run: the machine, all times, and the speed beside the best of the others."""
    cases, names = result["workloads"], contestants(result)
    yield f"## {cores(result['threads']).capitalize()}"
    yield ""
    yield from header(result)
    yield ""
    yield "Milliseconds of a call, and the speed beside the best of the others:"
    yield ""
    rows = [
        (c["workload"], *(time(c, n) for n in names), _ratio(c), "met" if c["met"] else "**missed**") for c in cases
    ]
    yield from table(("operator", *names, "times the best", "goal 1"), rows)
    yield ""
    if failed := list(failures(cases)):
        yield "Without a figure: " + "; ".join(failed) + "."
        yield ""


def _ratio(case: Result) -> str:
    return "–" if case["ratio"] is None else f"{case['ratio']:.2f}"
