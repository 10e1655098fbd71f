"""Measuring candidates on this machine: builders beside one pinned runner, every failure a status."""

from __future__ import annotations

import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import Any

from tensorlang import config, dtypes
from tensorlang.autotune.devices import is_device, require_timed, timed_device
from tensorlang.autotune.measuring.arrays import Arrays
from tensorlang.autotune.measuring.harness import BATCH, Measured
from tensorlang.autotune.measuring.harness import Limits as Limits
from tensorlang.autotune.measuring.harness import Measurement as Measurement
from tensorlang.autotune.measuring.jobs import (
    CompareJob,
    Comparison,
    RunJob,
    RunResult,
    build_candidate,
    build_job,
    compare_with_numpy,
    run_candidate,
    undisturbed_rates,
)
from tensorlang.autotune.measuring.pool import (
    Reply,
    Shares,
    Worker,
    WorkerSettings,
    allowed_cpus,
    share_cpus,
    thread_environment,
    wait_any,
)
from tensorlang.autotune.measuring.seeded import memory_limit, reference_arrays, require_room
from tensorlang.autotune.measuring.supply import Supply
from tensorlang.autotune.phases import Phase, enter
from tensorlang.autotune.records.record import Json, Status
from tensorlang.autotune.task import Task, operator_of, options_of
from tensorlang.dataclass import dataclass
from tensorlang.errors import TensorlangError
from tensorlang.runtime.temporary import TemporaryFolder
from tensorlang.target.detect import host_cpu, target_cpu
from tensorlang.target.rates import Rates

PEAK_LIMIT = 30.0
URGENT_RUNS = 20
_ENDED = (Status.CRASH, Status.TIMEOUT)  # their process is another one already
_rates: dict[int, Rates] = {}
"""By threads. Measuring takes time, a process may tune many tasks, and equal estimates make equal proposals."""


