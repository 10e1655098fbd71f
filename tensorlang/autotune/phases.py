"""What tuning is at: told to who listens, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from enum import StrEnum

from tensorlang.dataclass import dataclass


class Phase(StrEnum):
    """What tuning is at. Candidates are built while others are timed: that counts as timing."""

    READING = "reading"
    """The log; inputs and reference outputs are made."""
    SKETCHING = "sketching"
    """Rules write schedules with open decisions."""
    RANKING = "ranking"
    """The model orders candidates."""
    BUILDING = "building"
    """Candidates; before the first one workers start, too."""
    TIMING = "timing"


Listener = Callable[[Phase], object]


@dataclass(slots=True)
class Phases:
    """The seconds that each phase has taken; `listener` is told when another one begins."""

    listener: Listener | None = None
    clock: Callable[[], float] = time.monotonic
    _seconds: dict[Phase, float] = field(default_factory=dict)
    _current: Phase | None = None
    _since: float = 0.0

    def enter(self, phase: Phase) -> None:
        """Begin a phase, if it is not the current one."""
        if phase is self._current:
            return
        self.leave()
        self._current = phase
        if self.listener is not None:
            self.listener(phase)

    def leave(self) -> None:
        """End the current phase."""
        now = self.clock()
        if self._current is not None:
            self._seconds[self._current] = self._seconds.get(self._current, 0.0) + now - self._since
        self._current, self._since = None, now

    @property
    def seconds(self) -> Mapping[Phase, float]:
        """Seconds of each phase that there was, until now."""
        found = dict(self._seconds)
        if self._current is not None:
            found[self._current] = found.get(self._current, 0.0) + self.clock() - self._since
        return found


_phases: ContextVar[Phases | None] = ContextVar("tensorlang_phases", default=None)


@contextmanager
def on_phase(listener: Listener) -> Iterator[None]:
    """Call `listener` with each phase that a tuner begins inside the `with` block: `with autotune.on_phase(print):`.

    >>> from tensorlang import autotune
    >>> with autotune.on_phase(print):
    ...     best = autotune.best_record([])
    """
    with _using(Phases(listener)):
        yield


@contextmanager
def timed_phases() -> Iterator[Phases]:
    """The phases of one call of a tuner; who listens around it hears of them."""
    outer = _phases.get()
    with _using(Phases(None if outer is None else outer.enter)) as phases:
        yield phases


@contextmanager
def _using(phases: Phases) -> Iterator[Phases]:
    token = _phases.set(phases)
    try:
        yield phases
    finally:
        phases.leave()
        _phases.reset(token)


def enter(phase: Phase) -> None:
    """Say what is begun; nothing where nobody tunes."""
    phases = _phases.get()
    if phases is not None:
        phases.enter(phase)
