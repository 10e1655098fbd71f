"""A library in its process: it prepares a workload, shows its result, and is timed in turns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.operators import Array
from benchmarks.peers.libraries import Library
from benchmarks.peers.process import Peer, PeerError
from benchmarks.workloads import Contested

PREPARATION_LIMIT = 1800.0
"""Seconds that a library may take to build (tune) a workload."""
ANSWER_LIMIT = 300.0


@dataclass(frozen=True, slots=True)
class Absent:
    """Why a contestant takes no part: the library does not offer it, it failed, or its result is wrong."""

    reason: str
    failed: bool = False


class Contestant:
    """The process starts when it is first needed, and again after it ended."""

    def __init__(self, library: Library, interpreter: str, threads: int) -> None:
        self.library = library
        self._interpreter = interpreter
        self._threads = threads
        self._peer: Peer | None = None
        self.estimate = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The library's."""
        return self.library.name

    def close(self) -> None:
        """End the process."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def prepare(self, workload: Contested, folder: Path) -> float | Absent:
        """Build the workload whose inputs are in a folder: the seconds that it took, or why there is nothing to run."""
        try:
            answer = self._ask(
                PREPARATION_LIMIT,
                do="prepare",
                operator=workload.operator,
                folder=str(folder),
                constant=list(workload.constant),
                options=workload.all_options,
                threads=self._threads,
            )
        except PeerError as error:
            self.close()
            return Absent(str(error), failed=True)
        if "failed" in answer:
            return Absent(str(answer["failed"]), failed=True)
        return Absent(str(answer["absent"])) if "absent" in answer else float(answer["seconds"])

    def result(self, file: Path) -> Array:
        """What it computes; `estimate` is set to the seconds of a call."""
        self.estimate = float(self._ask(ANSWER_LIMIT, do="result", file=str(file))["seconds"])
        array: Array = np.load(file)
        file.unlink()
        return array

    def time(self, samples: int = 3) -> float:
        """Seconds of a call: the best of some samples in a row."""
        return float(min(self._ask(ANSWER_LIMIT, do="time", samples=samples)["seconds"]))

    def memory(self) -> int:
        """The most bytes of memory that its process has had."""
        return int(self._ask(ANSWER_LIMIT, do="memory")["bytes"])

    def _ask(self, limit: float, **request: Any) -> dict[str, Any]:
        if self._peer is None:
            command, settings = self.library.command(self._interpreter), self.library.settings(self._threads)
            self._peer = Peer(self.name, command, settings)
        answer: dict[str, Any] = json.loads(self._peer.ask(json.dumps(request), limit))
        return answer
