"""Tuning on a cluster: which machine its tasks are for, and a harness that sends candidates there."""

from __future__ import annotations

import math
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import field, replace
from types import TracebackType
from typing import Any

from tensorlang.autotune.cluster import broker
from tensorlang.autotune.cluster.address import Tls, parse_address
from tensorlang.autotune.cluster.broker import Device, Session
from tensorlang.autotune.cluster.connection import Connection, Died
from tensorlang.autotune.measuring.harness import BATCH, Limits, Measured, Measurement
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.supply import Supply
from tensorlang.autotune.phases import Phase, enter
from tensorlang.autotune.records.record import Json, Status
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.target import parse
from tensorlang.target.detect import THIS_MACHINE
from tensorlang.target.rates import Rates
from tensorlang.target.spec import Target

MOST_TOGETHER = 4  # candidates of one call: enough that builds go on beside runs, few enough to hear of them soon

Numbered = tuple[int, Any]
"""A candidate's place and its trace."""


class Cluster:
    """The workers behind `dask://host:port`, all of one kind; a context manager, which connects.

    `tls`: certificates, needed for schedulers on other machines. `patience`: seconds to wait for a worker when there is
    none, before giving up.
    """

    def __init__(self, address: str, tls: Tls | None = None, patience: float = 20.0) -> None:
        self.address = parse_address(address)
        self.tls = tls
        self.patience = patience
        self._connection: Connection | None = None
        self._device: Device | None = None

    def __enter__(self) -> Cluster:
        self._connection = Connection(self.address, self.tls, self.patience)
        try:
            self._device = self._connection.device()
        except BaseException:
            self._connection.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> tuple[Connection, Device]:
        if self._connection is None or self._device is None:
            raise TargetError(f"{self.address} is not connected; use `with Cluster(...) as cluster:`")
        return self._connection, self._device

    @property
    def target(self) -> Target:
        """The target of the workers' machines, for `create_task(..., target=cluster.target)`."""
        return self._opened()[1].target

    def target_of(self, text: str | Target | None) -> str | Target | None:
        """The workers' own target for None and `llvm`; other texts as they are."""
        return self.target if text in (None, THIS_MACHINE) else text

    def fit(self, task: Task) -> Task:
        """The task for the workers' machines: one for this machine becomes one for theirs.

        A task for any other target stays as it is, and the workers say whether they can run it. TargetError when it has
        more threads than they have.
        """
        theirs = self.target
        if task.threads > theirs.cores:
            raise TargetError(
                f"the task has {task.threads} threads, the workers of {self.address} have {theirs.cores}; make it with "
                f"threads={theirs.cores}"
            )
        ours = replace(parse(THIS_MACHINE), cores=task.threads)
        return replace(task, target=replace(theirs, cores=task.threads)) if task.target == ours else task

    def harness(self, task: Task, seed: int, limits: Limits) -> ClusterHarness:
        """A harness for a task that fits."""
        connection, device = self._opened()
        session = Session(uuid.uuid4().hex, pickle.dumps(task), device.kind, seed, limits)
        return ClusterHarness(task, session, connection)


@dataclass(slots=True)
class ClusterHarness:
    """Measures on the workers of a cluster; a harness. Builds happen there too."""

    task: Task
    _session: Session
    _connection: Connection
    _peak: Json = field(default_factory=dict)
    _busy: int = 0
    """Calls that are under way."""

    def __enter__(self) -> ClusterHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def batch(self) -> int:
        """One call for every worker there is now, and no less than for one machine."""
        return max(BATCH, MOST_TOGETHER * len(self._connection.workers))

    def close(self) -> None:
        """Have the workers end the processes of this task when they are done with what they have."""
        self._connection.tell_all(broker.close, self._session.key)

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        """Measure candidates, a few at a time on every worker; yield (position, measurement) as they come back.

        When workers died of a few together, each is tried alone; who kills workers alone too is a crash.
        """
        supply, suspects = Supply(traces), list[Numbered]()
        while time.monotonic() < deadline:
            for group, found in self._together(self._groups(supply), best, deadline):
                if isinstance(found, Died):
                    suspects += group
                else:
                    yield from zip((n for n, _ in group), map(self._here, found), strict=True)
                supply.reopen()
            if not suspects:
                return
            for ((n, _),), found in self._together([[suspect] for suspect in suspects], best, deadline):
                yield n, _crash(found) if isinstance(found, Died) else self._here(found[0])
            suspects.clear()
            supply.reopen()

    def _groups(self, supply: Supply) -> Iterator[list[Numbered] | None]:
        """Candidates for idle workers, a few for each; None when there are none right now."""
        while True:
            supply.refill(self.batch)
            idle = max(1, len(self._connection.workers) - self._busy)
            size = min(MOST_TOGETHER, -(-len(supply.waiting) // idle))
            while supply.waiting:
                yield [supply.waiting.popleft() for _ in range(min(size, len(supply.waiting)))]
            yield None

    def _together(
        self, groups: Iterable[list[Numbered] | None], best: Callable[[], float | None], deadline: float
    ) -> Iterator[tuple[list[Numbered], Any]]:
        """Measure groups of candidates; yield each with its measurements, or with what workers died of it."""
        given: list[list[Numbered]] = []

        def calls() -> Iterator[tuple[Session, list[Any], float | None] | None]:
            for group in groups:
                if group is not None:
                    enter(Phase.TIMING)
                    given.append(group)
                    self._busy += 1
                yield None if group is None else (self._session, [trace for _, trace in group], best())

        self._busy = 0
        with closing(self._connection.calls(broker.measure, calls(), deadline)) as ended:
            for n, found in ended:
                self._busy -= 1
                yield given[n], found

    def _here(self, measurement: Measurement) -> Measurement:
        return replace(measurement, host=measurement.host | self._peak)

    def compare(self, trace: Any) -> Comparison:
        """Time a candidate beside NumPy, on a worker."""
        comparison: Comparison = self._connection.call(broker.compare, self._session, trace)
        return comparison

    def rates(self) -> Rates | None:
        """What one thread of a worker's machine does."""
        found: Rates | None = self._connection.call(broker.rates, self._session)
        return found

    def peak_gflops(self) -> float:
        """GFLOP/s of multiply-adds of a worker's machine."""
        found: float = self._connection.call(broker.peak_gflops, self._session)
        self._peak = {"peak_gflops": round(found, 1)} if found > 0 else {}
        return found


def _crash(died: Died) -> Measurement:
    error = f"{died.times} workers died while they measured it; their own processes, not only the candidate's"
    return Measurement(Status.CRASH, error=error)
