"""A soak: workers that take cases of all kinds, each kind about the same time, until it is over."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Event
from typing import cast

from tensorlang.dataclass import dataclass
from tensorlang.testing.soak import reproducers
from tensorlang.testing.soak.case import Case
from tensorlang.testing.soak.counts import Counts, Fault
from tensorlang.testing.soak.worker import Bounds, Ended, Worker

_TICK = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: functions of kinds by name, from one seed on, for a time or a number of cases of each kind.

    Whoever sets `stop` ends it, within a second.
    """

    kinds: dict[str, str]
    seed: int
    output: Path
    workers: int = 1
    seconds: float | None = None
    cases: int | None = None
    bounds: Bounds = field(default_factory=Bounds)
    stop: Event = field(default_factory=Event)


@dataclass(slots=True)
class Watcher:
    """Who is told of what happens: each tick with the counts, each fault with its file."""

    tick: Callable[[Counts], None] = lambda counts: None
    fault: Callable[[Fault, Ended], None] = lambda fault, ended: None


def soak(plan: Plan, watcher: Watcher) -> Counts:
    """Run a plan, and return what became of the cases; Ctrl-C ends it with those so far.

    Raises MissingDependency when a kind needs a package that is not there.
    """
    counts = Counts(plan.seed, {kind: Counter() for kind in plan.kinds})
    with _surroundings():
        workers = [Worker(plan.kinds, plan.bounds) for _ in range(plan.workers)]
        try:
            _loop(plan, workers, counts, watcher)
        except KeyboardInterrupt:
            counts.stopped = True
        finally:
            for worker in workers:
                worker.remove()
    return counts


def _loop(plan: Plan, workers: list[Worker], counts: Counts, watcher: Watcher) -> None:
    turns = _Turns(plan, counts)
    until = time.monotonic() + plan.seconds if plan.seconds is not None else float("inf")
    while True:
        counts.stopped = plan.stop.is_set()
        over = counts.stopped or time.monotonic() >= until
        for worker in workers:
            if worker.case is None and not over and (case := turns.next()) is not None:
                worker.begin(case)
        busy = [worker for worker in workers if worker.case is not None]
        if over or not busy:
            return
        for ended in _events(busy, min(until, *(w.deadline for w in busy))):
            counts.add(ended)
            if ended.report.outcome.is_fault:
                file = reproducers.write(ended, plan.output)
                watcher.fault(counts.add_fault(ended, str(file)), ended)
        watcher.tick(counts)


def _events(busy: list[Worker], until: float) -> Iterator[Ended]:
    """Cases that end within a tick."""
    by_connection = {worker.connection: worker for worker in busy}
    ready = wait(list(by_connection), max(0.0, min(_TICK, until - time.monotonic())))
    for connection in ready:
        ended = by_connection[cast(Connection, connection)].news()
        if ended is not None:
            yield ended
    for worker in busy:
        if worker.case is not None and time.monotonic() > worker.deadline:
            yield worker.late()


@dataclass(slots=True)
class _Turns:
    """The next case: of the kind that had the least time."""

    plan: Plan
    counts: Counts
    begun: Counter[str] = field(default_factory=Counter)

    def next(self) -> Case | None:
        most = self.plan.cases
        left = [kind for kind in self.plan.kinds if most is None or self.begun[kind] < most]
        if not left:
            return None
        kind = min(left, key=lambda k: (self.counts.seconds.get(k, 0.0) + self._mean(k), self.begun[k]))
        self.begun[kind] += 1
        return Case(kind, self.plan.seed + self.begun[kind] - 1)

    def _mean(self, kind: str) -> float:
        """What cases that run now may take."""
        ended = self.counts.outcomes[kind].total()
        return (self.begun[kind] - ended) * self.counts.seconds.get(kind, 0.0) / max(1, ended)


@contextmanager
def _surroundings() -> Iterator[None]:
    """No kernels and records of this machine's for the processes, and the same order of sets in all of them."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"TENSORLANG_STORE": f"{folder}/store", "TENSORLANG_CACHE": "0", "PYTHONHASHSEED": "0"}
        before = {name: os.environ.get(name) for name in given}
        os.environ.update(given)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
