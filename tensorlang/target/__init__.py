"""Targets: machines to compile for. The backends that do it are found through `tensorlang.target.backend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.names import lookup
from tensorlang.target.detect import parse
from tensorlang.target.rates import Rates
from tensorlang.target.spec import GpuLimits
from tensorlang.target.spec import Target as TargetSpec

__all__ = ["GpuLimits", "Rates", "Target", "TargetSpec", "measure_peak", "measure_rates", "parse"]


class _ByText(type):
    """Makes a class whose objects are those that `parse` makes."""

    def __call__(cls, target: str | TargetSpec | None = None, host: str | TargetSpec | None = None) -> TargetSpec:
        if host is not None:
            parse(host)
        return parse(target)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, TargetSpec)


class Target(TargetSpec, metaclass=_ByText):
    """The target that a text names (`Target("llvm -mcpu=haswell")`; None: this machine); see `parse`.

    `host` is classic te's, and must name a CPU: kernels for one need no other host. `Target.current()` is the target of
    the innermost `with target:`, and all targets are instances of this class.
    """

    if TYPE_CHECKING:

        def __new__(cls, target: str | TargetSpec | None = None, host: str | TargetSpec | None = None) -> Target: ...


def measure_rates(threads: int = 1) -> Rates:
    """Measure this machine: cycles, vector instructions and reads a second, and in words what is doubtful about them.

    The best of many short samples, and of earlier measurements of this machine, counts; what cannot be is measured
    again. `rates.a_cycle()` tells how many instructions of each kind a core begins in a cycle.
    """
    from tensorlang.target.llvm.peak import measure

    return measure(threads)


def measure_peak(threads: int = 1) -> dict[str, float]:
    """Measure this machine: `gflops` (float32 fused multiply-add), reads in GB/s; see `measure_rates`.

    Those are `l1_gbs`, `l2_gbs`, ..., `last_cache_gbs` and `memory_gbs`.
    """
    return measure_rates(threads).summary()


def __getattr__(name: str) -> Any:
    return lookup(__name__, name)
