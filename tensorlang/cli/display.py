"""The live display of tuning: a curve and a few lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Protocol, TypeVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from tensorlang.autotune import Phase, Progress, Task, TuningRecord, on_phase
from tensorlang.cli.arguments import UNLIMITED
from tensorlang.cli.curve import draw_curve
from tensorlang.dataclass import dataclass
from tensorlang.words import format_clock, format_failures, format_seconds, format_speed, format_threads, printable

ToldOf = TypeVar("ToldOf", contravariant=True)
"""What tuning tells of a trial."""
PLAIN_INTERVAL = 5.0
REDRAW_INTERVAL = 0.25
TICK = 1.0  # seconds; drawing takes milliseconds of a CPU that candidates may be timed on
CURVE_ROWS = 6
LONGEST_CURVE = 96
LABEL = 9
PHASES = {
    Phase.READING: "log, inputs, reference outputs",
    Phase.SKETCHING: "schedules by rules",
    Phase.RANKING: "which candidates are promising",
    Phase.BUILDING: "candidates",
    Phase.TIMING: "one candidate, while others are built",
}
"""What each phase is about."""
STYLES = ("steel_blue3", "bold dark_orange3")  # to be told apart on dark and on light ground


@contextmanager
def open_display(
    task: Task, trials: int, seconds: float | None, silent: bool = False
) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that shows progress on standard error, with the phases of tuners; `silent` shows nothing."""
    console = Console(stderr=True, highlight=False)
    if silent:
        yield lambda progress: None
        return
    threads = "" if task.target.can.device else f", {format_threads(task.threads)}"
    console.print(f"tuning {task.workload} for {task.target}{threads}", markup=False, soft_wrap=True)
    if not console.is_terminal:
        with on_phase(plain_phases(console)):
            yield plain_lines(console, trials, seconds)
        return
    with on_screen(Screen(trials, seconds), console) as show:
        yield show


class Shown(Protocol[ToldOf]):
    """What a terminal shows of tuning."""

    def enter(self, phase: Phase) -> None:
        """Take in what tuning is at now."""

    def add(self, progress: ToldOf, /) -> None:
        """Take in a trial."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines."""


@contextmanager
def on_screen(screen: Shown[ToldOf], console: Console) -> Iterator[Callable[[ToldOf], None]]:
    """Draw a screen until the end, anew with each trial that the yielded callback is told of, but not too often."""
    with on_phase(screen.enter), Live(screen, console=console, refresh_per_second=1 / TICK, transient=True) as live:
        drawn = [0.0]

        def show(progress: ToldOf) -> None:
            screen.add(progress)
            if time.monotonic() - drawn[0] > REDRAW_INTERVAL:
                drawn[0] = time.monotonic()
                live.refresh()

        yield show


def plain_phases(console: Console) -> Callable[[Phase], None]:
    """Print a line for each phase when it begins for the first time."""
    named: set[Phase] = set()

    def show(phase: Phase) -> None:
        if phase not in named:
            named.add(phase)
            console.print(f"{phase}: {PHASES[phase]}", markup=False, soft_wrap=True)

    return show


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


def describe(progress: Progress, trials: int, seconds: float | None) -> list[tuple[str, str]]:
    """Progress as (name, value) pairs: trials, best time and speed, share of the peak, failures, time left."""
    best = progress.best
    cells = [("trials", str(progress.trials) if _open_ended(trials, seconds) else f"{progress.trials}/{trials}")]
    cells.append(("best", "none yet" if best is None else f"{format_seconds(best.median)}, {speed_text(best)}"))
    if best is not None and progress.peak_gflops:
        cells.append(("of peak", f"{100 * best.gflops / progress.peak_gflops:.0f}%"))
    cells.append(("failures", format_failures(progress.failures)))
    cells.append(("left", format_clock(time_left(progress, trials, seconds))))
    return cells


def speed_text(record: TuningRecord) -> str:
    """The speed of a record in words."""
    return f"{format_speed(record.gflops)} GFLOP/s"


def _open_ended(trials: int, seconds: float | None) -> bool:
    return seconds is not None and trials >= UNLIMITED


def pace(progress: Progress, first: float = 0.0) -> float:
    """Seconds for a trial; `first` is when the first one ended, for what came before it was preparation."""
    done = progress.trials - progress.resumed
    return progress.elapsed / max(1, done) if done < 3 else (progress.elapsed - first) / (done - (first > 0))


def time_left(progress: Progress, trials: int, seconds: float | None, first: float = 0.0) -> float:
    """Seconds until the budget of time or of trials ends, at the present pace."""
    by_rate = pace(progress, first) * max(0, trials - progress.trials)
    return by_rate if seconds is None else min(by_rate, max(0.0, seconds - progress.elapsed))


