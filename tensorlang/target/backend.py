"""The contract between the build road and a target, and the way to a target's backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from tensorlang.dataclass import dataclass
from tensorlang.errors import InternalError
from tensorlang.ir.stmt import Kernel
from tensorlang.nd import Device
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.executable import Executable
from tensorlang.runtime.facts import FactCheck
from tensorlang.target.kinds import KINDS, check_kind
from tensorlang.target.spec import GpuLimits, Target


@dataclass(frozen=True, slots=True)
class TimedDevice:
    """A device that candidates run on: its number for `tensorlang.nd`, its driver, and whether it shares the CPUs."""

    place: Device
    driver: str
    on_cpu: bool


@runtime_checkable
class DeviceBackend(Protocol):
    """A backend for devices that tell what they allow."""

    def limits(self, target: Target) -> GpuLimits:
        """What a block of threads may use, as the target's device tells; what is usual, where there is none."""

    def resolved(self, target: Target) -> Target:
        """The target with the architecture that code for it is made for; itself, where it has none."""

    def named(self, target: Target) -> Target:
        """The target with its device named, and that device's limits. TargetError when it is not here."""

    def timed(self, target: Target) -> TimedDevice:
        """The device of a target. TargetError when it is not here, MissingDependency for a missing package."""


@runtime_checkable
class RestoringBackend(Protocol):
    """A backend whose packed kernels become whole executables again."""

    def restore(self, packed: bytes, kernel: Kernel, target: Target, signature: Signature) -> Executable:
        """The executable of a packed kernel, with the sources that its loops give."""


@runtime_checkable
class BeginningBackend(Protocol):
    """A backend that writes a kernel first, and compiles it when it is told to."""

    def begin(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Callable[[], Executable]:
        """What compiles the kernel, in any thread, while another kernel is written. TargetError as `compile`."""


class Backend(Protocol):
    """Compiles kernels for one kind of target."""

    @property
    def kind(self) -> str:
        """The first word of the target text."""

    def compile(self, kernel: Kernel, target: Target, signature: Signature | None = None) -> Executable:
        """Return a callable for `kernel`; TargetError when the target cannot run it.

        `signature`: what the caller passes, if not the kernel's params in order: the same buffers in another
        order, and explicit sizes.
        """

    def pack(self, kernel: Kernel, target: Target) -> bytes:
        """All that another process of this machine needs to call `kernel`, compiled; TargetError as `compile`."""

    def unpack(self, packed: bytes, target: Target) -> Executable:
        """The callable of a packed kernel."""


def backend(kind: str) -> Backend:
    """Return the backend of a target kind; TargetError names the known ones."""
    check_kind(kind)
    found: Backend = importlib.import_module(KINDS[kind].backend).BACKEND
    if found.kind != kind:
        raise InternalError(f"the table of target kinds has {kind!r} for a backend of kind {found.kind!r}")
    return found


def begun(kernel: Kernel, target: Target, signature: Signature) -> Callable[[], Executable]:
    """What compiles a kernel, in any thread; where the backend cannot wait, it is compiled by then."""
    found = backend(target.kind)
    if isinstance(found, BeginningBackend):
        return found.begin(kernel, target, signature)
    made = found.compile(kernel, target, signature)
    return lambda: made


def pickled(
    kernel: Kernel,
    target: Target,
    signature: Signature,
    facts: tuple[FactCheck, ...],
    always: bool,
    returned: tuple[str, ...],
) -> tuple[Callable[..., Executable], tuple[Any, ...]]:
    """How an executable is pickled: its loops, and its object where the backend has one to give."""
    found = backend(target.kind)
    packed = found.pack(kernel, target) if isinstance(found, RestoringBackend) else None
    return _unpickled, (packed, kernel, target, signature, facts, always, returned)


def _unpickled(
    packed: bytes | None,
    kernel: Kernel,
    target: Target,
    signature: Signature,
    facts: tuple[FactCheck, ...],
    always: bool,
    returned: tuple[str, ...] = (),
) -> Executable:
    found = backend(target.kind)
    if packed is not None and isinstance(found, RestoringBackend):
        made = found.restore(packed, kernel, target, signature)
    else:
        made = found.compile(kernel, target, signature)
    return made.require(facts, always).returns(returned)


def with_limits(target: Target) -> Target:
    """The target with the limits of its device, if it is one of a kind that has any."""
    found = backend(target.kind)
    return replace(target, gpu=found.limits(target)) if isinstance(found, DeviceBackend) else target


def resolved(target: Target) -> Target:
    """The target with the architecture that code for it is made for, if it is one of a kind that has any.

    Without one in its text that is the architecture of the current device, else the usual one.
    """
    found = backend(target.kind) if target.can.device else None
    return found.resolved(target) if isinstance(found, DeviceBackend) else target


def device_backend(target: Target) -> DeviceBackend:
    """The backend of a target whose kernels run on a device."""
    found = backend(target.kind)
    if not isinstance(found, DeviceBackend):
        raise InternalError(f"the backend of {target} knows no devices")
    return found
