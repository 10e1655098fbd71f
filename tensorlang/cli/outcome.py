"""What tuning ends with: the best schedule beside NumPy, and what failed."""

from __future__ import annotations

import json
import statistics
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tensorlang.autotune import Result, TuningRecord
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.schedule.trace import Trace
from tensorlang.target.kinds import capabilities
from tensorlang.words import format_failures, format_seconds, format_threads, printable

LONGEST_MESSAGE = 300
LONG = 0.5  # seconds of a phase that are worth a word


def schedule_python(record: TuningRecord) -> str:
    """The schedule of a record as Python text."""
    return str(Trace.from_json(record.trace).to_python())


def print_result(result: Result, log: str) -> None:
    """Print what tuning found: the schedule, its speed, NumPy's."""
    console = Console(highlight=False, soft_wrap=True)
    if result.best is not None:
        console.print(schedule_python(result.best), markup=False)
        console.print(speed_table(result.best, result.peak_gflops, result.comparison))
    resumed = f" ({result.resumed} resumed)" if result.resumed else ""
    took = ", ".join(f"{phase} {seconds:.0f}" for phase, seconds in result.phases.items() if seconds >= LONG)
    spent = f"{result.seconds:.0f} s{f' ({took})' if took else ''}"
    summary = f"{len(result.records)} trials{resumed} in {spent}, failures: {format_failures(result.failures)}"
    console.print(f"{summary}; log: {log}", markup=False)
    for status, message in first_messages(result).items():
        console.print(f"  first {status}: {printable(message, LONGEST_MESSAGE)}", markup=False)


def first_messages(result: Result) -> dict[str, str]:
    """Of every kind of failure the first message, on one line."""
    found: dict[str, str] = {}
    for record in result.records:
        if not record.ok and record.error.strip():
            found.setdefault(record.status.value, " ".join(record.error.split()))
    return found


def speed_table(best: TuningRecord, peak: float, comparison: Comparison | None) -> Table:
    """Time, speed and share of the peak, one line a competitor."""
    place = best.target_text if capabilities(str(best.target.get("kind", ""))).device else format_threads(best.threads)
    table = Table(title=escape(f"{best.workload}, {place}"), title_justify="left")
    for name, justify in (("", "left"), ("time", "right"), ("GFLOP/s", "right"), ("of peak", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, seconds in _lines(best, comparison):
        speed = best.workload.flops / seconds / 1e9
        share = f"{100 * speed / peak:.1f}%" if peak else "?"
        table.add_row(name, format_seconds(seconds), f"{speed:.1f}", share)
    if comparison is not None:
        table.caption = f"{comparison.speedup:.2f} times the speed of {comparison.competitor}, timed in turn"
    return table


def _lines(best: TuningRecord, comparison: Comparison | None) -> list[tuple[str, float]]:
    if comparison is None:
        return [("tensorlang", best.median)]
    ours, theirs = statistics.median(comparison.tensorlang), statistics.median(comparison.numpy)
    return [("tensorlang", ours), (comparison.competitor, theirs)]


def record_json(best: TuningRecord, peak: float, comparison: Comparison | None) -> dict[str, Any]:
    """A record's speed and schedule as JSON data; times in seconds, speeds in GFLOP/s."""
    return {
        "workload": str(best.workload),
        "threads": best.threads,
        "seconds": best.median,
        "gflops": best.gflops,
        "peak_gflops": peak or None,
        "schedule": schedule_python(best),
        "decisions": dict(best.decisions),
        "settings": best.settings,
        "comparison": None
        if comparison is None
        else {
            "competitor": comparison.competitor,
            "tensorlang_seconds": statistics.median(comparison.tensorlang),
            "numpy_seconds": statistics.median(comparison.numpy),
            "speedup": comparison.speedup,
        },
    }


def result_json(result: Result, log: str) -> str:
    """The result of tuning as one JSON document."""
    best = None if result.best is None else record_json(result.best, result.peak_gflops, result.comparison)
    return json.dumps(
        {
            "best": best,
            "trials": len(result.records),
            "resumed": result.resumed,
            "failures": dict(result.failures),
            "messages": first_messages(result),
            "seconds": result.seconds,
            "phases": {phase.value: seconds for phase, seconds in result.phases.items()},
            "log": log,
        },
        indent=2,
    )
