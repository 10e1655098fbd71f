"""The figures of a run as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from benchmarks.gpu.compiled import Resources
from benchmarks.gpu.conformance import Checked
from benchmarks.gpu.contest import Outcome
from benchmarks.gpu.schedules import is_ours
from benchmarks.gpu.workloads import COPY

_MOST_FAILED = 5


def speeds(outcomes: Sequence[Outcome]) -> Table:
    """A row a workload: time, rate, share of what it is compared with, and every other contestant's time."""
    table = Table(title="kernels", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("workload", no_wrap=True)
    for heading in ("time", "rate", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("of", no_wrap=True)
    table.add_column("others")
    for outcome in outcomes:
        if outcome.problem or not outcome.best:
            table.add_row(outcome.workload, "FAILED", "", "", "", outcome.problem)
            continue
        seconds = outcome.seconds[outcome.best]
        share = "" if outcome.share is None else f"{outcome.share:.2f}"
        row = (outcome.workload, duration(seconds), rate(outcome, seconds), share, outcome.against)
        table.add_row(*row, others(outcome))
    return table


def duration(seconds: float) -> str:
    """A time with the unit that suits it."""
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.4g} µs"


def rate(outcome: Outcome, seconds: float) -> str:
    """Operations a second, or bytes where memory is what it is compared with."""
    if outcome.against == COPY:
        return f"{outcome.bytes / seconds / 1e9:.0f} GB/s"
    return f"{outcome.operations / seconds / 1e12:.3g} TFLOP/s"


def others(outcome: Outcome) -> str:
    """The times of the rest, the fastest first; those that failed last. What is not installed is left out."""
    rest = sorted((s, name) for name, s in outcome.seconds.items() if name not in (outcome.best, outcome.against))
    known = [f"{name} {duration(seconds)}" for seconds, name in rest]
    failed = [f"{n}: {why}" for n, why in outcome.absent.items() if is_ours(n) or not why.startswith("not installed")]
    return "; ".join([*known, *failed])


def kernels(rows: Sequence[Resources]) -> Table:
    """A row a kernel."""
    table = Table(title="kernels as compiled", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("workload", "schedule", "for", "kernel"):
        table.add_column(heading, no_wrap=True)
    for heading in ("threads", "registers", "spilled", "stack", "shared", "built"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        where = (row.workload, row.schedule, row.architecture)
        if row.problem:
            table.add_row(*where, f"FAILED {row.problem}")
            continue
        numbers = (row.threads, row.registers, row.spills, row.stack, row.shared)
        table.add_row(*where, row.kernel, *map(str, numbers), f"{row.seconds:.1f} s")
    return table


def conformance(found: Sequence[Checked]) -> Table:
    """A row a set of tests."""
    table = Table(title="conformance", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("tests", no_wrap=True)
    for heading in ("passed", "failed", "skipped", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for checked in found:
        more = f" and {len(checked.failed) - _MOST_FAILED} more" if len(checked.failed) > _MOST_FAILED else ""
        reason = checked.problem or ", ".join(checked.failed[:_MOST_FAILED]) + more
        counts = (checked.passed, len(checked.failed), checked.skipped)
        table.add_row(checked.name, *map(str, counts), f"{checked.seconds:.0f} s", reason)
    return table
