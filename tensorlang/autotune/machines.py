"""Where candidates run: on this machine (`local`), or on the workers of a cluster (`dask://host:port`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable

from tensorlang.autotune.cluster.address import SCHEME, tls_of
from tensorlang.autotune.devices import require_timed
from tensorlang.autotune.measuring.harness import Harness, Limits
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.task import Task
from tensorlang.errors import DefinitionError, shown
from tensorlang.target.spec import Target

LOCAL = "local"
TlsFiles = tuple[str | None, str | None, str | None]
NO_TLS: TlsFiles = (None, None, None)


@runtime_checkable
class Machines(Protocol):
    """Machines of one kind."""

    def target_of(self, text: str | Target | None) -> str | Target | None:
        """What a target's text means there: without one, or with `llvm` alone, it is these machines' own."""

    def fit(self, task: Task) -> Task:
        """The task for these machines; TargetError when they cannot run it."""

    def harness(self, task: Task, seed: int, limits: Limits) -> Harness:
        """A harness for a task that fits, to be used as a context manager."""


class ThisMachine:
    """The machine that this process runs on."""

    def target_of(self, text: str | Target | None) -> str | Target | None:
        """The text itself."""
        return text

    def fit(self, task: Task) -> Task:
        """The task itself."""
        require_timed(task.target)
        return task

    def harness(self, task: Task, seed: int, limits: Limits) -> Harness:
        """Worker processes of this machine."""
        return Measurer(task, seed, limits)


def machines_of(runner: str | Machines, tls: TlsFiles = NO_TLS) -> AbstractContextManager[Machines]:
    """What `runner` names; machines that are open already stay so. DefinitionError for what it cannot be.

    `tls`: files of the authority, our certificate and its key, to reach a scheduler on another machine.

        >>> from tensorlang import autotune
        >>> with autotune.machines_of("local") as machines:
        ...     pass
    """
    if isinstance(runner, Machines):
        return nullcontext(runner)
    if runner == LOCAL:
        return nullcontext(ThisMachine())
    if not isinstance(runner, str) or not runner.startswith(SCHEME):
        raise DefinitionError(f"runner is 'local', 'dask://host:port' or an open cluster, got {shown(runner)}")
    from tensorlang.autotune.cluster.machines import Cluster

    return Cluster(runner, tls_of(*tls))
