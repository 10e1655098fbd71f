"""Imported schedules, run on this machine against the reference."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from tensorlang.autotune.importers.importing import Imported, ImportedLine
from tensorlang.autotune.measuring.arrays import Arrays, difference
from tensorlang.autotune.measuring.jobs import BuildJob, build_candidate, build_job
from tensorlang.autotune.measuring.pool import Worker, WorkerSettings
from tensorlang.autotune.measuring.seeded import memory_limit, reference_arrays, require_room
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import TargetError
from tensorlang.target import parse
from tensorlang.target.backend import backend

LIMIT = 120.0  # seconds that building and running one schedule may take


class Ending(StrEnum):
    """What a run of an imported schedule showed."""

    EQUAL = "equal"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Verified:
    """A line after its run; its record says so (`checked`) where the outputs were equal."""

    imported: ImportedLine
    ending: Ending
    why: str = ""


def verify(imported: Imported, seed: int = 0) -> Iterator[Verified]:
    """Run every imported schedule here, in a process of its own, on seeded inputs, and compare with the reference.

    Times are those of the log and stay so. Schedules for a CPU run on this one, with the threads of their record;
    others are not run.
    """
    memory = memory_limit()
    worker = Worker(WorkerSettings(memory_bytes=memory))
    arrays: dict[object, Arrays] = {}
    try:
        for line in imported.lines:
            if not line.task.target.can.native:
                why = f"{line.task.target.kind} does not run here; it is proven legal"
                yield Verified(line, Ending.NOT_RUN, why)
                continue
            task = replace(line.task, target=replace(parse("llvm"), cores=line.task.threads))
            key = task.program.text, task.workload.arguments
            if key not in arrays:
                try:
                    require_room(task, memory)
                except TargetError as error:
                    yield Verified(line, Ending.NOT_RUN, str(error))
                    continue
                arrays = {key: reference_arrays(task, seed, worker)}
            yield _verified(line, task, arrays[key], worker)
    finally:
        worker.close()


def _verified(line: ImportedLine, task: Task, arrays: Arrays, worker: Worker) -> Verified:
    job = build_job(pickle.dumps(task.tensors), line.record.trace, task.target)
    reply = worker.run(LIMIT, run_against, job, arrays)
    if reply.status is not Status.OK:
        return Verified(line, Ending.FAILED, f"{reply.status}: {reply.error}")
    if reply.value:
        return Verified(line, Ending.FAILED, f"{Status.WRONG_ANSWER}: {reply.value}")
    return Verified(replace(line, record=replace(line.record, checked=True)), Ending.EQUAL)


def run_against(job: BuildJob, arrays: Arrays) -> str:
    """Build a schedule and run it; the worst wrong element as text, empty when it is right."""
    call = backend(job.target.kind).unpack(build_candidate(job), job.target)
    args, outputs = arrays.fresh()
    call(*args)
    return difference(arrays, outputs)
