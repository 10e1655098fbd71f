"""Workers that build kernels beside this process. They get ready while a model is read: imports take a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import config
from tensorlang.runtime.histories import HISTORIES
from tensorlang.runtime.threads import cpu_quota, default_threads

if TYPE_CHECKING:
    from tensorlang.autotune.measuring.pool import Worker

_OWN_CORES = 2
"""This process lowers on one, while LLVM compiles on another."""
_WORTH = 4
"""Kernels for each worker, at least: to start one takes as long as to build some."""
_MOST = 8
STEPS_OF_A_KERNEL = 4
"""Nodes of a model, or stages of a program, for each kernel that is not like another one, as they mostly are."""
LIMIT = 600.0
"""Seconds that a worker may take for a kernel."""


def workers_for(jobs: int) -> int:
    """How many workers are worth it: none where records are in use that only this process has, or somebody looks on."""
    if HISTORIES.get() or config.get("dump") is not None or config.get("log"):
        return 0
    cores = int(min(default_threads(), cpu_quota()))
    return max(0, min(cores - _OWN_CORES, jobs // _WORTH, _MOST))


class Crew:
    """Workers that are to build kernels. They begin ahead, and get ready while a model is read; closed, they end."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    def begin(self, count: int) -> Crew:
        """Start so many workers, where there are none yet."""
        if count and not self.workers:
            from tensorlang.autotune.measuring.pool import Worker

            for _ in range(count):
                self.workers.append(Worker())
                self.workers[-1].submit(LIMIT, _ready)
        return self

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *raised: object) -> None:
        for worker in self.workers:
            worker.close()


def _ready() -> None:
    """Import what builds kernels, ahead of the first one."""
    import tensorlang.networks.building
    import tensorlang.schedules.default
    import tensorlang.target.llvm.compiling  # noqa: F401
