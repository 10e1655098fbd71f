"""Which device of this machine a target means: targets of records name it, and candidates are timed on it."""

from __future__ import annotations

from tensorlang.errors import MissingDependency, TargetError
from tensorlang.target.backend import TimedDevice, device_backend
from tensorlang.target.detect import runs_here
from tensorlang.target.spec import Target


def is_device(target: Target) -> bool:
    """Whether the target's kernels run in the memory of a device, not the CPU's."""
    return target.can.device


def named_device(target: Target) -> Target:
    """The target with its device named and that device's limits: what records say, and are looked up by.

    OpenCL targets name the device, CUDA targets its architecture. A target of the CPU, or of a device that is not here,
    stays as it is.
    """
    if not is_device(target):
        return target
    try:
        return device_backend(target).named(target)
    except (TargetError, MissingDependency):
        return target


def require_timed(target: Target) -> None:
    """Raise TargetError unless this machine can run and time kernels of a target; MissingDependency for a package."""
    if is_device(target):
        timed_device(target)
    elif not target.can.native or not runs_here(target):
        raise TargetError(f"target {target} cannot be timed on this machine; tune for 'llvm' (this machine)")


def timed_device(target: Target) -> TimedDevice:
    """The device of a target. TargetError when it is not here, MissingDependency for a missing package."""
    try:
        return device_backend(target).timed(target)
    except TargetError as error:
        text = f"target {target}: tuning measures on the device, which is not on this machine: {error}"
        raise TargetError(f"{text}; tune where it is, or for 'llvm' (this machine's CPU)") from None
