"""How configurations are measured, and what comes of it, in AutoTVM's words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Any

from tensorlang.autotune.cluster.address import SCHEME, parse_address, tls_of
from tensorlang.autotune.machines import LOCAL, NO_TLS, Machines, ThisMachine, TlsFiles, machines_of
from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.tuners.measured import BuildResult as BuildResult
from tensorlang.autotune.tuners.measured import MeasureErrorNo as MeasureErrorNo
from tensorlang.autotune.tuners.measured import MeasureInput as MeasureInput
from tensorlang.autotune.tuners.measured import MeasureResult as MeasureResult
from tensorlang.autotune.tuners.measured import measured as measured
from tensorlang.autotune.tuners.measured import refused as refused
from tensorlang.autotune.tuners.own import OwnMachines, built, run_here
from tensorlang.dataclass import dataclass
from tensorlang.errors import DefinitionError, shown


@dataclass(frozen=True, slots=True)
class LocalBuilder:
    """Build in processes of this machine, each build within `timeout` seconds; `n_parallel` None: as CPUs allow.

    A class of one's own, derived from it or not, defines `build(measure_inputs)`, which returns BuildResults.
    """

    timeout: float = 60.0
    n_parallel: int | None = None

    def build(self, measure_inputs: Sequence[MeasureInput], verbose: int = 1) -> list[BuildResult]:
        """Lower schedules, each for itself; machine code is made by the processes that run them."""
        del verbose
        return [built(one) for one in measure_inputs]


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Run on this machine, one configuration at a time, each within `timeout` seconds.

    `enable_cpu_cache_flush`: empty the caches before every sample. Samples are taken until they agree, fewer of what
    cannot win: `number`, `repeat`, `min_repeat_ms` and `cooldown_interval` are accepted for AutoTVM's sake, and not
    needed. A class of one's own, derived from it or not, defines `run(measure_inputs, build_results)`, which returns
    MeasureResults.
    """

    timeout: float = 10.0
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.1
    enable_cpu_cache_flush: bool = False

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult], verbose: int = 1
    ) -> list[MeasureResult]:
        """Run schedules in processes of this machine, and compare what they make with the reference."""
        del verbose
        return run_here(measure_inputs, build_results, _limits(60.0, self, None))


class LocalRPCMeasureContext:
    """A LocalRunner, in the words of auto_scheduler's programs for GPUs: `LocalRPCMeasureContext(timeout=5).runner`.

    Every runner measures in processes of their own here; `priority`, `n_parallel` and `device` are accepted for
    auto_scheduler's sake.
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10.0,
        number: int = 3,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int = 0,
    ) -> None:
        del priority, n_parallel, device
        self.runner = LocalRunner(timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush)


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


Builder = Any
"""`local`, a LocalBuilder, or one of one's own; None is the first."""
Runner = Any
"""`local`, a LocalRunner, `dask://host:port`, a DaskRunner, an open cluster, or a runner of one's own."""


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
    if (own := _own(builder, runner)) is not None:
        return MeasureOption(runner=own)
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


def _own(builder: Builder, runner: Runner) -> OwnMachines | None:
    """The machines of a builder or a runner of one's own; None where both are ours."""
    own_builder = builder not in (None, LOCAL) and type(builder) is not LocalBuilder and hasattr(builder, "build")
    own_runner = type(runner) is not LocalRunner and callable(getattr(runner, "run", None))
    if not (own_builder or own_runner):
        return None
    return OwnMachines(builder if own_builder else LocalBuilder(), runner if own_runner else _meant(runner))


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