@dataclass(slots=True)
class Screen:
    """What a terminal shows. Clocks go on between trials."""

    trials: int
    seconds: float | None
    clock: Callable[[], float] = time.monotonic
    _start: float = field(init=False)
    _phase: Phase = field(init=False, default=Phase.READING)
    _latest: Progress | None = field(init=False, default=None)
    _told: float = field(init=False, default=0.0)
    _timed: list[tuple[float, float]] = field(init=False, default_factory=list)
    _best: list[tuple[float, float]] = field(init=False, default_factory=list)
    _best_trial: int = field(init=False, default=0)
    _first: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def enter(self, phase: Phase) -> None:
        """Take in what tuning is at now; it is drawn at the next tick, since a drawing disturbs who is timed."""
        self._phase = phase

    def add(self, progress: Progress) -> None:
        """Take in a trial."""
        self._first = self._first or progress.elapsed
        self._latest, self._told = progress, self.clock()
        if progress.record.ok:
            self._timed.append((progress.elapsed, progress.record.gflops))
        best = progress.best
        if best is not None and (not self._best or best.gflops > self._best[-1][1]):
            self._best.append((progress.elapsed, best.gflops))
            self._best_trial = progress.trials if best is progress.record else 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        latest = self._latest
        if latest is None:
            words = f"{self._phase}: {PHASES[self._phase]}  {format_clock(self.clock() - self._start)}"
            yield line("now", Text(words), width)
            return
        elapsed = latest.elapsed + self.clock() - self._told
        left = max(0.0, time_left(latest, self.trials, self.seconds, self._first) - (elapsed - latest.elapsed))
        yield line("best", self._best_words(latest), width)
        if self._best and not options.ascii_only:
            yield from self._curve(elapsed, width)
        yield line("trials", self._trials_words(latest, elapsed, left, width, options.ascii_only), width)
        yield line("failed", Text(format_failures(latest.failures), "bold red" if latest.failures else "dim"), width)
        yield line("now", self._now_words(latest), width)

    def _best_words(self, latest: Progress) -> Text:
        best = latest.best
        if best is None:
            return Text("none yet", "dim")
        words = Text.assemble((format_seconds(best.median), "bold"), "   ", (speed_text(best), "bold"))
        if latest.peak_gflops:
            words.append(f"   {100 * best.gflops / latest.peak_gflops:.0f}% of peak")
        return words.append(f"   trial {self._best_trial}" if self._best_trial else "   from the log", "dim")

    def _curve(self, elapsed: float, width: int) -> Iterator[Text]:
        """Speed against time: single trials as dots, the best so far as a line."""
        columns = min(LONGEST_CURVE, width - LABEL - 2)
        if columns < 16:
            return
        top, span = self._best[-1][1], max(elapsed, 1e-9)

        def placed(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
            return [(x / span, y / top) for x, y in points]

        lines = draw_curve(placed(self._timed), placed(self._best), columns, CURVE_ROWS, STYLES)
        for row, line in enumerate(lines):
            label = {0: format_speed(top), CURVE_ROWS - 1: "0"}.get(row, "")
            yield Text.assemble((f"{label:>{LABEL - 1}} ", "dim"), ("┤" if label else "│", "dim"), line)
        end = format_clock(elapsed)
        axis = "GFLOP/s over time".center(columns - 4 - len(end)) if columns > 40 else " " * (columns - 4 - len(end))
        yield Text(f"{'':{LABEL}} 0:00{axis}{end}", "dim")

    def _trials_words(self, latest: Progress, elapsed: float, left: float, width: int, ascii_only: bool) -> Text:
        done = str(latest.trials) if _open_ended(self.trials, self.seconds) else f"{latest.trials} of {self.trials}"
        resumed = f" ({latest.resumed} from the log)" if latest.resumed else ""
        rate = f", {60 / max(1e-3, pace(latest, self._first)):.0f} a minute"
        words = f"  {done}{resumed}{rate}, {format_clock(left)} left"
        return with_bar(words, elapsed / max(1e-9, elapsed + left), width, ascii_only)

    def _now_words(self, latest: Progress) -> Text:
        record = latest.record
        time_over = self.seconds is not None and latest.elapsed >= self.seconds
        if latest.trials >= self.trials or time_over:
            return Text("timing the best beside NumPy")
        if record.ok:
            came = f"{format_seconds(record.median)}, {record.sketch}"
        else:
            came = " ".join(f"{record.status}: {record.error}".split())
        return Text.assemble(f"{self._phase}; ", (f"trial {latest.trials}: {printable(came)}", "dim"))


def with_bar(words: str, share: float, width: int, ascii_only: bool) -> Text:
    """Words behind a bar of which a share is full, where there is room for it."""
    room = min(30, width - LABEL - len(words) - 1)
    if room < 6:
        return Text(words.strip())
    full = round(room * min(1.0, share))
    bar, rest = ("#", "-") if ascii_only else ("━", "─")
    return Text.assemble((bar * full, "dark_orange3"), (rest * (room - full), "dim"), words)


def line(name: str, words: Text, width: int) -> Text:
    """A named line that is cut at the terminal's edge."""
    line = Text.assemble((f"{name:>{LABEL - 1}} ", "dim"), " ", words, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
