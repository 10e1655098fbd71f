"""The analytical estimate of a candidate's time: a roofline over registers and cache levels.

It chooses the first candidates and is the prior that the learned model corrects. It need not order the
good ones (that is what measuring is for), only put them among the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from tensorlang.autotune.model.nest import LINE, PAGE, Array, Kind, Nest, footprint, register_tile, rows_of
from tensorlang.target.spec import Target

SPILL_COST = 1.5  # one register too many is a cliff: reloads stand in the chain of every accumulator
CHAINS = 8  # two pipes of four cycles: independent accumulators that keep them busy
CLOCK = 4e9
FILL = 0.75  # the share of a cache that a tile may take before its neighbours push it out
PACKING_RATE = 20e9
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

    `bandwidths` of L1, L2, L3 and memory; `caches` in bytes, innermost first.
    """

    flops: float
    bandwidths: tuple[float, ...]
    caches: tuple[int, ...]
    vector_bytes: int
    vector_registers: int

    @staticmethod
    def of(target: Target) -> Machine:
        """The machine of a target, with two FMA pipes: not measured, so that equal seeds propose the same."""
        cycle = CLOCK
        peak = cycle * 4 * target.lanes(32)
        bandwidths = (2 * target.vector_bytes * cycle, target.vector_bytes * cycle, 30 * cycle, 10 * cycle)
        return Machine(peak, bandwidths, target.caches, target.vector_bytes, target.vector_registers)

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one vector register."""
        return max(1, self.vector_bytes * 8 // bits)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of every candidate, and the terms that they are made of (by name, for `explain`)."""

    seconds: Array
    terms: dict[str, Array] = field(default_factory=dict)


def estimate(nest: Nest, machine: Machine, threads: int) -> Estimate:
    """Estimate the run time of every candidate of a nest in seconds."""
    arithmetic = _arithmetic(nest, machine)
    traffic = _traffic(nest, machine)
    calls = _tile_calls(nest) * CALL_SECONDS
    conflicts = _conflicts(nest)
    packing = nest.packing_bytes / PACKING_RATE
    speedup, regions = _parallel(nest, threads)
    serial = np.maximum(arithmetic, traffic) + 0.15 * np.minimum(arithmetic, traffic) + calls + conflicts
    seconds = serial / speedup + packing + regions * REGION_SECONDS
    terms = {"arithmetic": arithmetic, "traffic": traffic, "tile calls": calls, "conflicts": conflicts}
    terms |= {"packing": packing, "speedup": speedup}
    return Estimate(seconds, terms)


def _arithmetic(nest: Nest, machine: Machine) -> Array:
    """Time of the vector pipes: full rate, less what short chains, loads and spills cost."""
    lanes = machine.lanes(nest.bits)
    tile = register_tile(nest, lanes)
    vector = next((loop.trips for loop in nest.loops if loop.kind is Kind.VECTORIZED), np.ones(nest.count))
    peak = machine.flops * 32 / nest.bits
    filled = vector / (np.ceil(vector / lanes) * lanes)  # lanes that do useful work; a scalar uses one of them
    chains = np.minimum(tile.accumulators / CHAINS, 1) if nest.reduce_axes else np.ones(nest.count)
    per_load = np.minimum(tile.fma / np.maximum(tile.loads + 2 * tile.gathers, 1e-9), 1)
    excess = np.maximum(tile.registers - machine.vector_registers, 0)
    spills = 1 + np.where(excess > 0, SPILL_COST, 0) + 2 * excess / tile.accumulators
    padding = _padding(nest)
    full: Array = nest.operations / peak / filled
    return full / np.minimum(chains, per_load) * spills * padding


def _padding(nest: Nest) -> Array:
    """Iterations walked over iterations needed: what tiles that do not divide their axis cost."""
    walked: Array = math.prod((loop.trips for loop in nest.loops), start=np.ones(nest.count))
    return np.maximum(walked / math.prod(nest.extents.values()), 1) ** 0.5


def _traffic(nest: Nest, machine: Machine) -> Array:
    """Time of moving lines into each cache level from the next one.

    A level holds the part of the nest inside the first depth whose footprint fits. Neighbouring iterations of the
    loop just outside share what both touch, so each line of that loop's whole footprint moves once per entry.
    """
    tiles, outside = nest.tiles(), nest.trips_outside()
    prints = [[footprint(a, tile, nest.count) for a in nest.accesses] for tile in tiles]
    sizes = [sum((f.lines for f in level), np.zeros(nest.count)) * LINE for level in prints]
    seconds = np.zeros(nest.count)
    for cache, bandwidth in zip(machine.caches, machine.bandwidths[1:], strict=False):
        settled = np.zeros(nest.count, dtype=bool)
        for depth, size in enumerate(sizes):
            here = (size <= FILL * cache) & ~settled
            settled |= here
            around = max(depth - 1, 0)
            lines = sum(
                (mark.lines * (1 + a.write) for a, mark in zip(nest.accesses, prints[around], strict=True)),
                np.zeros(nest.count),
            )
            seconds = seconds + np.where(here, outside[around] * lines * LINE / bandwidth, 0)
    return seconds


def _conflicts(nest: Nest) -> Array:
    """Time lost to rows that fall into the same cache sets, and to pages beyond the first TLB, per tile call."""
    depth = next((n for n, loop in enumerate(nest.loops) if loop.axis in nest.reduce_axes), 0)
    tile, entries = nest.tiles()[depth], nest.trips_outside()[depth]
    lost = np.zeros(nest.count)
    for access in nest.accesses:
        if access.packed or access.write or len(access.shape) < 2:
            continue
        row_bytes = access.shape[-1] * access.itemsize
        rows = rows_of(access, tile, nest.count)
        sets = L1_SETS / math.gcd(max(1, row_bytes // LINE), L1_SETS)
        lost = lost + np.where(rows / sets > L1_WAYS, rows * CONFLICT_SECONDS, 0)
        pages = rows * min(1.0, row_bytes / PAGE)
        lost = lost + np.maximum(pages - TLB_PAGES, 0) * PAGE_SECONDS
    return lost * entries


def _tile_calls(nest: Nest) -> Array:
    """How often the loop around the register tile is entered."""
    serial = [n for n, loop in enumerate(nest.loops) if loop.kind in (Kind.SERIAL, Kind.PARALLEL)]
    return nest.trips_outside()[serial[-1]] if serial else np.ones(nest.count)


def _parallel(nest: Nest, threads: int) -> tuple[Array, Array]:
    """Speedup of the parallel loops on `threads` threads, and how many parallel regions are entered."""
    one = np.ones(nest.count)
    first = next((n for n, loop in enumerate(nest.loops) if loop.kind is Kind.PARALLEL), None)
    if first is None or threads == 1:
        return one, 0 * one
    shares = nest.loops[first].trips
    return shares / np.ceil(shares / threads), nest.trips_outside()[first]
