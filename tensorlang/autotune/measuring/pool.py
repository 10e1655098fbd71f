"""Worker processes that may crash or hang without harm.

A worker is a fresh interpreter that runs one function at a time and sends back what it returned. It is
started with `python -m`, not through multiprocessing, because that would run the user's script again in
every worker. A worker that dies or exceeds its limit is killed and replaced; the caller gets a status.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorlang.autotune.measuring.launching import ARMED, launch
from tensorlang.autotune.measuring.messages import Channel
from tensorlang.autotune.records.record import Status
from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError

START_LIMIT = 60.0
ARM_LIMIT = 10.0
_WORKER = "tensorlang.autotune.measuring.worker"
_PACKAGE_PARENT = str(Path(__file__).parents[3])


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Where a worker runs (`cpus`, empty: anywhere), its address-space limit, and its environment."""

    cpus: tuple[int, ...] = ()
    memory_bytes: int = 0
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a call: its value when `status` is ok, else the reason in `error`."""

    status: Status
    value: Any = None
    error: str = ""


class Worker:
    """One worker process, restarted as needed. Not for use by several threads.

    Nothing here waits for the process but `run`, and to start it: it may be stopped, or dead, at any time. It dies with
    this process, however that ends (launching).
    """

    def __init__(self, settings: WorkerSettings | None = None, begun: bool = True) -> None:
        """Start the process; with its first call where it is not `begun`."""
        self._settings = settings or WorkerSettings()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._limit = 0.0
        self._deadline: float | None = None
        self._paused: float | None = None
        self._ready = False
        self._closed = False
        self.starts = 0
        if begun:
            self._start()

    @property
    def busy(self) -> bool:
        """True between submit and the reply."""
        return self._deadline is not None

    @property
    def paused(self) -> bool:
        """True between pause and resume."""
        return self._paused is not None

    @property
    def channel(self) -> Channel:
        """Readable when a reply, or the news of a crash, is there."""
        if self._closed or self._channel is None:
            raise InternalError("a closed worker was used")
        return self._channel

    @property
    def remaining(self) -> float:
        """Seconds until the running call is over its limit; pauses do not count."""
        if self._deadline is None or self._paused is not None:
            return math.inf
        return max(0.0, self._deadline - time.monotonic())

    def pause(self) -> None:
        """Take the process off its CPU, whatever it is doing."""
        if self._process is not None and self._paused is None:
            self._paused = time.monotonic()  # before the signal: an interrupt between them must not hide the pause
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on; its call has as much time left as it had."""
        if self._process is not None and self._paused is not None:
            self._process.send_signal(signal.SIGCONT)
            if self._deadline is not None:
                self._deadline += time.monotonic() - self._paused
        self._paused = None

    def abandon(self) -> None:
        """Drop the running call, if there is one: its process is killed, and replaced when there is another call."""
        self.resume()
        if self.busy:
            self._stop()
            self._deadline = None

    def retire(self) -> None:
        """End the process, which runs nothing; the next call has a new one."""
        if self.busy:
            raise InternalError("a worker was retired while it ran")
        self._stop()

    def begin(self) -> None:
        """Start the process, if there is none."""
        if self._process is None and not self._closed:
            self._start()

    def submit(self, limit: float, function: Callable[..., Any], *args: Any) -> None:
        """Start `function(*args)`; both are pickled. It is killed after `limit` seconds from when its process is up."""
        if self.busy:
            raise InternalError("a worker got a second call before its first was done")
        payload = pickle.dumps((function, args))
        self.begin()
        try:
            self.channel.put(payload)
        except OSError:  # died while idle
            self._restart()
            with contextlib.suppress(OSError):  # and again: that is the reply
                self.channel.put(payload)
        self._limit = limit
        self._deadline = time.monotonic() + (limit if self._ready else START_LIMIT)

    def collect(self) -> Reply | None:
        """Return the reply if there is one, or if the call is over its limit; None while it runs, or is paused."""
        if self._paused is not None or not self.busy:
            return None
        try:
            self.channel.push()
            while (message := self.channel.take()) is not None:
                if message == ARMED:
                    continue
                if self._ready:
                    self._deadline = None
                    return Reply(*pickle.loads(message))
                self._ready = True  # the first message says so, and the call's time begins
                self._deadline = time.monotonic() + self._limit
        except (EOFError, OSError):
            how = self._restart(grace=1.0)
            self._deadline = None
            return Reply(Status.CRASH, error=how)
        if self.remaining > 0:
            return None
        why = f"not done after {self._limit:g} s" if self._ready else f"not started after {START_LIMIT:g} s"
        self._restart()
        self._deadline = None
        return Reply(Status.TIMEOUT, error=why)

    def run(self, limit: float, function: Callable[..., Any], *args: Any) -> Reply:
        """Call and wait for the reply."""
        self.submit(limit, function, *args)
        while (reply := self.collect()) is None:
            wait_any([self])
        return reply

    def kill(self) -> None:
        """Kill the process, without waiting for its end."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Kill the process, running or not."""
        self._closed = True
        self._stop()
        self._deadline = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        self._paused = None
        self._ready = False
        settings = self._settings
        arguments = [str(theirs.fileno()), ",".join(map(str, settings.cpus)), str(settings.memory_bytes)]
        path = os.pathsep.join(filter(None, (_PACKAGE_PARENT, os.environ.get("PYTHONPATH", ""))))
        environment = {**os.environ, **dict(settings.environment), "PYTHONPATH": path}
        with theirs:
            self._process = launch(_WORKER, arguments, theirs.fileno(), environment)
        self._channel.wait(ARM_LIMIT)  # from then on it dies with us, also when it is stopped at once
        self.starts += 1

    def _stop(self, grace: float = 0.0) -> str:
        """End the process, after `grace` seconds if it does not end by itself, and say how it ended."""
        if self._channel is not None:
            self._channel.close()
        if self._process is None:
            return ""
        try:
            code = self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = self._channel = self._paused = None
        return _describe_exit(code)

    def _restart(self, grace: float = 0.0) -> str:
        how = self._stop(grace)
        self._start()
        return how


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"the worker process exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"the worker process died of {signal.Signals(-code).name}"
    return f"the worker process died of signal {-code}"


