"""The live display of tuning a network: the time of a run and what is expected of it, kernels, trials, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from tensorlang.autotune import Phase, on_phase
from tensorlang.cli.display import PHASES, PLAIN_INTERVAL, line, on_screen, plain_phases, with_bar
from tensorlang.dataclass import dataclass
from tensorlang.networks.tuning import NetworkProgress
from tensorlang.words import format_clock, format_count, format_failures, format_seconds, printable

Told = Callable[[NetworkProgress], None]


@contextmanager
def open_network_display(trials: int | None, seconds: float | None, silent: bool = False) -> Iterator[Told | None]:
    """Yield a callback that shows progress on standard error, with the phases of tuners; `silent` shows nothing."""
    if silent:
        yield None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        with on_phase(plain_phases(console)):
            yield _plain_lines(console, trials, seconds)
        return
    with on_screen(NetworkScreen(trials, seconds), console) as show:
        yield show


def _plain_lines(console: Console, trials: int | None, seconds: float | None) -> Told:
    """Print a line where another kernel is begun, or the expected time falls, and now and then one in between."""
    shown = [-PLAIN_INTERVAL]
    state: list[tuple[str, float]] = []

    def show(progress: NetworkProgress) -> None:
        now = progress.stage, progress.expected
        if state[-1:] != [now] or time.monotonic() - shown[0] > PLAIN_INTERVAL:
            shown[0], state[:] = time.monotonic(), [now]
            cells = describe(progress, trials, seconds)
            console.print("  ".join(f"{name} {value}" for name, value in cells), markup=False, soft_wrap=True)

    return show


def describe(progress: NetworkProgress, trials: int | None, seconds: float | None) -> list[tuple[str, str]]:
    """Progress as (name, value) pairs."""
    return [
        ("network", _network(progress)),
        ("kernels", f"{progress.begun} of {progress.kernels}"),
        ("trials", str(progress.trials) if trials is None else f"{progress.trials}/{trials}"),
        ("failures", format_failures(progress.failures)),
        ("left", format_clock(time_left(progress, trials, seconds))),
        ("kernel", printable(f"{progress.stage} ({progress.node}), {_best(progress)}", 200)),
    ]


def time_left(progress: NetworkProgress, trials: int | None, seconds: float | None) -> float:
    """Seconds until the budget of time or of trials ends, at the present pace."""
    by_time = [] if seconds is None else [max(0.0, seconds - progress.elapsed)]
    pace = progress.elapsed / max(1, progress.trials)
    by_trials = [] if trials is None else [pace * max(0, trials - progress.trials)]
    return min([*by_time, *by_trials])


def _network(progress: NetworkProgress) -> str:
    return f"{format_seconds(progress.before)}, {format_seconds(progress.expected)} expected"


def _best(progress: NetworkProgress) -> str:
    best = progress.trial.best
    return "none yet" if best is None else f"best {format_seconds(best.median)}"


@dataclass(slots=True)
class NetworkScreen:
    """What a terminal shows. Clocks go on between trials."""

    trials: int | None
    seconds: float | None
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _phase: Phase = field(init=False, default=Phase.READING)
    _latest: NetworkProgress | None = field(init=False, default=None)
    _told: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def enter(self, phase: Phase) -> None:
        """Take in what tuning is at now; it is drawn at the next tick."""
        self._phase = phase

    def add(self, progress: NetworkProgress) -> None:
        """Take in a trial."""
        self._latest, self._told = progress, self.clock()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, latest = options.max_width, self._latest
        if latest is None:
            words = f"{self._phase}: {PHASES[self._phase]}  {format_clock(self.clock() - self._start)}"
            yield line("now", Text(words), width)
            return
        since = self.clock() - self._told
        left = max(0.0, time_left(latest, self.trials, self.seconds) - since)
        share = (latest.elapsed + since) / max(1e-9, latest.elapsed + since + left)
        trials = f"  {format_count(latest.trials, 'trial')}, {format_clock(left)} left"
        cells = dict(describe(latest, self.trials, self.seconds))
        yield line("network", Text(cells["network"], "bold"), width)
        yield line("kernels", Text(cells["kernels"]), width)
        yield line("trials", with_bar(trials, share, width, options.ascii_only), width)
        yield line("failed", Text(cells["failures"], "bold red" if latest.failures else "dim"), width)
        yield line("now", Text(f"{self._phase}; {cells['kernel']}", "dim"), width)
