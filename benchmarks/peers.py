"""Peers: each in a process of its own, stopped while the others run.

NumPy's OpenBLAS picks its kernels by CPU; on some it picks slow ones, and `OPENBLAS_CORETYPE` chooses others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

CORETYPES = ("", "SKYLAKEX", "ZEN", "HASWELL")

_PROGRAM = """
import os, sys, time
import numpy as np
m, n, k = map(int, sys.argv[1:4])
rng = np.random.default_rng(0)
a, b, c = rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.empty((m, n), np.float32)
for line in sys.stdin:
    seconds = []
    for _ in range(int(line)):
        start = time.perf_counter()
        np.matmul(a, b, out=c)
        seconds.append(time.perf_counter() - start)
    print(min(seconds), flush=True)
"""


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
        self._process.kill()
        self._process.communicate()

    def run(self, calls: int) -> float:
        """Seconds of the best of some calls in a row; the process is stopped afterwards, idling threads and all."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        seconds = float(self._process.stdout.readline())
        self._process.send_signal(signal.SIGSTOP)
        return seconds


class NumpyPeer(Peer):
    """`np.matmul` with a kernel of OpenBLAS, on so many threads: `run()` gives the seconds of a call."""

    def __init__(self, shape: tuple[int, int, int], threads: int, coretype: str = "") -> None:
        name = f"NumPy, OPENBLAS_CORETYPE={coretype}" if coretype else "NumPy as installed"
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        environment.pop("OPENBLAS_CORETYPE", None)
        if coretype:
            environment["OPENBLAS_CORETYPE"] = coretype
        super().__init__(name, [sys.executable, "-c", _PROGRAM, *map(str, shape)], environment)
