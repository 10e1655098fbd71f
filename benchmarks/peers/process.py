"""A process that answers lines with lines, and is stopped between them, idling threads and all."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class PeerError(Exception):
    """The process has ended, or does not answer in time."""


class Peer:
    """A program that makes as many calls as each line of its input says, and answers with the seconds of the best."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def ask(self, line: str, limit: float | None = None) -> str:
        """The answer to a line, within `limit` seconds; the process runs only meanwhile."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.send_signal(signal.SIGCONT)
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerError(f"{self.name} has ended") from error
        if not select.select([self._process.stdout], [], [], limit)[0]:
            raise PeerError(f"{self.name} did not answer within {limit:g} s")
        answer = self._process.stdout.readline()
        if not answer:
            raise PeerError(f"{self.name} ended ({_ending(self._process.wait())})")
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def run(self, calls: int) -> float:
        """Seconds of the best of some calls in a row."""
        return float(self.ask(str(calls)))


def _ending(code: int) -> str:
    return f"exit status {code}" if code >= 0 else signal.Signals(-code).name


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Run on so many cores only, and every process that is started meanwhile too: the last ones, often the quietest."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
