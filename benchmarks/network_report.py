"""`python -m benchmarks networks-report RESULT.json ...`: the tables of docs/network_benchmarks.md.

What stands outside the marks in that page is written by hand, and kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import click

from benchmarks.contest import OWN_NAME
from benchmarks.report import Result, contestants, cores, failures, goal, header, table, time, write_tables

PAGE = Path(__file__).parents[1] / "docs" / "network_benchmarks.md"


@click.command("networks-report")
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--page", default=PAGE, type=click.Path(exists=True, dir_okay=False, path_type=Path), show_default=True)
def command(results: Sequence[Path], page: Path) -> None:
    """Write the RESULTS of `benchmarks networks --json` into the page."""
    write_tables(results, page, section)


def section(result: Result) -> Iterator[str]:
    """One run: machine, times beside the goals, the mean, starts and memory."""
    networks = result["networks"]
    result = {**result, "workloads": networks}
    names = contestants(result)
    yield f"## {cores(result['threads']).capitalize()}"
    yield ""
    yield from header(result)
    yield ""
    yield "Milliseconds of a call, and the speed beside the best of the others:"
    yield ""
    yield from table(("network", *names, "times the best peer", "goal", ""), [_row(n, names) for n in networks])
    yield ""
    ratios = [network["ratio"] for network in networks if network["ratio"] is not None]
    if ratios:
        mean = exp(sum(map(log, ratios)) / len(ratios))
        met = sum(network["met"] for network in networks)
        yield f"Geometric mean {mean:.2f}; goals met by {met} of {len(networks)}."
        yield ""
    yield "Seconds from the start of a process to the first result, first and second time, and the most memory in MB:"
    yield ""
    yield from table(("network", *names), [(n["workload"], *(_start(n, name) for name in names)) for n in networks])
    yield ""
    if failed := list(failures(networks)):
        yield "Without a figure: " + "; ".join(failed) + "."
        yield ""


def _row(network: dict[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    ratio = "–" if network["ratio"] is None else f"{network['ratio']:.2f}"
    verdict = "met" if network["met"] else "**missed**"
    times = (time(network, name) for name in names)
    return (network["workload"], *times, ratio, goal(network), verdict if OWN_NAME in network["seconds"] else "–")


def _start(network: dict[str, Any], name: str) -> str:
    """Both starts of a contestant and its memory; nothing where it was not timed."""
    if name not in network["starts"]:
        return ""
    first, again = network["starts"][name]
    return f"{first:.2f}, {again:.2f}; {network['memory'][name] / 1e6:.0f}"
