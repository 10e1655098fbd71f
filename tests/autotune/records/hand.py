"""Records of real schedules, written by hand: legal, never measured."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorlang.autotune import LogWriter, Status, Task, TuningRecord, create_task
from tensorlang.schedule import create_schedule

TARGET = "llvm -mcpu=haswell"


def hand_record(sizes: tuple[int, int, int] = (24, 40, 16), seconds: float = 1e-3, **changes: Any) -> TuningRecord:
    """The record of a matmul, its rows split by 8."""
    return replace(record_of(create_task("matmul", sizes, TARGET, threads=1)), seconds=(seconds,), **changes)


def write_log(path: Path, *records: TuningRecord) -> Path:
    """Append records to a log; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with LogWriter(path) as writer:
        for record in records:
            writer.append(record)
    return path


def record_of(task: Task) -> TuningRecord:
    """The record of a task whose output has its first axis split by 8."""
    s = create_schedule([t.op for t in task.outputs])
    out = task.outputs[0]
    s[out].split(out.op.axis[0], factor=8)
    return TuningRecord(
        workload=task.workload,
        target=task.target.to_json(),
        threads=task.threads,
        sketch="hand",
        trace=s.trace.to_json(),
        trace_key=s.trace.key,
        decisions={},
        status=Status.OK,
        seconds=(1e-3,),
        checked=True,
        time="2026-01-01T00:00:00Z",
    )


class FullDisk:
    """The module `os` on a disk without room: to be put in the place of a module's own."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
