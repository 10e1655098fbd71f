"""Candidates that break their device. Worker processes import this file by its folder on their path.

A trace that is wrapped as {"fault": name, "trace": steps} breaks it in that way, others are run as always.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tensorlang.autotune.measuring import jobs
from tensorlang.autotune.measuring.jobs import BuildJob, RunJob, RunResult
from tensorlang.errors import KernelError
from tensorlang.target.cuda import runtime

_ILLEGAL_ADDRESS = 700
STORE_NOWHERE = "*(__global volatile int*)(ulong)16 = 1;"


def build_candidate(job: BuildJob) -> bytes:
    """Build it; what goes wrong later is remembered with the kernel."""
    fault = job.trace["fault"] if isinstance(job.trace, dict) else ""
    kernel = jobs.build_candidate(replace(job, trace=job.trace["trace"]) if fault else job)
    return pickle.dumps((fault, _storing_nowhere(kernel) if fault == "kernel" else kernel))


def _storing_nowhere(packed: bytes) -> bytes:
    """The same kernels, whose threads write to where no memory is."""
    kernel, module = pickle.loads(packed)
    head, kernels, body = module.text.rpartition("__kernel")
    opening, brace, rest = body.partition("{")
    return pickle.dumps((kernel, replace(module, text=f"{head}{kernels}{opening}{brace}{STORE_NOWHERE}{rest}")))


def _lost(*arrays: Any) -> None:
    raise KernelError("main, or a kernel launched before it, stopped: an illegal instruction")


def run_candidate(job: RunJob) -> RunResult:
    """Run it through the real job; `context` is what a device says whose context is lost, from then on.

    `address`: what CUDA says of a kernel that touched memory which is not there, and of all that come after it.
    """
    fault, kernel = pickle.loads(job.kernel)
    if fault == "address":
        runtime.cupy().fail = _ILLEGAL_ADDRESS  # of the emulated device, as CUDA has it: for the rest of this process
    if fault == "context":
        setattr(jobs, "backend", lambda kind: _Lost())  # noqa: B010 - for the rest of this process
    return jobs.run_candidate(replace(job, kernel=kernel))


class _Lost:
    """A backend of a process in which nothing works any more."""

    def unpack(self, *args: Any) -> Callable[..., None]:
        return _lost
