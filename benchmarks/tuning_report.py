"""`python -m benchmarks tuning-report RESULT.json ...`: the tables and pictures of the tuner in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.report import PAGE, table, write_sections
from benchmarks.tuning_chart import draw
from benchmarks.tuning_figures import (
    ALONE,
    ESTIMATE,
    FIRST,
    LIBRARY,
    after_seconds,
    after_trials,
    times_best,
    tvm_after,
)

BEGIN, END = "<!-- tuning -->", "<!-- end of tuning -->"
Result = dict[str, Any]


@click.command("tuning-report")
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--page", default=PAGE, type=click.Path(exists=True, dir_okay=False, path_type=Path), show_default=True)
def command(results: Sequence[Path], page: Path) -> None:
    """Write the RESULTS of `benchmarks tuning --json` into the page, and their pictures into `images` beside it."""
    write_sections(results, page, (BEGIN, END), "tuning", draw, section)


def section(result: Result, picture: str) -> Iterator[str]:
    """One run: what was found when, beside TVM, all figures with their goals, and the picture."""
    workloads, threads = result["workloads"], result["threads"]
    seconds, trials = result["budgets"]["seconds"], result["budgets"]["trials"]
    yield f"## Tuning, {'one thread' if threads == 1 else f'{threads} threads'}"
    yield ""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    yield f"{result['date']}, {result['cpu']} ({result['target']['cpu']}), Python {result['python']}; {versions}."
    yield ""
    yield f"Times the best schedule known (1 is best), all timed in turn, medians of {result['rounds']} turns:"
    yield ""
    names = [LIBRARY, FIRST, ALONE, ESTIMATE, *map(after_seconds, seconds), *map(after_trials, trials)]
    yield from table(
        ("workload", "best known", "of FMA peak", *names),
        [(w["workload"], *_best(w), *(_times(w, name) for name in names)) for w in workloads],
    )
    yield ""
    if any("TVM" in w["searches"] for w in workloads):
        yield "TVM's MetaSchedule, times the same best (1 is level; larger is slower), and trials a minute of both:"
        yield ""
        beside = [tvm_after(n) for n in trials]
        yield from table(
            ("workload", *beside, "trials a minute", "of TVM", "failed", "of TVM"),
            [(w["workload"], *(_times(w, name) for name in beside), *_rates(w, max(trials))) for w in workloads],
        )
        yield ""
    missed = [f for f in result["figures"] if not f["met"]]
    judged = [f for f in result["figures"] if f["goal"] is not None]
    yield f"Goals met: {len(judged) - len(missed)} of {len(judged)}."
    yield ""
    yield from table(("figure", "value", "goal", ""), [_goal(f) for f in judged])
    yield ""
    yield "The curves show the times that each tuner took itself, over the best known."
    yield ""
    yield f"![The best so far against time and trials, by workload]({picture})"
    yield ""


def _best(workload: Result) -> tuple[str, str]:
    if workload["best"] is None:
        return "–", "–"
    seconds = workload["seconds"][workload["best"]]
    share = workload["operations"] / seconds / 1e9 / workload["gflops"]
    return f"{1e6 * seconds:.4g} µs ({workload['best']})", f"{share:.2f}"


def _times(workload: Result, name: str) -> str:
    times = times_best(workload, name)
    return "–" if times is None else f"{times:.2f}"


def _rates(workload: Result, trials: int) -> Iterator[str]:
    searches = [workload["searches"].get(name) for name in ("tensorlang", "TVM")]
    yield from ("–" if s is None else f"{s['per_minute'][str(trials)]:.0f}" for s in searches)
    yield from ("–" if s is None else f"{s['failed']} of {s['trials']}" for s in searches)


def _goal(figure: Result) -> tuple[str, ...]:
    bound = f"{'at most' if figure['at_most'] else 'at least'} {figure['goal']:g}"
    unit = f" {figure['unit']}" if figure["unit"] else ""
    return figure["name"], f"{figure['value']:.3g}{unit}", bound, "met" if figure["met"] else "**missed**"
