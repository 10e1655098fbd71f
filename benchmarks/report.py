"""`python -m benchmarks report RESULT.json ...`: the tables and pictures of docs/benchmarks.md, from stored results.

What stands outside the marks in that page is written by hand, and kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.chart import draw
from benchmarks.contest import OWN_NAME

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
Result = dict[str, Any]


@click.command("report")
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--page", default=PAGE, type=click.Path(exists=True, dir_okay=False, path_type=Path), show_default=True)
def command(results: Sequence[Path], page: Path) -> None:
    """Write the RESULTS of `benchmarks cpu --json` into the page, and their pictures into `images` beside it."""
    write_sections(results, page, (BEGIN, END), "benchmarks", draw, section)


def write_tables(results: Sequence[Path], page: Path, section: Callable[[Result], Iterator[str]]) -> None:
    """Write a section for each result, without pictures, between the marks of a page."""
    before, after = around(page, BEGIN, END)
    lines = (line for result in by_threads(results) for line in section(result))
    page.write_text(before + "\n".join(lines) + after, encoding="utf-8")


def by_threads(results: Sequence[Path]) -> list[Result]:
    """The results in files, those of fewer threads first."""
    return sorted((json.loads(file.read_text(encoding="utf-8")) for file in results), key=lambda r: r["threads"])


def write_sections(
    results: Sequence[Path],
    page: Path,
    marks: tuple[str, str],
    pictures: str,
    draw: Callable[[Result], Iterator[str]],
    section: Callable[[Result, str], Iterator[str]],
) -> None:
    """Write a section for each result between two marks of a page, and their pictures, by this name, beside it."""
    before, after = around(page, *marks)
    lines = list[str]()
    for result in by_threads(results):
        picture = write_picture(page, f"{pictures}-{result['threads']}", draw(result))
        lines += section(result, picture)
    page.write_text(before + "\n".join(lines) + after, encoding="utf-8")


def write_picture(page: Path, name: str, lines: Iterator[str]) -> str:
    """Write a picture into `images` beside a page; its path from there."""
    picture = Path("images", f"{name}.svg")
    (page.parent / picture).parent.mkdir(parents=True, exist_ok=True)
    (page.parent / picture).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(picture)


def around(page: Path, first: str, last: str) -> tuple[str, str]:
    """What a page has up to its first mark and from its last mark on, marks included."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise click.UsageError(f"{page} has no lines {first} and {last} to write between")
    return f"{before}{first}\n\n", f"\n\n{last}{after}"


def section(result: Result, picture: str) -> Iterator[str]:
    """One run: machine, figures beside the goals, what is missed, all times, the picture."""
    workloads = result["workloads"]
    yield f"## {cores(result['threads']).capitalize()}"
    yield ""
    yield from header(result)
    yield ""
    yield from table(
        ("workload", "time", "GFLOP/s", "share of limit", "best peer", "times its speed", "goal", "", "built in"),
        [goal_row(w) for w in workloads],
    )
    yield ""
    for mean in result["means"]:
        verdict = "met" if mean["met"] else "**missed**"
        figures = f"{mean['ratio']:.2f}, goal {mean['goal']:g}, {verdict}"
        yield f"Geometric mean of {mean['group']} ({mean['count']}): {figures}."
    missed = [w["workload"] for w in workloads if not w["met"]]
    yield f"Goals met by {len(workloads) - len(missed)} of {len(workloads)} workloads."
    yield ""
    yield f"![Share of the machine's limit that every library reaches, by workload]({picture})"
    yield ""
    yield "Times of all, in milliseconds:"
    yield ""
    names = contestants(result)
    yield from table(("workload", *names), [(w["workload"], *(time(w, name) for name in names)) for w in workloads])
    yield ""
    failed = list(failures(workloads))
    if failed:
        yield "Without a figure though written: " + "; ".join(failed) + "."
        yield ""


def header(result: Result) -> Iterator[str]:
    """The machine, its measured limits, versions, and who was not there."""
    target = result["target"]
    caches = ", ".join(f"{size // 1024} KB" for size in target["caches"])
    machine = f"{result['cpu']} ({target['cpu']}, caches {caches})"
    yield f"{result['date']}, {machine}, Python {result['python']}; medians of {result['rounds']} turns."
    yield f"Measured in the same run: {', '.join(rates(result))}. Versions:"
    yield ", ".join(f"{name} {version}" for name, version in result["versions"].items()) + "."
    for name, why in result["missing"].items():
        yield f"{name}: {why}."


def rates(result: Result) -> Iterator[str]:
    """The limits of the machine, over the whole run."""
    shown = {
        "gflops": "FMA peak {} GFLOP/s",
        "l2_gbs": "reads from L2 {} GB/s",
        "last_cache_gbs": "from the last cache {}",
        "memory_gbs": "from memory {}",
    }
    for key, text in shown.items():
        values = [w["rates"][key] for w in result["workloads"]]
        low, high = f"{min(values):.0f}", f"{max(values):.0f}"
        yield text.format(low if low == high else f"{low} to {high}")


def goal_row(workload: Result) -> tuple[str, ...]:
    """The figures of a workload, and its goals."""
    own, built = workload["seconds"].get(OWN_NAME), workload["prepared"].get(OWN_NAME)
    ready = "–" if built is None else f"{built:.2f} s"
    if own is None:
        return (workload["workload"], *["–"] * 5, goal(workload), "**missed**", ready)
    return (
        workload["workload"],
        duration(own),
        f"{workload['operations'] / own / 1e9:.1f}",
        f"{workload['share']:.2f} of {workload['binds']}",
        workload["best_peer"] or "–",
        "–" if workload["ratio"] is None else f"{workload['ratio']:.2f}",
        goal(workload),
        "met" if workload["met"] else "**missed**",
        ready,
    )


def goal(workload: Result) -> str:
    """The goals of a workload in words."""
    text = f"{workload['goal']:g}" + (f" of {workload['against']}" if workload["against"] else "")
    peak = workload["goal_of_peak"]
    return text if peak is None else f"{text}, {peak:g} of peak"


def contestants(result: Result) -> list[str]:
    """Ours first, then all that were timed or took part, in the order of the run."""
    names = dict.fromkeys([OWN_NAME])
    for workload in result["workloads"]:
        names.update(dict.fromkeys((*workload["seconds"], *workload["absent"])))
    return [n for n in names if any(n in w["seconds"] for w in result["workloads"])]


def time(workload: Result, name: str) -> str:
    """Milliseconds of a contestant; the fastest in bold."""
    seconds = workload["seconds"]
    if name not in seconds:
        return ""
    text = f"{1e3 * seconds[name]:.3g}"
    return f"**{text}**" if seconds[name] == min(seconds.values()) else text


def failures(workloads: Sequence[Result]) -> Iterator[str]:
    """Contestants that could have run and did not, and why."""
    for workload in workloads:
        for name, absent in workload["absent"].items():
            if absent["failed"]:
                reason = absent["reason"].splitlines()[0][:120]
                yield f"{name} on {workload['workload']} ({reason})"


def duration(seconds: float) -> str:
    """A time in the unit that fits."""
    return f"{1e6 * seconds:.3g} µs" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"


def cores(threads: int) -> str:
    """How many cores, in words."""
    return {1: "one core", 2: "two cores"}.get(threads, f"{threads} cores")


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown."""
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield f"| {' | '.join(row)} |"
