"""The live display of tuning: one updating line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tensorlang.autotune import Progress, Task
from tensorlang.cli.arguments import UNLIMITED

PLAIN_INTERVAL = 5.0


@contextmanager
def open_display(
    task: Task, trials: int, seconds: float | None, silent: bool = False
) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that shows progress on standard error; `silent` shows nothing."""
    console = Console(stderr=True, highlight=False)
    if silent:
        yield lambda progress: None
        return
    team = f"{task.threads} thread{'s' * (task.threads > 1)}"
    console.print(f"tuning {task.workload} for {task.target}, {team}", markup=False, soft_wrap=True)
    if not console.is_terminal:
        yield plain_lines(console, trials, seconds)
        return
    with Live("preparing", console=console, auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(progress_table(progress, trials, seconds), refresh=True)


def plain_lines(console: Console, trials: int, seconds: float | None) -> Callable[[Progress], None]:
    """Print a line for each new best, and now and then one in between."""
    shown = [-PLAIN_INTERVAL]

    def show(progress: Progress) -> None:
        improved = progress.best is progress.record
        if improved or progress.trials >= trials or time.monotonic() - shown[0] > PLAIN_INTERVAL:
            shown[0] = time.monotonic()
            line = "  ".join(f"{name} {value}" for name, value in describe(progress, trials, seconds))
            console.print(line, markup=False, soft_wrap=True)

    return show


def progress_table(progress: Progress, trials: int, seconds: float | None) -> Table:
    """The live row of a terminal."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    cells = describe(progress, trials, seconds)
    table.add_row(*(f"[dim]{name}[/] [bold]{value}[/]" for name, value in cells))
    return table


def describe(progress: Progress, trials: int, seconds: float | None) -> list[tuple[str, str]]:
    """Progress as (name, value) pairs: trials, best speed and its share of the peak, failures, time left."""
    best = progress.best
    cells = [("trials", str(progress.trials) if _open_ended(trials, seconds) else f"{progress.trials}/{trials}")]
    cells.append(("best", "none yet" if best is None else f"{best.gflops:.1f} GFLOP/s"))
    if best is not None and progress.peak_gflops:
        cells.append(("of peak", f"{100 * best.gflops / progress.peak_gflops:.0f}%"))
    failed = ", ".join(f"{count} {status}" for status, count in progress.failures.most_common())
    cells.append(("failures", failed or "none"))
    left = time_left(progress, trials, seconds)
    cells.append(("left", f"{int(left) // 60}:{int(left) % 60:02d}"))
    return cells


def _open_ended(trials: int, seconds: float | None) -> bool:
    return seconds is not None and trials >= UNLIMITED


def time_left(progress: Progress, trials: int, seconds: float | None) -> float:
    """Seconds until the budget of time or of trials ends, at the present rate."""
    done = progress.trials - progress.resumed
    by_rate = progress.elapsed / max(1, done) * max(0, trials - progress.trials)
    return by_rate if seconds is None else min(by_rate, max(0.0, seconds - progress.elapsed))
