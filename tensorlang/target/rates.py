"""What a machine does at most, as measured: names of rates, what they cannot be, and the best of them kept on disk."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import pairwise
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.runtime import cache
from tensorlang.target.detect import cpu_model, host_cpu
from tensorlang.target.spec import Target

CLOCK = "clock"
"""Cycles: the rate of additions that wait for one another."""
MEMORY = "memory"
SLACK = 0.9
"""What should not be slower than something else may come out so by this much."""
ALL_CORES = 0.6
"""The share of its own speed that a core keeps at least when all compute: their clock may be lower then."""
MOST_A_CYCLE = 4.5
"""Vector operations: no core has more units than four of a kind."""
CLOCKS = (0.1, 8.0)
_FORMAT = "rates 1"
FMA = "fma float32"
_INSTRUCTIONS = {
    **dict.fromkeys(("float64", "int64", "uint64"), "fma float64"),
    **dict.fromkeys(("int8", "uint8"), "dot int8"),
    "bfloat16": "dot bfloat16",
}
"""The rates that count for kernels with arrays of a dtype; multiply-adds of float32 for others."""

Values = Mapping[str, float]
"""Rates by name, in 1e9 a second: of cycles (`clock`), of vector instructions of one kind (`fma float32x16`), and of
bytes that are read from a level (`L1`, `L2`, ..., `memory`)."""


def levels(target: Target) -> tuple[str, ...]:
    """The names of what is read: each cache, innermost first, and memory."""
    return (*(f"L{n}" for n in range(1, len(target.caches) + 1)), MEMORY)


def elements(name: str) -> int:
    """How many elements the vector of an instruction has, by the name of its rate."""
    return int(name.rpartition("x")[2])


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of `threads` threads together, and in words what is doubtful about them."""

    threads: int
    values: Values
    doubts: tuple[str, ...] = field(default=())

    @property
    def gflops(self) -> float:
        """Operations of float32 in multiply-adds, in 1e9 a second, with the vectors that give most."""
        return self._most((FMA,))

    def operations(self, kinds: Iterable[str]) -> float:
        """Operations in 1e9 a second, by the fastest instructions that arrays of some dtypes allow."""
        return self._most(tuple(_INSTRUCTIONS.get(kind, FMA) for kind in kinds)) or self.gflops

    def _most(self, instructions: tuple[str, ...]) -> float:
        """Operations in 1e9 a second with the best of some instructions; 0 where the CPU has none of them."""
        named = {name: rate for name, rate in self.values.items() if name.startswith(instructions)}
        return max((2 * elements(name) * rate for name, rate in named.items()), default=0.0)

    def summary(self) -> dict[str, float]:
        """`gflops`, and GB/s read from each level: `l1_gbs`, ..., `last_cache_gbs`, `memory_gbs`."""
        reads = {name: rate for name, rate in self.values.items() if name == MEMORY or re.fullmatch(r"L\d", name)}
        last = max(name for name in reads if name != MEMORY)
        return {
            "gflops": self.gflops,
            **{f"{name.lower()}_gbs": rate for name, rate in reads.items()},
            "last_cache_gbs": reads[last],
        }

    def a_cycle(self) -> dict[str, float]:
        """Instructions of each kind that a core begins in a cycle."""
        clock = self.values.get(CLOCK, 0.0)
        each = {name: rate for name, rate in self.values.items() if " " in name}
        return {name: rate / clock / self.threads for name, rate in each.items()} if clock else {}


def impossible(rates: Rates, target: Target, alone: Values | None = None, cores: int = 1) -> Iterator[str]:
    """In words, what no machine does: a near level slower than a far one, more in a cycle than there are units, ...

    `alone` are the rates of one thread, which several together do not fall behind: those of units go up with the
    `cores` that the threads have.
    """
    values = rates.values
    for near, far in pairwise(level for level in levels(target) if level in values):
        if values[near] < SLACK * values[far]:
            yield f"{near} came out slower than {far}: {values[near]:.0f} and {values[far]:.0f} GB/s"
    clock = values.get(CLOCK)
    if clock is not None and not CLOCKS[0] <= clock <= CLOCKS[1]:
        yield f"a clock of {clock:.2g} GHz is none"
    for name, count in rates.a_cycle().items():
        if count > MOST_A_CYCLE:
            yield f"{count:.1f} of {name} in a cycle are more than any core begins"
    for name, rate in values.items():
        share = max(SLACK, ALL_CORES * cores) if name.startswith("fma") else SLACK
        if alone is not None and rate < share * alone.get(name, 0.0):
            times = rate / alone[name]
            yield f"{rates.threads} threads on {cores} cores came out {times:.2g} times as fast as one, of {name}"
    for bits in (16, 32, 64):
        single, double = (values.get(f"fma {name}") for name in (f"float32x{bits // 4}", f"float64x{bits // 8}"))
        if single is not None and double is not None and single < SLACK * double:
            yield f"float32 came out slower than float64: {single:.3g} and {double:.3g} e9/s of {8 * bits} bits"


@dataclass(frozen=True, slots=True)
class Core:
    """What the estimate takes of one core, for vectors of the target's size.

    `clock`: cycles a second; `fma`, `loads`: vectors a cycle; `bandwidths`: bytes a second of caches and memory.
    """

    clock: float
    fma: float
    loads: float
    bandwidths: tuple[float, ...]


def usual_core(target: Target) -> Core:
    """A core of a target by its name alone: two vectors of its widest instructions a cycle."""
    clock = 4e9
    near = (2 * target.vector_bytes * clock, target.vector_bytes * clock)
    return Core(clock, 2.0, 2.0, (*near, 30 * clock, 10 * clock))


def core_of(rates: Rates | None, target: Target) -> Core | None:
    """The core of a target that the rates of one thread were measured of; None where they do not tell.

    Rounded, so that two measurements of one machine give the same: tuning with equal seeds proposes the same. Units are
    whole ones, and bytes a cycle are 16, 23, 32, 45, ..., since caches are made for powers of two.
    """
    if rates is None or rates.threads != 1:
        return None
    lanes, counts = target.lanes(32), rates.a_cycle()
    wanted = [f"fma float32x{lanes}", f"load float32x{lanes}"]
    if not {*wanted, *levels(target)} <= {*counts, *rates.values}:
        return None
    clock = round(rates.values[CLOCK], 1)
    fma, loads = (max(0.5, float(round(counts[name]))) for name in wanted)
    a_cycle = [2 ** (round(2 * math.log2(rates.values[level] / clock)) / 2) for level in levels(target)]
    return Core(1e9 * clock, fma, loads, tuple(1e9 * clock * count for count in a_cycle))


def recall(target: Target, threads: int) -> Values:
    """The best rates of this machine that are known from earlier measurements."""
    found = cache.find(_key(target, threads))
    try:
        data = json.loads(found) if found is not None else {}
    except ValueError:
        return {}
    return {str(name): float(rate) for name, rate in data.items() if _is_rate(rate)} if isinstance(data, dict) else {}


def keep(target: Target, threads: int, values: Values) -> None:
    """Keep rates of this machine for `recall`."""
    cache.keep(_key(target, threads), json.dumps(dict(values)).encode())


def _is_rate(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _key(target: Target, threads: int) -> tuple[str, ...]:
    """The machine: its name, CPU, cores and caches, and how many threads were measured."""
    cpu = host_cpu()
    machine = (platform.node(), cpu_model(), cpu.name, ",".join(sorted(cpu.features)), str(os.cpu_count()))
    return (_FORMAT, *machine, str(target), repr(target.caches), str(threads))
