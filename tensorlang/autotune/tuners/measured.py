"""What was measured, and how it ended, in AutoTVM's and auto_scheduler's words."""

from __future__ import annotations

import calendar
import time
from enum import IntEnum
from statistics import median
from typing import Any

from tensorlang.autotune.dag import State
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.task import Task
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown
from tensorlang.location import caller
from tensorlang.schedule import Trace
from tensorlang.target.spec import Target

FAILED = 1e9


class MeasureErrorNo(IntEnum):
    """How a measurement ended, by AutoTVM's numbers."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


_NUMBERS = {
    Status.OK: MeasureErrorNo.NO_ERROR,
    Status.ILLEGAL: MeasureErrorNo.INSTANTIATION_ERROR,
    Status.BUILD_ERROR: MeasureErrorNo.COMPILE_HOST,
    Status.WRONG_ANSWER: MeasureErrorNo.WRONG_ANSWER,
    Status.CRASH: MeasureErrorNo.RUNTIME_DEVICE,
    Status.RUN_ERROR: MeasureErrorNo.RUNTIME_DEVICE,
    Status.TIMEOUT: MeasureErrorNo.RUN_TIMEOUT,
}


class MeasureInput:
    """What was measured: `MeasureInput(target, task, config)` of a template, or `MeasureInput(task, state)`.

    The task of a state is a SearchTask; there is no config then, and no state of a configuration.
    """

    __slots__ = ("config", "state", "target", "task")

    def __init__(self, target: Any, task: Any, config: ConfigEntity | None = None) -> None:
        is_state = isinstance(task, State)
        if not is_state and config is None:
            wanted = "a target, a task and a config, or a search task and a state"
            raise DefinitionError(f"MeasureInput takes {wanted}, got {shown(target)} and {shown(task)}", caller())
        self.target: Target = target.target if is_state else target
        self.task: Any = target if is_state else task
        self.config: Any = config
        self.state: State | None = task if is_state else None

    def __repr__(self) -> str:
        return f"MeasureInput({self.task!r}, {self.config if self.state is None else self.state!r})"

    @property
    def trace(self) -> Trace:
        """The steps of the schedule."""
        found: Trace = self.task.trace(self.config) if self.state is None else self.state.schedule.trace
        return found

    @property
    def program(self) -> Task:
        """What is measured of it: program, target and threads."""
        found: Task = self.task.task
        return found


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """How it ended: seconds of every repeat that counted (1e9 for none), AutoTVM's number (MeasureErrorNo), when.

    `record` is what a log holds of it; None for one that was made by hand, or that was refused before any build.
    """

    costs: tuple[float, ...]
    error_no: int
    all_cost: float = 0.0
    timestamp: float = 0.0
    record: TuningRecord | None = None
    refusal: str = ""
    error_msg: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is a time that counts."""
        return self.error_no == MeasureErrorNo.NO_ERROR if self.record is None else self.record.ok

    @property
    def seconds(self) -> float:
        """The median of the repeats; 1e9 when there is none."""
        return float(median(self.costs)) if self.ok and self.costs else FAILED


def status_of(error_no: int) -> Status:
    """The status that a number stands for; a crash for unknown ones."""
    found = {int(number): status for status, number in _NUMBERS.items()}
    return found.get(int(error_no), Status.TIMEOUT if error_no == MeasureErrorNo.BUILD_TIMEOUT else Status.CRASH)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """How a build ended: the file of the kernel, if there is one, its arguments, AutoTVM's number, and seconds."""

    filename: str = ""
    args: tuple[Any, ...] = ()
    error_no: int = 0
    error_msg: str = ""
    time_cost: float = 0.0


def measured(record: TuningRecord, all_cost: float = 0.0) -> MeasureResult:
    """The result that a record holds."""
    when = float(calendar.timegm(time.strptime(record.time, "%Y-%m-%dT%H:%M:%SZ"))) if record.time else 0.0
    number = _NUMBERS.get(record.status, MeasureErrorNo.UNKNOWN_ERROR)
    return MeasureResult(record.seconds if record.ok else (FAILED,), number, all_cost, when, record, "", record.error)


def refused(why: str) -> MeasureResult:
    """The result of a configuration that was refused before any build."""
    return MeasureResult((FAILED,), MeasureErrorNo.INSTANTIATION_ERROR, refusal=why)
