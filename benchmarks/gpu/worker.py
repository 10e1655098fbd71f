"""A process for work that may crash, hang or lose the GPU: it is ended then, and the next work gets a new one."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeAlias

from benchmarks.gpu.reasons import brief

_PATIENCE = 2.0
"""Seconds that a process has to end by itself."""


class Failed(Exception):
    """Why a process has no result."""


Work: TypeAlias = Callable[..., Any]
"""A function at the top level of a module: it goes to another process by its name."""


class Worker:
    """One process at a time, made when there is work for it. A context that ends the process it has left."""

    def __init__(self) -> None:
        self._process: Any = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_PATIENCE)

    def run(self, seconds: float, work: Work, *arguments: Any) -> Any:
        """What `work(*arguments)` returns in the process; Failed with the reason, also after so many seconds."""
        pipe = self._pipe or self._begin()
        end = time.monotonic() + seconds
        try:
            pipe.send((work, arguments))
            if not pipe.poll(max(0.0, end - time.monotonic())):
                raise Failed(f"no result within {seconds:.0f} s")
            is_result, value = pipe.recv()
        except Failed:
            self._end()
            raise
        except (EOFError, OSError):
            self._process.join(_PATIENCE)
            code = self._process.exitcode
            self._end()
            raise Failed(f"its process ended (exit status {code})") from None
        if not is_result:
            self._end()
            raise Failed(value)
        return value

    def renew(self) -> None:
        """Do what comes next in a new process."""
        self._end(_PATIENCE)

    def _begin(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._pipe = here
        return here

    def _end(self, patience: float = 0.0) -> None:
        """End the process, at once or when it has had time to do so by itself; a context that it lost ends with it."""
        if self._pipe is None:
            return
        self._pipe.close()
        self._pipe = None
        self._process.join(patience)
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection) -> None:
    """Do what is asked until nobody asks any more."""
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, work(*arguments))
        except Exception as problem:  # the reason goes to who asked
            answer = (False, brief(problem))
        pipe.send(answer)