@dataclass(slots=True)
class Measurer:
    """Owns the workers and the arrays of one task; a harness.

    Builders that share a CPU with the runner are paused while it runs, so that nothing disturbs it. After a run that
    needed real-time priority the next ones have it at once.
    """

    task: Task
    seed: int = 0
    limits: Limits = field(default_factory=Limits)
    _folder: TemporaryFolder = field(init=False)
    _builders: list[Worker] = field(init=False, default_factory=list)
    _runner: Worker = field(init=False)
    _shares: Shares = field(init=False)
    _tensors: bytes = field(init=False)
    _tolerance: tuple[float, float] = field(init=False)
    _urgent: int = field(init=False, default=0)
    _driver: str = field(init=False, default="")

    def __enter__(self) -> Measurer:
        require_timed(self.task.target)
        memory = self.limits.memory or memory_limit()
        require_room(self.task, memory)
        self._tensors = pickle.dumps(self.task.tensors)
        self._folder = TemporaryFolder("tune")
        self._shares = share_cpus(self.task.threads, allowed_cpus(), self.limits.builders)
        extra = {"TENSORLANG_CACHE": "0"}  # every candidate is built once, and travels as it is
        if is_device(self.task.target):
            self._shares = self._beside_device(self._shares)
            memory = 0  # drivers reserve more addresses than there is memory
            # What an OpenCL driver has built travels through this folder.
            extra = {"TENSORLANG_CACHE": "1", "TENSORLANG_CACHE_DIR": str(Path(self._folder.name, "cache"))}
        try:
            environment = thread_environment(self.task.threads, extra)
            self._runner = Worker(WorkerSettings(self._shares.runner, memory, environment))
            for n, cpus in enumerate(self._shares.builders):  # the first candidate waits for one of them alone
                settings = WorkerSettings(cpus, memory, thread_environment(1, extra))
                self._builders.append(Worker(settings, begun=n == 0))
            arrays = self._make_arrays()
            with Path(self.arrays_path).open("wb") as file:
                pickle.dump(arrays, file, pickle.HIGHEST_PROTOCOL)  # straight from the arrays, without a copy
        except BaseException:
            self.close()
            raise
        self._tolerance = (arrays.rtol, arrays.atol)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _beside_device(self, shares: Shares) -> Shares:
        """The CPUs of workers around a device: its driver has all of them; builders pause where it computes on them."""
        device = timed_device(self.task.target)
        self._driver = device.driver
        return Shares((), shares.builders, (device.on_cpu,) * len(shares.builders))

    def _make_arrays(self) -> Arrays:
        if not is_device(self.task.target):
            return reference_arrays(self.task, self.seed, self._builders[0])
        cpus = allowed_cpus()
        with Worker(WorkerSettings(cpus, 0, thread_environment(max(1, len(cpus)))), begun=False) as worker:
            return reference_arrays(self.task, self.seed, worker)

    @property
    def batch(self) -> int:
        """What keeps the builders of one machine busy."""
        return max(BATCH, 2 * len(self._builders))

    @property
    def arrays_path(self) -> str:
        """The file of the seeded inputs and reference outputs."""
        return str(Path(self._folder.name, "arrays.pickle"))

    def close(self) -> None:
        """Kill the workers and remove the files."""
        workers = [*self._builders, *([self._runner] if hasattr(self, "_runner") else [])]
        for worker in workers:  # all at once: an interrupt may end the waiting for any of them
            worker.kill()
        for worker in workers:
            worker.close()
        self._folder.cleanup()

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        """Build and run candidates given as trace JSON; yield (position, measurement) as each is done.

        `best` is asked before each run for the time to beat. Builds go on beside runs where CPUs allow it. `traces` is
        asked for more while builders work and nothing runs: what it computes then disturbs no run.
        """
        supply = Supply(traces)
        built: deque[tuple[int, bytes]] = deque()
        building: dict[int, int] = {}
        running: int | None = None
        workers = (*self._builders, self._runner)
        try:
            while time.monotonic() < deadline:
                self._submit_builds(supply, building, running is not None)
                if built and running is None:
                    running, kernel = built.popleft()
                    self._pause_builders()
                    self._submit_run(kernel, best())
                if running is None and supply.refill(len(self._builders)):
                    continue
                if running is None and not building:
                    for builder in self._builders:  # of the candidates that come next
                        builder.begin()
                    return
                wait_any(workers, deadline)
                for n in list(building):
                    if (reply := self._builders[n].collect()) is not None:
                        position = building.pop(n)
                        if reply.status is Status.OK:
                            built.append((position, reply.value))
                        else:
                            yield position, _failed_build(reply)
                            supply.reopen()
                if running is not None and (reply := self._runner.collect()) is not None:
                    done, running = running, None
                    self._resume_builders()
                    enter(Phase.BUILDING)
                    yield done, self._ran(reply)
                    supply.reopen()
        finally:  # also when the caller has enough before all is measured
            for worker in workers:
                worker.abandon()

    def _submit_builds(self, supply: Supply, building: dict[int, int], runs: bool) -> None:
        """Give every free builder a candidate, but for those that are paused while something runs."""
        for n, worker in enumerate(self._builders):
            if supply.waiting and not worker.busy and not (self._shares.polite[n] and runs):
                building[n], trace = supply.waiting.popleft()
                worker.submit(self.limits.build, build_candidate, build_job(self._tensors, trace, self.task.target))
                enter(Phase.TIMING if runs else Phase.BUILDING)

    def _pause_builders(self) -> None:
        for worker, polite in zip(self._builders, self._shares.polite, strict=True):
            if polite:
                worker.pause()

    def _resume_builders(self) -> None:
        for worker in self._builders:
            worker.resume()

    def _submit_run(self, kernel: bytes, best: float | None) -> None:
        enter(Phase.TIMING)
        limit = self.limits.run if best is None else min(self.limits.run, 3 + 40 * best)
        job = RunJob(kernel, self.task.target, self.arrays_path, best, self.limits.flush, self._urgent > 0)
        self._runner.submit(limit, run_candidate, job)

    def _ran(self, reply: Reply) -> Measurement:
        if reply.status is not Status.OK:
            if is_device(self.task.target) and reply.status not in _ENDED:
                self._runner.retire()  # a fault may have spoilt its context, and all that would run in it
            return Measurement(reply.status, error=reply.error)
        result: RunResult = reply.value
        self._urgent = max(0, self._urgent - 1)
        if result.priority and not self._urgent:
            self._urgent = URGENT_RUNS
        return self._measured(result)

    def _measured(self, result: RunResult) -> Measurement:
        right = result.status is not Status.WRONG_ANSWER
        return Measurement(result.status, result.timing.seconds, result.error, right, self._conditions(result))

    def _conditions(self, result: RunResult) -> Json:
        device = is_device(self.task.target)
        on_device: Json = {"driver": self._driver} if device else {}
        return on_device | {
            "flush": self.task.target.can.cold_timing if device else self.limits.flush,
            "rejected": result.timing.rejected,
            "spread": round(result.timing.spread, 4),
            "priority": result.priority,
            "cpus": list(self._shares.runner),
            "tolerance": list(self._tolerance),
        }

    def compare(self, trace: Any) -> Comparison:
        """Time a candidate beside NumPy, interleaved in the runner; TensorlangError when it does not run."""
        work = self.task.workload
        name = "" if operator_of(self.task) is None else work.name
        build = build_job(self._tensors, trace, self.task.target)
        job = CompareJob(build, self.arrays_path, name, tuple(options_of(work.args)))
        enter(Phase.TIMING)
        reply = self._runner.run(self.limits.compare, compare_with_numpy, job)
        if reply.status is not Status.OK:
            raise TensorlangError(f"the comparison with NumPy did not run: {reply.status}: {reply.error}")
        comparison: Comparison = reply.value
        return comparison

    def rates(self) -> Rates | None:
        """What one thread does where candidates run; None when that is not known, or the target names another CPU."""
        if is_device(self.task.target):
            return None
        return self._rates_of(1) if target_cpu(self.task.target).name == host_cpu().name else None

    def _rates_of(self, threads: int) -> Rates | None:
        if threads not in _rates:
            reply = self._runner.run(PEAK_LIMIT, undisturbed_rates, threads, config.get("cache"))
            if reply.status is not Status.OK:
                return None
            _rates[threads] = reply.value
        return _rates[threads]

    def peak_gflops(self) -> float:
        """GFLOP/s of multiply-adds for the task's dtype and threads, measured where candidates run; 0 when it fails.

        See `peak_of`. That of a device is not known.
        """
        if is_device(self.task.target):
            return 0.0
        threads = min(self.task.threads, len(self._shares.runner) or self.task.threads)
        alone, together = self._rates_of(1), self._rates_of(threads)
        if alone is None or together is None:
            return 0.0
        return peak_of([t.dtype for t in self.task.tensors], alone, together)


def peak_of(dtypes_of_arrays: Sequence[str], alone: Rates, together: Rates) -> float:
    """GFLOP/s of the best instructions for arrays of some dtypes, such as dot products of bytes and of bfloat16.

    One thread's peak times the threads counts too: a busy machine can hold some of them up. 0 where it is not known: of
    integers of 16 bits, and of bytes without dot products.
    """
    kinds = {kind for kind in dtypes_of_arrays if dtypes.info(kind).is_float or dtypes.info(kind).bits < 32}
    narrow = {kind for kind in kinds if dtypes.info(kind).is_integer}
    peak = alone.operations(kinds or set(dtypes_of_arrays))
    if narrow and (peak <= alone.gflops or not narrow <= {"int8", "uint8"}):
        return 0.0
    return peak * max(together.gflops / alone.gflops, together.threads)


def _failed_build(reply: Reply) -> Measurement:
    status = Status.BUILD_ERROR if reply.status is Status.RUN_ERROR else reply.status
    return Measurement(status, error=reply.error)