def wait_any(workers: Iterable[Worker], until: float = math.inf) -> None:
    """Wait until a busy worker that is not paused has a reply, takes more or is over its limit, or `until` a time."""
    busy = [w for w in workers if w.busy and not w.paused]
    seconds = min(until - time.monotonic(), *(w.remaining for w in busy), math.inf)
    if not busy or seconds <= 0:
        return
    with selectors.DefaultSelector() as selector:
        for worker in busy:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.channel.is_full else 0)
            selector.register(worker.channel, events)
        selector.select(None if seconds == math.inf else seconds)


def thread_environment(threads: int, extra: Mapping[str, str] | None = None) -> tuple[tuple[str, str], ...]:
    """Environment of a worker whose libraries may use `threads` threads each."""
    names = ("TENSORLANG_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return (*((name, str(threads)) for name in names), *(extra or {}).items())


def allowed_cpus() -> tuple[int, ...]:
    """The CPUs that this process may use; empty where the system cannot say."""
    affinity = getattr(os, "sched_getaffinity", None)
    return tuple(sorted(affinity(0))) if affinity else ()


@dataclass(frozen=True, slots=True)
class Shares:
    """CPUs of the runner, and of each builder; `polite` builders have CPUs of the runner, and pause while it runs."""

    runner: tuple[int, ...]
    builders: tuple[tuple[int, ...], ...]
    polite: tuple[bool, ...]


MOST_BUILDERS = 16
ENOUGH_BUILDERS = 4  # so many with CPUs of their own need no polite ones beside them


def share_cpus(threads: int, cpus: Sequence[int], builders: int = 0) -> Shares:
    """Share CPUs between the runner of so many threads and builders; 0: as many as make sense."""
    if not cpus:  # nobody can be kept to a CPU here
        count = builders or 1
        return Shares((), ((),) * count, (True,) * count)
    runner = tuple(cpus[-min(threads, len(cpus)) :])
    free = [c for c in cpus if c not in runner]
    order = free if len(free) >= ENOUGH_BUILDERS else [*free, *runner]
    count = builders or min(len(order), MOST_BUILDERS)
    chosen = [order[n % len(order)] for n in range(count)]
    return Shares(runner, tuple((c,) for c in chosen), tuple(c in runner for c in chosen))
