"""How configurations are measured, and what comes of it, in AutoTVM's words."""

from __future__ import annotations

import calendar
import os
import time
from contextlib import AbstractContextManager
from dataclasses import field
from enum import IntEnum
from statistics import median
from typing import Literal

from tensorlang.autotune.cluster.address import SCHEME, parse_address, tls_of
from tensorlang.autotune.machines import LOCAL, NO_TLS, Machines, ThisMachine, TlsFiles, machines_of
from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class DaskRunner:
    """Build and run on the workers of a Dask cluster, in place of TVM's RPCRunner: `DaskRunner("dask://host:port")`.

    `address` may also be an open cluster (`autotune.machines_of`). A run ends after `timeout` seconds at the latest, a
    build after `build_timeout`; a worker makes `build_parallel` builds at a time (None: as its CPUs allow).
    `tls_ca_file`, `tls_cert` and `tls_key` are PEM files, for a scheduler on another machine. The others are as for
    LocalRunner.
    """

    address: str | Machines
    timeout: float = 10.0
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False
    build_timeout: float = 60.0
    build_parallel: int | None = None
    tls_ca_file: str | os.PathLike[str] | None = None
    tls_cert: str | os.PathLike[str] | None = None
    tls_key: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.address, str | Machines):
            raise DefinitionError(f"DaskRunner takes 'dask://host:port' or an open cluster, got {shown(self.address)}")
        if isinstance(self.address, str):
            parse_address(self.address)
        tls_of(*self.tls)

    @property
    def tls(self) -> TlsFiles:
        """The files for an encrypted connection."""
        ca_file, cert, key = (
            None if path is None else os.fspath(path) for path in (self.tls_ca_file, self.tls_cert, self.tls_key)
        )
        return ca_file, cert, key


Builder = LocalBuilder | Literal["local"] | None
Runner = LocalRunner | DaskRunner | Machines | str


@dataclass(frozen=True, slots=True)
class MeasureOption:
    """Limits of builds and runs, and whose they are: `local`, `dask://host:port`, or an open cluster."""

    limits: Limits = field(default_factory=Limits)
    runner: str | Machines = LOCAL
    tls: TlsFiles = NO_TLS

    def machines(self) -> AbstractContextManager[Machines]:
        """The machines, connected; those that were open already stay so."""
        return machines_of(self.runner, self.tls)


def measure_option(builder: Builder = None, runner: Runner = LOCAL) -> MeasureOption:
    """How to measure: `autotune.measure_option(builder=LocalBuilder(), runner=LocalRunner())`.

    `runner`: `local`, LocalRunner, `dask://host:port`, DaskRunner, or an open cluster. The workers of a cluster build
    what they run, so that a builder goes with a local runner alone.

        >>> from tensorlang import autotune
        >>> option = autotune.measure_option(runner=autotune.LocalRunner(number=1))
        >>> type(option).__name__
        'MeasureOption'
    """
    run = _meant(runner)
    if isinstance(run, DaskRunner):
        if builder is not None:
            raise DefinitionError(
                f"got builder={shown(builder)} beside a cluster, whose workers build what they run; leave the builder "
                "out, and give DaskRunner(address, build_timeout=..., build_parallel=...)"
            )
        return MeasureOption(_limits(run.build_timeout, run, run.build_parallel), run.address, run.tls)
    build = LocalBuilder() if builder in (None, LOCAL) else builder
    if not isinstance(build, LocalBuilder):
        raise DefinitionError(f"builder is 'local' or a LocalBuilder, got {shown(builder)}")
    return MeasureOption(_limits(build.timeout, run, build.n_parallel))


def _limits(build: float, run: LocalRunner | DaskRunner, builders: int | None) -> Limits:
    return Limits(build=build, run=run.timeout, builders=builders or 0, flush=run.enable_cpu_cache_flush)


def _meant(runner: Runner) -> LocalRunner | DaskRunner:
    """What a text or open machines stand for; DefinitionError for what is no runner."""
    if isinstance(runner, LocalRunner | DaskRunner):
        return runner
    if runner == LOCAL or isinstance(runner, ThisMachine):
        return LocalRunner()
    if isinstance(runner, Machines) or (isinstance(runner, str) and runner.startswith(SCHEME)):
        return DaskRunner(runner)
    raise DefinitionError(
        f"runner is 'local', a LocalRunner, 'dask://host:port', a DaskRunner or an open cluster, got {shown(runner)}"
    )


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
    """How it ended: seconds of every repeat that counted (1e9 for none), AutoTVM's number (MeasureErrorNo), when.

    `record` is what a log holds of it; None for one that was made by hand, or that was refused before any build.
    """

    costs: tuple[float, ...]
    error_no: int
    all_cost: float = 0.0
    timestamp: float = 0.0
    record: TuningRecord | None = None
    refusal: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is a time that counts."""
        return self.error_no == MeasureErrorNo.NO_ERROR if self.record is None else self.record.ok

    @property
    def seconds(self) -> float:
        """The median of the repeats; 1e9 when there is none."""
        return float(median(self.costs)) if self.ok and self.costs else FAILED


def measured(record: TuningRecord, all_cost: float = 0.0) -> MeasureResult:
    """The result that a record holds."""
    when = float(calendar.timegm(time.strptime(record.time, "%Y-%m-%dT%H:%M:%SZ"))) if record.time else 0.0
    number = _NUMBERS.get(record.status, MeasureErrorNo.UNKNOWN_ERROR)
    return MeasureResult(record.seconds if record.ok else (FAILED,), number, all_cost, when, record)


def refused(why: str) -> MeasureResult:
    """The result of a configuration that was refused before any build."""
    return MeasureResult((FAILED,), MeasureErrorNo.INSTANTIATION_ERROR, refusal=why)
