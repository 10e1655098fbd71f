"""What candidates do that go wrong. Worker processes import this file by its folder on their path.

A trace that is wrapped as {"fault": name, "trace": steps} goes wrong in that way, others are built and run as always.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tensorlang.autotune.measuring import jobs
from tensorlang.autotune.measuring.jobs import BuildJob, RunJob, RunResult
from tensorlang.target.backend import backend as real_backend


def _segfault(*arrays: Any) -> None:
    ctypes.string_at(0)


def _hang(*arrays: Any) -> None:
    while True:
        time.sleep(0.1)


def _allocate(*arrays: Any) -> None:
    np.ones(1 << 40)


def _spoil(*arrays: Any) -> None:
    arrays[-1][...] = 7


def _tell_and_hang(*arrays: Any) -> None:
    with open(os.environ["FAULTS_PID_FILE"], "w") as file:  # noqa: PTH123
        file.write(str(os.getpid()))
    _hang()


KERNELS: dict[str, Callable[..., None]] = {
    "segfault": _segfault,
    "hang": _hang,
    "allocate": _allocate,
    "spoil": _spoil,
    "killed": _tell_and_hang,
}


def build_candidate(job: BuildJob) -> bytes:
    """Build it, or die; what goes wrong later is remembered with the kernel."""
    fault = job.trace["fault"] if isinstance(job.trace, dict) else ""
    if fault == "builder dies":
        os.abort()
    if fault == "builder hangs":
        _hang()
    if fault == "builder allocates":
        _allocate()
    kernel = jobs.build_candidate(replace(job, trace=job.trace["trace"]) if fault else job)
    return pickle.dumps((fault, kernel))


class _Backend:
    """Loads as always, but the executable does something else."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def unpack(self, *args: Any) -> Callable[..., None]:
        return KERNELS[self._fault]


def run_candidate(job: RunJob) -> RunResult:
    """Run it through the real job, with an executable that goes wrong in place of the built one."""
    fault, kernel = pickle.loads(job.kernel)
    setattr(jobs, "backend", (lambda kind: _Backend(fault)) if fault else real_backend)  # noqa: B010 - in this process
    return jobs.run_candidate(replace(job, kernel=kernel))
