"""The contract between the build road and a target, and the way to a target's backend."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tensorlang.errors import InternalError
from tensorlang.ir.stmt import Kernel
from tensorlang.runtime.arguments import Signature
from tensorlang.runtime.executable import Executable
from tensorlang.target.kinds import KINDS, check_kind
from tensorlang.target.spec import GpuLimits, Target


@runtime_checkable
class DeviceBackend(Protocol):
    """A backend for devices that tell what they allow."""

    def limits(self, target: Target) -> GpuLimits:
        """What a block of threads may use, as the target's device tells; what is usual, where there is none."""


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
    found: Backend = importlib.import_module(KINDS[kind]).BACKEND
    if found.kind != kind:
        raise InternalError(f"the table of target kinds has {kind!r} for a backend of kind {found.kind!r}")
    return found


def with_limits(target: Target) -> Target:
    """The target with the limits of its device, if it is one of a kind that has any."""
    found = backend(target.kind)
    return replace(target, gpu=found.limits(target)) if isinstance(found, DeviceBackend) else target
