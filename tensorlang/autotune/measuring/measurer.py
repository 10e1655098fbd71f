"""Measuring candidates: builders beside one pinned runner, every failure a status."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorlang import dtypes
from tensorlang.autotune.measuring.jobs import (
    BuildJob,
    CompareJob,
    Comparison,
    RunJob,
    build_candidate,
    compare_with_numpy,
)
from tensorlang.autotune.measuring.jobs import run_candidate as run_in_worker
from tensorlang.autotune.measuring.pool import (
    Reply,
    Worker,
    WorkerSettings,
    allowed_cpus,
    share_cpus,
    thread_environment,
    wait_any,
)
from tensorlang.autotune.measuring.seeded import reference_arrays
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import Task
from tensorlang.errors import TargetError, TensorlangError
from tensorlang.target import measure_peak
from tensorlang.target.detect import runs_here

PEAK_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds a build, a run and the final comparison may take; `builders` processes (0: as many as CPUs allow)."""

    build: float = 60.0
    run: float = 10.0
    compare: float = 120.0
    builders: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What measuring one candidate gave. `checked`: its outputs were compared with the reference."""

    status: Status
    seconds: tuple[float, ...] = ()
    error: str = ""
    checked: bool = False


@dataclass(slots=True)
class Measurer:
    """Owns the workers and the arrays of one task; use as a context manager."""

    task: Task
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    _folder: tempfile.TemporaryDirectory[str] = field(init=False)
    _builders: list[Worker] = field(init=False, default_factory=list)
    _runner: Worker = field(init=False)
    _exclusive: bool = field(init=False)
    _tensors: bytes = field(init=False)

    def __enter__(self) -> Measurer:
        require_native(self.task)
        self._tensors = pickle.dumps(self.task.tensors)
        self._folder = tempfile.TemporaryDirectory(prefix="tensorlang-tune-")
        runner_cpus, builder_cpus, self._exclusive = share_cpus(self.task.threads, allowed_cpus())
        extra = {"TENSORLANG_CACHE_DIR": str(Path(self._folder.name, "cache")), "TENSORLANG_CACHE": "1"}
        memory = _memory_limit()
        count = self.limits.builders or max(1, len(builder_cpus))
        try:
            self._runner = Worker(WorkerSettings(runner_cpus, memory, thread_environment(self.task.threads, extra)))
            for _ in range(count):
                self._builders.append(Worker(WorkerSettings(builder_cpus, memory, thread_environment(1, extra))))
            arrays = reference_arrays(self.task, self.seed, self._builders[0])
            Path(self.arrays_path).write_bytes(pickle.dumps(arrays))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def arrays_path(self) -> str:
        """The file of the seeded inputs and reference outputs."""
        return str(Path(self._folder.name, "arrays.pickle"))

    def close(self) -> None:
        """Kill the workers and remove the files."""
        for worker in self._builders:
            worker.close()
        if hasattr(self, "_runner"):
            self._runner.close()
        self._folder.cleanup()

    def measure(self, traces: Sequence[Any], best: Callable[[], float | None]) -> Iterator[tuple[int, Measurement]]:
        """Build and run candidates given as trace JSON; yield (position, measurement) as each is done.

        `best` is asked before each run for the time to beat. Builds go on beside runs where CPUs allow it.
        """
        waiting = deque(range(len(traces)))
        built: deque[tuple[int, bytes]] = deque()
        building: dict[int, int] = {}
        running: int | None = None
        while waiting or built or building or running is not None:
            for n, worker in enumerate(self._builders):
                if waiting and not worker.busy and not (self._exclusive and running is not None):
                    building[n] = waiting.popleft()
                    job = BuildJob(self._tensors, traces[building[n]], self.task.target)
                    worker.submit(self.limits.build, build_candidate, job)
            if built and running is None and not (self._exclusive and (building or waiting)):
                running, kernel = built.popleft()
                self._submit_run(kernel, best())
            wait_any([*self._builders, self._runner])
            for n in list(building):
                reply = self._builders[n].collect()
                if reply is not None:
                    position = building.pop(n)
                    if reply.status is Status.OK:
                        built.append((position, reply.value))
                    else:
                        yield position, _failed_build(reply)
            if running is not None and (reply := self._runner.collect()) is not None:
                done, running = running, None
                yield done, _ran(reply)

    def _submit_run(self, kernel: bytes, best: float | None) -> None:
        limit = self.limits.run if best is None else min(self.limits.run, 3 + 40 * best)
        self._runner.submit(limit, run_in_worker, RunJob(kernel, self.task.target, self.arrays_path, best))

    def compare(self, trace: Any) -> Comparison:
        """Time a candidate beside NumPy, interleaved in the runner; TensorlangError when it does not run."""
        name = self.task.workload.name
        job = CompareJob(BuildJob(self._tensors, trace, self.task.target), self.arrays_path, name)
        reply = self._runner.run(self.limits.compare, compare_with_numpy, job)
        if reply.status is not Status.OK:
            raise TensorlangError(f"the comparison with NumPy did not run: {reply.status}: {reply.error}")
        comparison: Comparison = reply.value
        return comparison

    def peak_gflops(self) -> float:
        """GFLOP/s of multiply-adds for the task's dtype and threads, measured where candidates run; 0 when it fails.

        One thread's peak times the threads counts too: a busy machine can hold some of them up. Dtypes of 64 bits
        have half of float32's peak; narrow floats compute in float32.
        """
        threads = self.task.threads
        together, alone = (self._runner.run(PEAK_LIMIT, measure_peak, n) for n in (threads, 1))
        if together.status is not Status.OK or alone.status is not Status.OK:
            return 0.0
        peak = max(float(together.value["gflops"]), threads * float(alone.value["gflops"]))
        return peak * 32 / max(32, dtypes.info(self.task.workload.dtype).bits)


def require_native(task: Task) -> None:
    """Raise TargetError unless this machine can run and time the task's target."""
    if task.target.kind != "llvm" or not runs_here(task.target):
        raise TargetError(f"target {task.target} cannot be timed on this machine; tune for 'llvm' (this machine)")


def _failed_build(reply: Reply) -> Measurement:
    status = Status.BUILD_ERROR if reply.status is Status.RUN_ERROR else reply.status
    return Measurement(status, error=reply.error)


def _ran(reply: Reply) -> Measurement:
    if reply.status is not Status.OK:
        return Measurement(reply.status, error=reply.error)
    result = reply.value
    return Measurement(result.status, result.timing.seconds, result.error, result.status is not Status.WRONG_ANSWER)


def _memory_limit() -> int:
    """Three quarters of this machine's memory in bytes; 0 (no limit) where it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    except (ValueError, OSError):
        return 0
