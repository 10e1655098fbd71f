"""Kernels built by several processes, where there are cores for them: here, and by the tuner's workers.

All take from one queue. What a worker cannot build (it died, the stage calls a Python function, something is wrong with
it) is built here, and raises here what it raises.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import field
from threading import Event, Semaphore
from warnings import catch_warnings, simplefilter

from tensorlang import config
from tensorlang.dataclass import dataclass
from tensorlang.driver import build_later, packed_whole, unpacked_whole
from tensorlang.networks.crew import LIMIT, Crew
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.pace import steady
from tensorlang.schedule.history import RecordSkipped
from tensorlang.target.spec import Target
from tensorlang.te.operation import Tensor
from tensorlang.te.program import producers_first
from tensorlang.topi.dispatch import schedule

_AHEAD = 2
"""Kernels that wait for LLVM in this process, or are in it, while workers might take the next one."""
_LOOK_EVERY = 0.2  # seconds


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A kernel that is to be built: the tensors that it is given, in order, and those that it computes.

    `calls`: it calls Python functions, which other processes do not have.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    target: Target
    calls: bool = False

    def begin(self) -> Callable[[], Executable]:
        """Schedule, prove and lower it; what is returned compiles it, in any thread."""
        s = schedule(list(dict.fromkeys(self.outputs)), self.target)
        return build_later(s, [*self.inputs, *self.outputs], self.target, "kernel")

    def message(self) -> bytes | None:
        """The job for another process, with the settings that hold here; None where it cannot go there."""
        if self.calls:
            return None
        try:
            return pickle.dumps((self, config.overrides()))
        except Exception:  # whatever there is that cannot be written down
            return None


def build_all(
    jobs: Sequence[Job],
    crew: Crew,
    told: Callable[[Job], object] = lambda job: None,
    here: bool = True,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Executable]:
    """Build kernels, `told` of each. Not `here`: workers build all that they can. Raises what `build` does.

    While LLVM compiles a kernel, in a thread beside, the next one is scheduled, proven and lowered. When all are, what
    is to be done `meanwhile` is.
    """
    queue, made = _Queue(deque(sorted(jobs, key=_stages))), dict[Job, Future[Executable]]()
    ahead = Semaphore(_AHEAD if crew.workers else len(jobs) + 1)  # what waits for LLVM here a worker might have taken
    with ThreadPoolExecutor(1, "tensorlang-compile") as llvm, ThreadPoolExecutor(1, "tensorlang-workers") as beside:

        def build(waiting: deque[Job]) -> None:
            while ahead.acquire() and (job := _next(waiting)) is not None:
                made[job] = llvm.submit(copy_context().run, job.begin())  # with the settings that hold here
                made[job].add_done_callback(lambda done: ahead.release())
                told(job)
            ahead.release()

        try:
            feeding = beside.submit(copy_context().run, _feed, queue, crew, told) if crew.workers else None
            if here or feeding is None:
                build(queue.waiting)
            meanwhile()
            if feeding is not None:
                feeding.result()
            build(queue.left)
            return [queue.built[job] if job in queue.built else made[job].result() for job in jobs]
        except BaseException:
            queue.over.set()
            llvm.shutdown(cancel_futures=True)
            raise


@dataclass(frozen=True, slots=True)
class _Queue:
    """Jobs that wait, those that workers left, and what these have built, until it is `over`."""

    waiting: deque[Job]
    left: deque[Job] = field(default_factory=deque)
    built: dict[Job, Executable] = field(default_factory=dict)
    over: Event = field(default_factory=Event)


def _stages(job: Job) -> int:
    """How many stages a kernel has: those of few stages are soon lowered, so that LLVM does not wait for the first."""
    return len(producers_first([t.op for t in job.outputs]))


def _next(jobs: deque[Job]) -> Job | None:
    try:
        return jobs.popleft()
    except IndexError:
        return None


def _feed(queue: _Queue, crew: Crew, told: Callable[[Job], object]) -> None:
    """Have workers build what waits, as long as there is something."""
    from tensorlang.autotune.measuring.pool import Worker, wait_any
    from tensorlang.autotune.records.record import Status

    running: dict[Worker, Job] = {}
    while not queue.over.is_set() and (queue.waiting or running):
        for worker in crew.workers:
            job = None if worker.busy else _next(queue.waiting)
            message = None if job is None else job.message()
            if message is not None and job is not None:
                worker.submit(LIMIT, _built, message)
                running[worker] = job
            elif job is not None:
                queue.left.append(job)
        wait_any(crew.workers, time.monotonic() + _LOOK_EVERY)
        for worker in crew.workers:
            reply, job = worker.collect(), running.get(worker)
            if reply is None or job is None:  # it runs, or has got ready
                continue
            del running[worker]
            if reply.status is Status.OK:
                queue.built[job] = unpacked_whole(reply.value)
                told(job)
            else:
                queue.left.append(job)


def _built(message: bytes) -> bytes:
    """What a worker is asked for. It raises what there is to tell, and whoever asked builds the kernel itself."""
    job, overrides = pickle.loads(message)
    with config.overriding(overrides), steady(), catch_warnings():
        simplefilter("error", RecordSkipped)
        return packed_whole(job.begin()())
