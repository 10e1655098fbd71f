"""How configurations are measured, and what comes of it, in AutoTVM's words."""

from __future__ import annotations

import calendar
import time
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.errors import DefinitionError, shown
from tensorlang.target.spec import Target

FAILED = 1e9


@dataclass(frozen=True, slots=True)
class LocalBuilder:
    """Build in processes of this machine, each build within `timeout` seconds; `n_parallel` None: as CPUs allow."""

    timeout: float = 60.0
    n_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Run on this machine, one configuration at a time, each within `timeout` seconds.

    `enable_cpu_cache_flush`: empty the caches before every sample. Samples are taken until they agree, fewer of what
    cannot win: `number`, `repeat`, `min_repeat_ms` and `cooldown_interval` are accepted for AutoTVM's sake, and not
    needed.
    """

    timeout: float = 10.0
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False


def measure_option(
    builder: LocalBuilder | Literal["local"] = "local", runner: LocalRunner | Literal["local"] = "local"
) -> Limits:
    """The limits of builds and runs: `autotune.measure_option(builder=LocalBuilder(), runner=LocalRunner())`."""
    build = LocalBuilder() if builder == "local" else builder
    run = LocalRunner() if runner == "local" else runner
    if not isinstance(build, LocalBuilder):
        raise DefinitionError(f"builder is 'local' or a LocalBuilder, got {shown(builder)}")
    if not isinstance(run, LocalRunner):
        raise DefinitionError(f"runner is 'local' or a LocalRunner, got {shown(runner)}")
    flush = run.enable_cpu_cache_flush
    return Limits(build=build.timeout, run=run.timeout, builders=build.n_parallel or 0, flush=flush)


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


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """What was measured."""

    target: Target
    task: TemplateTask
    config: ConfigEntity


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """How it ended. `record` is what a log holds of it; None for a configuration that was refused before any build."""

    record: TuningRecord | None
    all_cost: float = 0.0
    refusal: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is a time that counts."""
        return self.record is not None and self.record.ok

    @property
    def costs(self) -> tuple[float, ...]:
        """Seconds of every repeat that counted; 1e9 when there is none."""
        return self.record.seconds if self.record is not None and self.record.ok else (FAILED,)

    @property
    def seconds(self) -> float:
        """The median of the repeats; 1e9 when there is none."""
        return self.record.median if self.record is not None and self.record.ok else FAILED

    @property
    def error_no(self) -> MeasureErrorNo:
        """AutoTVM's number of how it ended."""
        if self.record is None:
            return MeasureErrorNo.INSTANTIATION_ERROR
        return _NUMBERS.get(self.record.status, MeasureErrorNo.UNKNOWN_ERROR)

    @property
    def timestamp(self) -> float:
        """When it was measured, in seconds since 1970; 0 when it was not."""
        if self.record is None or not self.record.time:
            return 0.0
        return float(calendar.timegm(time.strptime(self.record.time, "%Y-%m-%dT%H:%M:%SZ")))
