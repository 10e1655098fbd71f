"""What runs in a Dask worker: a broker, which keeps the harness of this machine and never dies of a candidate.

A Dask worker that dies takes all tasks that it held with it, and a hung one cannot be cancelled. So candidates run in
children of the worker, and whatever becomes of them is returned as data.
"""

from __future__ import annotations

import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tensorlang.autotune.measuring.harness import Limits, Measurement
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.records.fingerprint import host, versions
from tensorlang.autotune.records.record import Json, Status
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.target import parse
from tensorlang.target.detect import host_cpu
from tensorlang.target.rates import Rates
from tensorlang.target.spec import Target

MOST_SESSIONS = 4
"""Harnesses that stay open: as many as a TaskScheduler keeps."""
IDLE = 300.0
"""Seconds without a call after which a session ends: a killed tuner tells nobody. Another call opens it again."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a worker measures: its target (with as many cores as it may use), its fingerprint, and its software."""

    target: Target
    features: frozenset[str]
    host: Json
    versions: Json

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for machines whose times can be compared."""
        return replace(self.target, cores=1), self.features, self.host["cpu"]

    def __str__(self) -> str:
        return f"{self.host['name']} ({self.host['cpu'] or self.host['machine']}, {self.target})"


@dataclass(frozen=True, slots=True)
class Session:
    """A task to measure for, as every call carries it: a worker that joins later can take part.

    `kind` is that of the device which the task is for.
    """

    key: str
    task: bytes
    kind: tuple[object, ...]
    seed: int
    limits: Limits


class OtherDevice(Exception):
    """A call came to a worker of another kind."""


def device() -> Device:
    """This machine."""
    return Device(parse("llvm"), host_cpu().features, host(), versions())


def measure(session: Session, traces: list[Any], best: float | None) -> list[Measurement]:
    """Measure candidates, each against the best of those before it too."""
    found: dict[int, Measurement] = {}

    def to_beat() -> float | None:
        medians = [_median(m) for m in found.values() if m.status is Status.OK]
        return min([*medians, *([] if best is None else [best])], default=None)

    with _measurer(session) as measurer:
        for position, measurement in measurer.measure(traces, to_beat):
            found[position] = measurement
    here = host()
    return [replace(found[n], host=here) for n in range(len(traces))]


def _median(measurement: Measurement) -> float:
    return sorted(measurement.seconds)[len(measurement.seconds) // 2]


def compare(session: Session, trace: Any) -> Comparison:
    """Time a candidate beside NumPy."""
    with _measurer(session) as measurer:
        return measurer.compare(trace)


def rates(session: Session) -> Rates | None:
    """What one thread of this machine does."""
    with _measurer(session) as measurer:
        return measurer.rates()


def peak_gflops(session: Session) -> float:
    """GFLOP/s of multiply-adds."""
    with _measurer(session) as measurer:
        return measurer.peak_gflops()


def close(key: str) -> None:
    """End the processes of a session."""
    with _lock:
        found = _open.pop(key, None)
        if found is not None:
            found.close()


_open: OrderedDict[str, Measurer] = OrderedDict()
"""Harnesses by session, the latest last."""
_timers: dict[str, threading.Timer] = {}
"""By session, what closes it when nothing more comes."""
_lock = threading.RLock()
"""Of all of these. Calls come one at a time (a worker has one thread), and timers beside them."""


@contextmanager
def _measurer(session: Session) -> Iterator[Measurer]:
    """The harness of a session, for a call; opened if need be, and closed `IDLE` seconds after its last call."""
    with _lock:
        if (timer := _timers.pop(session.key, None)) is not None:
            timer.cancel()
        try:
            yield _opened(session)
        finally:
            timer = _timers[session.key] = threading.Timer(IDLE, _expire, (session.key,))
            timer.daemon = True
            timer.start()


def _expire(key: str) -> None:
    with _lock:
        if _timers.get(key) is threading.current_thread():  # no call came while this waited
            del _timers[key]
            close(key)


def _opened(session: Session) -> Measurer:
    if session.key not in _open:
        here = device()
        if here.kind != session.kind:
            raise OtherDevice(str(here))
        while len(_open) >= MOST_SESSIONS:
            _open.popitem(last=False)[1].close()
        task: Task = pickle.loads(session.task)
        _open[session.key] = Measurer(task, session.seed, session.limits).__enter__()
    _open.move_to_end(session.key)
    return _open[session.key]
