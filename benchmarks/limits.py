"""What the machine allows: the time that a workload takes at least, by arithmetic and by memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.workloads import Contested
from tensorlang.target import TargetSpec, measure_peak
from tensorlang.target.detect import target_cpu

NARROW = {"bfloat16": ("avx512bf16", 2.0), "int8": ("avx512vnni", 4.0)}
"""Operations per instruction, as a multiple of a multiply-add of float32, on CPUs that have the feature."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a contest runs."""

    target: TargetSpec
    threads: int

    def rates(self) -> dict[str, float]:
        """The FMA peak in GFLOP/s, and GB/s read from the second cache, from the last one, and from memory."""
        return measure_peak(self.threads)


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds at least, and what binds: `compute`, or the memory that holds the arrays of repeated calls."""

    seconds: float
    binds: str


def limit(workload: Contested, rates: Mapping[str, float], machine: Machine) -> Limit:
    """The larger of the two times. Caches are warm: arrays that fit in one are read from there."""
    feature, factor = NARROW.get(workload.dtype, ("", 1.0))
    if feature and feature not in target_cpu(machine.target).features:
        factor = 1.0
    compute = workload.operations / (rates["gflops"] * factor * 1e9)
    caches = machine.target.caches
    second, last = caches[min(1, len(caches) - 1)] * machine.threads, caches[-1]
    if workload.bytes <= second:
        level, rate = "L2", rates["l2_gbs"]
    elif workload.bytes <= last:
        level, rate = "last cache", rates["last_cache_gbs"]
    else:
        level, rate = "memory", rates["memory_gbs"]
    moved = workload.bytes / (rate * 1e9)
    return Limit(compute, "compute") if compute >= moved else Limit(moved, level)
