"""What a tuner asks of whoever measures: this machine's processes (measurer), or a cluster's (autotune.cluster)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import field
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.records.fingerprint import host, versions, with_peak
from tensorlang.autotune.records.record import Json, Status, TuningRecord, now
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import TensorlangError
from tensorlang.target.rates import Rates

LONGEST_ERROR = 2000
BATCH = 8
"""Candidates to ask for at a time where one machine measures: its builders are busy, and the model learns soon."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a build, a run and the final comparison may take, and how candidates are run.

    `builders`: processes that build (0: one for every CPU). `memory`: bytes of address space that a worker may have
    (0: three quarters of the machine's memory); a task whose arrays alone take more is refused. `flush`: empty the
    caches before every sample, for programs whose data is cold in use; on a GPU it does not matter: caches are cold on
    CUDA, and as they are on OpenCL.
    """

    build: float = 60.0
    run: float = 10.0
    compare: float = 120.0
    builders: int = 0
    memory: int = 0
    flush: bool = False


@dataclass(frozen=True, slots=True)
class Measurement:
    """What measuring one candidate gave.

    `checked`: its outputs were compared with the reference. `conditions`: how it was timed (docs/records.md). `host`:
    fingerprint of the machine that ran it; empty for this one.
    """

    status: Status
    seconds: tuple[float, ...] = ()
    error: str = ""
    checked: bool = False
    conditions: Json = field(default_factory=dict)
    host: Json = field(default_factory=dict)


class Recorded(Protocol):
    """What a record keeps of a trace."""

    @property
    def key(self) -> str: ...

    def to_json(self) -> Any: ...


def record_of(
    measurement: Measurement,
    task: Task,
    sketch: str,
    trace: Recorded,
    decisions: Mapping[str, int],
    seed: int,
    estimate: float = math.nan,
    peak: float = 0.0,
    settings: Json | None = None,
) -> TuningRecord:
    """The record of a candidate.

    `peak`: GFLOP/s of the machine that measured, 0 when it is unknown; `settings`: what the decisions stand for,
    where they do not tell.
    """
    return TuningRecord(
        workload=task.workload,
        target=task.target.to_json(),
        threads=task.threads,
        sketch=sketch,
        trace=trace.to_json(),
        trace_key=trace.key,
        decisions=decisions,
        status=measurement.status,
        seconds=measurement.seconds,
        error=measurement.error[:LONGEST_ERROR],
        estimate=estimate,
        checked=measurement.checked,
        seed=seed,
        host=with_peak(measurement.host or host(), peak),
        conditions=measurement.conditions,
        versions=versions(),
        time=now(),
        settings=settings or {},
    )


Measured: TypeAlias = Generator[tuple[int, Measurement], None, None]
"""Positions of candidates with their measurements, as each is done; to close it drops the rest."""


class WorkersLost(TensorlangError):
    """Nobody is left to measure. What was measured before is in the log."""


class Harness(Protocol):
    """Measures candidates of one task; a context manager."""

    @property
    def task(self) -> Task:
        """The task, for the target of the machine that measures."""

    @property
    def batch(self) -> int:
        """How many candidates to ask for at a time, so that nobody who measures is idle."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """End the processes and remove the files; what is being measured is dropped."""

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        """Build and run candidates given as trace JSON; yield (position, measurement) as each is done.

        `traces` may be proposed while others are measured: they are taken as they are needed, and None among them
        means that there is none before the next result. `best` is asked for the time to beat. What is not done at the
        `deadline` (of time.monotonic) is dropped. Raises WorkersLost when nobody is left to measure the rest.
        """

    def compare(self, trace: Any) -> Comparison:
        """Time a candidate beside NumPy, in turn; TensorlangError when it does not run."""

    def rates(self) -> Rates | None:
        """What one thread does where candidates run; None when nobody knows, or the target names another CPU."""

    def peak_gflops(self) -> float:
        """GFLOP/s of multiply-adds for the task's dtype and threads, where candidates run; 0 when unknown."""
