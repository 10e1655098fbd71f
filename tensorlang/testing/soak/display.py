"""Counts by kind and outcome: a table that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tensorlang.dataclass import dataclass
from tensorlang.testing.soak.case import Outcome
from tensorlang.testing.soak.counts import Counts, Fault
from tensorlang.testing.soak.running import Watcher
from tensorlang.testing.soak.worker import Ended
from tensorlang.words import printable

_PLAIN_INTERVAL = 60.0
_LIVE_INTERVAL = 0.5


def table(counts: Counts) -> Table:
    """The counts, a row for each kind."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("kind", "cases", *(o.value for o in Outcome), "seconds"):
        made.add_column(name, justify="left" if name == "kind" else "right")
    for kind, found in counts.outcomes.items():
        numbers = [f"{found[o]}" if found[o] or not o.is_fault else "0" for o in Outcome]
        made.add_row(kind, str(found.total()), *numbers, f"{counts.seconds.get(kind, 0.0):.0f}")
    return made


def summary(counts: Counts) -> str:
    """The faults, each once, with the command that runs the first of them again."""
    lines = [f"{counts.cases} cases, {counts.failed} wrong or worse{', stopped' if counts.stopped else ''}"]
    for fault in counts.faults.values():
        times = f" ({fault.count} times)" if fault.count > 1 else ""
        lines += [f"{fault.kind}: {fault.outcome.value}: {printable(fault.line)}{times}", f"  {fault.first.command}"]
        lines += [f"  {fault.file}"]
    return "\n".join(lines)


@dataclass(slots=True)
class _Plain:
    """A line now and then."""

    console: Console
    last: float = field(default_factory=time.monotonic)

    def __call__(self, counts: Counts) -> None:
        if time.monotonic() - self.last >= _PLAIN_INTERVAL:
            self.last = time.monotonic()
            parts = ", ".join(f"{kind} {found.total()}" for kind, found in counts.outcomes.items())
            self.console.print(f"{parts}; {counts.failed} wrong or worse", markup=False, soft_wrap=True)


@contextmanager
def open_display(silent: bool = False) -> Iterator[Watcher]:
    """Yield who shows the counts and the faults on standard error; `silent` shows nothing."""
    console = Console(stderr=True, highlight=False)
    if silent:
        yield Watcher()
        return

    def say(fault: Fault, ended: Ended) -> None:
        if fault.count == 1:
            text = f"{fault.kind}: {fault.outcome.value}: {printable(fault.line)}\n  {ended.case.command}"
            console.print(text, markup=False, soft_wrap=True)

    if not console.is_terminal:
        yield Watcher(_Plain(console), say)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        drawn = [0.0]

        def draw(counts: Counts) -> None:
            if time.monotonic() - drawn[0] > _LIVE_INTERVAL:
                drawn[0] = time.monotonic()
                live.update(table(counts), refresh=True)

        yield Watcher(draw, say)
