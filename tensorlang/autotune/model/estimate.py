"""The analytical estimate of a candidate's time: a roofline over registers and cache levels.

It chooses the first candidates and is the prior that the learned model corrects. It need not order the
good ones (that is what measuring is for), only put them among the first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorlang.autotune.model.nest import Kind, Nest, RegisterTile, footprints, register_tile
from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import LINE, PAGE, Array, Footprint, rows_of
from tensorlang.target.rates import Core, usual_core
from tensorlang.target.spec import Target

SPILL_COST = 1.5  # one register too many is a cliff: reloads stand in the chain of every accumulator
LATENCY = 4  # cycles of a multiply-add
WINDOW = 300  # operations that a processor has under way
FILL = 0.75  # the share of a cache that a tile may take before its neighbours push it out
CALL_SECONDS = 8e-9
REGION_SECONDS = 5e-6
L1_SETS = 64
L1_WAYS = 12
CONFLICT_SECONDS = 0.7e-9
TLB_PAGES = 96
PAGE_SECONDS = 0.5e-9


@dataclass(frozen=True, slots=True)
class Machine:
    """What the estimate knows of one core: operations a second in float32, bytes a second of each level.

    `bandwidths` of each cache and of memory; `caches` in bytes, innermost first. `fma`, `loads`: vectors a cycle.
    """

    flops: float
    bandwidths: tuple[float, ...]
    caches: tuple[int, ...]
    vector_bytes: int
    vector_registers: int
    fma: float = 2.0
    loads: float = 2.0

    @staticmethod
    def of(target: Target, core: Core | None = None) -> Machine:
        """The machine of a target: as its core was measured, or a usual one of its name, which has two of each unit."""
        core = core or usual_core(target)
        flops = core.clock * core.fma * 2 * target.lanes(32)
        return Machine(
            flops, core.bandwidths, target.caches, target.vector_bytes, target.vector_registers, core.fma, core.loads
        )

    @property
    def chains(self) -> float:
        """Independent accumulators that keep all units busy."""
        return LATENCY * self.fma

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return max(1, self.vector_bytes * 8 // bits)


Footprints = Sequence[Sequence[Footprint]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of every candidate, the terms that they are made of (by name, for `explain`), and those of each stage.

    `footprints` of every stage are kept for the features. A stage takes the longer of its arithmetic and its traffic,
    and a part of the other.
    """

    seconds: Array
    terms: dict[str, Array]
    stages: tuple[Array, ...]
    footprints: tuple[Footprints, ...]


TERMS = ("arithmetic", "traffic", "tile calls", "conflicts", "threads")


def estimate(nests: Sequence[Nest], machine: Machine, threads: int) -> Estimate:
    """Estimate the run time of every candidate of a program in seconds: the sum over its stages."""
    each = [_of_stage(nest, machine, threads) for nest in nests]
    terms = {name: np.sum([e.terms[name] for e in each], axis=0) for name in TERMS}
    seconds = tuple(e.seconds for e in each)
    return Estimate(np.sum(seconds, axis=0), terms, seconds, tuple(e.footprints[0] for e in each))


def _of_stage(nest: Nest, machine: Machine, threads: int) -> Estimate:
    prints = footprints(nest)
    arithmetic = _arithmetic(nest, machine)
    traffic = _traffic(nest, machine, prints)
    calls = _tile_calls(nest) * CALL_SECONDS
    conflicts = _conflicts(nest)
    speedup, regions = _parallel(nest, threads)
    serial = np.maximum(arithmetic, traffic) + 0.15 * np.minimum(arithmetic, traffic) + calls + conflicts
    seconds = serial / speedup + regions * REGION_SECONDS
    terms = (arithmetic / speedup, traffic / speedup, calls / speedup, conflicts / speedup, regions * REGION_SECONDS)
    return Estimate(seconds, dict(zip(TERMS, terms, strict=True)), (seconds,), (prints,))


def _arithmetic(nest: Nest, machine: Machine) -> Array:
    """Time of the vector pipes: full rate, less what short chains, loads and spills cost."""
    lanes = machine.lanes(nest.bits)
    tile = register_tile(nest, lanes)
    one = np.ones(nest.count)
    vector = next((loop.trips for loop in nest.loops if loop.kind is Kind.VECTORIZED), np.ones(nest.count))
    peak = machine.flops * 32 / nest.bits
    filled = vector / (np.ceil(vector / lanes) * lanes)  # lanes that do useful work; a scalar uses one of them
    under_way = tile.accumulators * _overlap(nest, tile, machine)
    chains = np.minimum(under_way / machine.chains, 1) if nest.reduce_axes else one
    # Vectors that are not aligned lie in two lines, and take the time of two loads.
    loads = (tile.loads + tile.unaligned + 2 * tile.gathers) * machine.fma / machine.loads
    per_load = np.minimum(tile.fma / np.maximum(loads, 1e-9), 1)
    excess = np.maximum(tile.registers - machine.vector_registers, 0)
    spills = 1 + np.where(excess > 0, SPILL_COST, 0) + 2 * excess / tile.accumulators
    padding = _padding(nest)
    full: Array = nest.operations * nest.repeats / peak / filled
    return full / np.minimum(chains, per_load) * spills * padding


