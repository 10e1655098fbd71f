"""A process that runs cases, and the handle that its parent has: one that dies, hangs or takes all memory is told."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import MissingDependency
from tensorlang.testing.soak.case import Case, Outcome, Report, kind_of, run_case

_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 5.0  # seconds that a process has to end, or to say where it hangs
_START = 60.0  # seconds that a process has to begin a case, before those of the case count
_EARLIER = 20  # cases that a process ran before one that failed, to be told


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a case may take: seconds, and bytes of memory of its process."""

    seconds: float = 120.0
    memory: int = 8 << 30


@dataclass(frozen=True, slots=True)
class Ended:
    """A case with its outcome, what it drew as text, and the cases that its process ran before it."""

    case: Case
    report: Report
    seconds: float
    told: str
    earlier: tuple[Case, ...]


@dataclass(slots=True)
class Worker:
    """A process that runs one case after the other; a new one takes its place after a crash or a hang."""

    functions: dict[str, str]
    bounds: Bounds
    case: Case | None = None
    _process: Any = None
    _connection: Connection | None = None
    _stderr: Path = field(default_factory=lambda: Path(tempfile.mkstemp(prefix="soak-", suffix=".txt")[1]))
    _begun: float = 0.0
    _starting: bool = False
    _told: str = ""
    _earlier: deque[Case] = field(default_factory=lambda: deque(maxlen=_EARLIER))

    @property
    def connection(self) -> Connection:
        """Where news come from, and the end of the process."""
        assert self._connection is not None
        return self._connection

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return None if self._process is None else self._process.pid

    def begin(self, case: Case) -> None:
        """Send a case to the process; starts one, if there is none."""
        if self._process is None:
            self._start()
        self.case, self._told, self._begun, self._starting = case, "", time.monotonic(), True
        with suppress(OSError):  # a process that has just died: `news` tells
            self.connection.send(case)

    def _start(self) -> None:
        self._connection, other = _SPAWN.Pipe()
        self._stderr.write_bytes(b"")
        arguments = (other, self.functions, self.bounds.memory, str(self._stderr))
        self._process = _SPAWN.Process(target=serve, args=arguments, daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the parent, who ends it
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        other.close()
        self._earlier.clear()

    @property
    def deadline(self) -> float:
        """When the case is late (`time.monotonic`)."""
        return self._begun + self.bounds.seconds + (_START if self._starting else 0.0)

    def news(self) -> Ended | None:
        """The end of the case, if that is what there is to be read; MissingDependency as the process raised it."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            return self._died()
        if isinstance(message, MissingDependency):
            raise message
        if message is None:  # the process is up, and the case begins
            self._begun, self._starting = time.monotonic(), False
            return None
        if isinstance(message, str):
            self._told = message
            return None
        return self._ended(message)

    def late(self) -> Ended:
        """End a process that hangs; its stack is the traceback."""
        assert self.pid is not None
        with suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + _PATIENCE
        while not self._stderr.stat().st_size and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.05)
        text = f"{self._stack()}\nno end after {self.bounds.seconds:g} s"
        self.close()
        return self._ended(Report(Outcome.HANG, text))

    def _died(self) -> Ended:
        self._process.join(_PATIENCE)
        code = self._process.exitcode
        name = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        text = f"{self._stack()}\nthe process died: {name}"
        self.close()
        return self._ended(Report(Outcome.CRASH, text))

    def _stack(self) -> str:
        return self._stderr.read_text(errors="replace").rstrip()[-20_000:]

    def _ended(self, report: Report) -> Ended:
        assert self.case is not None
        ended = Ended(self.case, report, time.monotonic() - self._begun, self._told, tuple(self._earlier))
        self._earlier.append(self.case)
        self.case = None
        return ended

    def close(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.join(_PATIENCE)
            self.connection.close()
            self._process = self._connection = None

    def remove(self) -> None:
        """End the process, and remove its file."""
        self.close()
        self._stderr.unlink(missing_ok=True)


def serve(connection: Connection, functions: dict[str, str], memory: int, stderr: str) -> None:
    """Run cases until nobody sends any; errors of the process itself are written to a file."""
    with Path(stderr).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 2)
        faulthandler.enable(file)
        faulthandler.register(signal.SIGUSR1, file)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        with suppress(EOFError, OSError):
            while True:
                case = connection.recv()
                connection.send(_answer(case, functions, connection))


def _answer(case: Case, functions: dict[str, str], connection: Connection) -> Report | MissingDependency:
    try:
        kind = kind_of(functions[case.kind])
        connection.send(None)
        return run_case(kind, case.seed, connection.send)
    except MissingDependency as error:
        return MissingDependency(str(error))