def _overlap(nest: Nest, tile: RegisterTile, machine: Machine) -> Array:
    """How many tiles run at once: the processor looks ahead, and begins the next ones where sums are short."""
    summed = [loop.trips for loop in nest.outer if loop.axis in nest.reduce_axes]
    steps = math.prod(summed, start=np.ones(nest.count)) * (tile.fma + tile.loads)
    return np.clip(WINDOW / steps, 1, machine.chains)


def _padding(nest: Nest) -> Array:
    """Iterations walked over iterations needed: what tiles that do not divide their axis cost."""
    walked: Array = math.prod((loop.trips for loop in nest.loops), start=np.ones(nest.count))
    return np.asarray(np.maximum(walked / math.prod(nest.extents.values()), 1) ** 0.5)


def _traffic(nest: Nest, machine: Machine, prints: Footprints) -> Array:
    """Time of moving lines into each cache level from the next one; `prints` are the footprints of every depth.

    A level holds the part of the nest inside the first depth whose footprint fits. Neighbouring iterations of the
    loop just outside share what both touch, so each line of that loop's whole footprint moves once per entry. What
    fits as a whole is there already: kernels are timed again and again.
    """
    outside = nest.trips_outside()
    zero = np.zeros(nest.count)
    sizes = [
        sum((m.lines for a, m in zip(nest.accesses, level, strict=True) if not a.private), zero) * LINE
        for level in prints
    ]
    moved = [
        sum((m.lines * (1 + a.write) for a, m in zip(nest.accesses, level, strict=True) if not a.private), zero)
        for level in prints
    ]
    seconds = np.zeros(nest.count)
    for cache, bandwidth in zip(machine.caches, machine.bandwidths[1:], strict=False):
        settled = np.zeros(nest.count, dtype=bool)
        for depth, size in enumerate(sizes):
            here = (size <= FILL * cache) & ~settled
            if not here.any():
                continue
            settled |= here
            if depth:
                seconds = seconds + np.where(here, outside[depth - 1] * moved[depth - 1] * LINE / bandwidth, 0)
            if settled.all():
                break
    return seconds


def _conflicts(nest: Nest) -> Array:
    """Time lost to rows that fall into the same cache sets, and to pages beyond the first TLB, per tile call."""
    depth = next((n for n, loop in enumerate(nest.loops) if loop.axis in nest.reduce_axes), 0)
    tile, entries = nest.tiles()[depth], nest.trips_outside()[depth]
    lost = np.zeros(nest.count)
    for access in nest.accesses:
        if access.packed or access.write or access.private or len(access.shape) < 2:
            continue
        row_bytes = int(np.max(access.shape[-1], initial=0)) * access.itemsize
        rows = rows_of(access, tile, nest.count)
        sets = L1_SETS / math.gcd(max(1, row_bytes // LINE), L1_SETS)
        lost = lost + np.where(rows / sets > L1_WAYS, rows * CONFLICT_SECONDS, 0)
        pages = rows * min(1.0, row_bytes / PAGE)
        lost = lost + np.maximum(pages - TLB_PAGES, 0) * PAGE_SECONDS
    return lost * entries


def _tile_calls(nest: Nest) -> Array:
    """How often the loop of a sum around the register tile is entered; never where all terms are written out."""
    if not nest.outer or nest.outer[-1].axis not in nest.reduce_axes:
        return np.zeros(nest.count)
    last = max(n for n, loop in enumerate(nest.loops) if loop is nest.outer[-1])
    return nest.trips_outside()[last]


def _parallel(nest: Nest, threads: int) -> tuple[Array, Array]:
    """Speedup of the parallel loops on `threads` threads, and how many parallel regions the stage begins."""
    one = np.ones(nest.count)
    first = next((n for n, loop in enumerate(nest.loops) if loop.kind is Kind.PARALLEL), None)
    if first is None or threads == 1:
        return one, 0 * one
    shares = one
    for loop in nest.loops[first:]:
        if loop.kind is not Kind.PARALLEL:
            break
        shares = shares * loop.trips
    speedup = shares / np.ceil(shares / threads)
    return speedup, 0 * one if nest.attached else nest.trips_outside()[first]
