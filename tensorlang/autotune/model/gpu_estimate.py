"""The analytical estimate of a candidate's time on a GPU: a roofline over arithmetic, shared and global memory.

A kernel takes as long as the most loaded of its parts, what it does in the others besides in small part, and what its
threads wait for between the steps of a tile. Everything follows from extents and footprints of the nests; nothing is
compiled. The terms are those of the usual roofline (Williams et al., CACM 2009) with the occupancy rules of the CUDA
programming guide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.estimate import Estimate
from tensorlang.autotune.model.gpu_blocks import WORD, Blocks, kernels, trips
from tensorlang.autotune.model.gpu_machine import GpuMachine
from tensorlang.autotune.model.nest import Kind, Loop, Nest
from tensorlang.ir.thread_tags import THREADS
from tensorlang.schedules.accesses import Access, Array, footprint

GPU_TERMS = ("arithmetic", "shared", "cache", "memory", "steps", "launches")
SECTOR = 32
"""Bytes that the caches move at least."""
LAUNCH_SECONDS = 3e-6
WAIT_CYCLES = 700.0
"""From asking global memory for a tile to having it."""
BARRIER_CYCLES = 40.0
BUSY_WARPS = 16.0
"""That hide the latency of arithmetic where each has one operation under way at a time."""
BUSY_LOADS = 24.0
OVERLAP = 0.2
MATRIX_SPEED = 12.0
"""Times the arithmetic of float32 that tensor cores reach with elements of 16 bits: half as much with tf32."""
GROUP_SPEED = 1.6
"""Times that of warps which groups of them reach on Hopper (topi.gpu.warp_tile has the same figure)."""
GROUP = 128
"""Threads of a warp group."""
WIDEST = 16
"""Bytes that a thread reads or writes at once."""


def gpu_estimate(nests: Sequence[Nest], machine: GpuMachine) -> Estimate:
    """Estimate the run time of every candidate in seconds: the sum over its kernels."""
    known = kernels(nests, machine)
    scopes = {nest.output.buffer: nest.scope for nest in nests if nest.attached}
    one = np.ones(nests[0].count)
    parts = {host: dict.fromkeys(GPU_TERMS, 0 * one) for host in known}
    shares = []
    touched = _touched(nests, scopes)
    for nest in nests:
        own = _of_stage(nest, known[nest.host], scopes, machine, touched[nest.host] > machine.l2_size)
        total = parts[nest.host]
        parts[nest.host] = {name: total[name] + own.get(name, 0 * one) for name in GPU_TERMS}
        shares.append(sum(own.values(), 1e-12 * one))
    for host in parts:
        parts[host]["launches"] = LAUNCH_SECONDS * one
    seconds = {host: _together(terms) for host, terms in parts.items()}
    weights = {host: sum((s for n, s in zip(nests, shares, strict=True) if n.host == host), 0 * one) for host in known}
    stages = tuple(seconds[n.host] * share / weights[n.host] for n, share in zip(nests, shares, strict=True))
    terms = {name: np.sum([part[name] for part in parts.values()], axis=0) for name in GPU_TERMS}
    return Estimate(np.sum(list(seconds.values()), axis=0), terms, stages, ())


def _together(terms: Mapping[str, Array]) -> Array:
    """The longest part, a share of the others, and what nothing hides."""
    overlapping = [terms[name] for name in ("arithmetic", "shared", "cache", "memory")]
    longest: Array = np.max(overlapping, axis=0)
    hidden: Array = np.sum(overlapping, axis=0) - longest
    return longest + OVERLAP * hidden + terms["steps"] + terms["launches"]


def _touched(nests: Sequence[Nest], scopes: Mapping[str, str]) -> dict[str, Array]:
    """Bytes of global arrays that each kernel touches."""
    found = {nest.host: np.zeros(nest.count) for nest in nests}
    for nest in nests:
        for access in nest.accesses:
            if scopes.get(access.buffer, "global") == "global":
                found[nest.host] = found[nest.host] + _whole(nest, access)
    return found


def _whole(nest: Nest, access: Access) -> Array:
    """Bytes that a stage touches of an array."""
    return np.asarray(footprint(access, nest.tiles()[0], nest.count).elements * access.itemsize)


def _of_stage(
    nest: Nest, blocks: Blocks, scopes: Mapping[str, str], machine: GpuMachine, spills: npt.NDArray[np.bool_]
) -> dict[str, Array]:
    """Seconds of the parts of one stage; `spills`: whether its kernel touches more than the L2 cache holds."""
    warp = machine.limits.warp
    walked = trips(nest.loops, nest.count)
    filled = blocks.threads / (np.ceil(blocks.threads / warp) * warp)
    independent = trips([p for p in nest.loops if p.kind in (Kind.UNROLLED, Kind.VECTORIZED)], nest.count)
    chains = np.minimum(1, blocks.warps * np.minimum(independent, 8) / BUSY_WARPS)
    speed = machine.flops * 32 / max(nest.bits, 32) * filled * blocks.busy
    points = math.prod((np.asarray(e, dtype=float) for e in nest.extents.values()), start=np.ones(nest.count))
    ran = np.maximum(walked / points, 1)  # layouts can hide loops from those who follow a trace
    on_warps = nest.scope == "warp"  # by matrix instructions, of all lanes together
    in_groups = on_warps and bool(nest.reduce_axes) and "shared" in {scopes.get(a.buffer) for a in nest.accesses}
    rate = _matrix_rate(nest, in_groups) if on_warps else chains
    found = {"arithmetic": nest.operations * ran / (speed * rate)}
    cache, memory, shared = (np.zeros(nest.count) for _ in range(3))
    for access in nest.accesses:
        match scopes.get(access.buffer, "global"):
            case "local" | "warp":
                continue
            case "shared" if in_groups:
                shared = shared + _read_by_groups(nest, access, blocks)
            case "shared" if on_warps:
                shared = shared + walked * access.itemsize
            case "shared":
                shared = shared + shared_bytes(nest, access, warp)
            case _:
                read = sectors(nest, access, warp) * SECTOR
                least = _whole(nest, access)
                missed = np.clip(_of_waves(nest, access, blocks, machine), least, np.maximum(read, least))
                cache, memory = cache + read, memory + np.where(spills, missed, least)
    waiting = np.minimum(1, blocks.warps * np.minimum(np.maximum(independent, 1), 4) / BUSY_LOADS)
    found["shared"] = shared / (machine.shared_bytes * machine.cores * machine.clock * blocks.busy)
    found["cache"] = cache / (machine.l2 * blocks.busy * waiting)
    found["memory"] = memory / (machine.memory * np.minimum(1, 2 * blocks.busy) * waiting)
    found["steps"] = _steps(nest, blocks, machine)
    return found


def _matrix_rate(nest: Nest, in_groups: bool) -> float:
    """The arithmetic of matrix instructions, in that of float32: by the bytes of their operands."""
    itemsize = max((access.itemsize for access in nest.accesses if not access.write), default=2)
    return MATRIX_SPEED * 2 / itemsize * (GROUP_SPEED if in_groups else 1)


def _read_by_groups(nest: Nest, access: Access, blocks: Blocks) -> Array:
    """Bytes of shared memory that warp groups read in their products: each its own rows, and all columns."""
    own = [n for n, loop in enumerate(nest.loops) if n >= nest.around and loop.axis not in nest.reduce_axes]
    depth = min(own, default=len(nest.loops))
    rows = {axis for axis, _ in nest.output.dims[-2]} if len(nest.output.dims) > 1 else set()
    times = 1 if rows & access.axes else blocks.threads / GROUP
    tile = footprint(access, nest.tiles()[depth], nest.count).elements
    return np.asarray(nest.trips_outside()[depth] * tile * access.itemsize * times)


def _of_waves(nest: Nest, access: Access, blocks: Blocks, machine: GpuMachine) -> Array:
    """Bytes of memory that blocks ask for, where L2 serves what those that run at the same time share, and no more.

    Blocks begin in the order of their numbers, along x first.
    """
    places = [n for n, loop in enumerate(nest.loops) if loop.is_block]
    tile = dict(nest.tiles()[max(places, default=-1) + 1])
    at_once = machine.cores * blocks.resident
    left = at_once
    for place in sorted(places, key=lambda n: (nest.loops[n].thread, -n)):
        loop = nest.loops[place]
        taken = np.minimum(loop.trips, left)
        left = np.maximum(left / taken, 1)
        if loop.axis in tile:
            tile[loop.axis] = np.minimum(tile[loop.axis] * taken, nest.extents[loop.axis])
    waves = np.maximum(blocks.blocks / at_once, 1)
    return np.asarray(waves * footprint(access, tile, nest.count).elements * access.itemsize)


def _steps(nest: Nest, blocks: Blocks, machine: GpuMachine) -> Array:
    """What a block waits between the steps of its tile, where no other block, and no copy ahead, hides it."""
    if nest.scope != "shared":
        return np.zeros(nest.count)
    steps = trips([loop for loop in nest.loops[: nest.around] if not loop.is_block], nest.count)
    rounds = np.ceil(blocks.blocks / (machine.cores * blocks.resident))
    wait = WAIT_CYCLES / np.maximum(nest.copies, 1) ** 2 / blocks.resident + BARRIER_CYCLES
    return np.asarray(steps * rounds * wait / machine.clock)


def _issued(nest: Nest, access: Access) -> Array:
    """How often all threads together touch an element: loops that are written out and do not move it use it again."""
    again = [p for p in nest.loops if p.kind in (Kind.UNROLLED, Kind.VECTORIZED) and p.axis not in access.axes]
    if access.write:  # a sum is written once, when it is complete
        again += [p for p in nest.loops if p.axis in nest.reduce_axes and p.kind is Kind.SERIAL]
    return trips(nest.loops, nest.count) / trips(again, nest.count)


def sectors(nest: Nest, access: Access, warp: int) -> Array:
    """Sectors that the requests of all warps move: few where neighbouring threads touch neighbouring elements."""
    touched = np.ones(nest.count)
    lanes_left = np.full(nest.count, float(warp))
    for tag in THREADS:
        for loop, step in _walked(nest, tag):
            lanes = np.minimum(loop.trips, lanes_left)
            if loop.axis in access.axes:
                span = access.stride(loop.axis) * step * access.itemsize
                dense = np.maximum(1.0, lanes * span / SECTOR) if access.stride(loop.axis) else lanes
                touched = touched * np.minimum(lanes, dense)
            lanes_left = np.maximum(lanes_left / np.maximum(lanes, 1), 1)
    lanes = warp / lanes_left
    vector = trips([p for p in nest.loops if p.kind is Kind.VECTORIZED and access.stride_one(p.axis)], nest.count)
    return np.asarray(_issued(nest, access) / lanes / vector * touched)


def shared_bytes(nest: Nest, access: Access, warp: int) -> Array:
    """Bytes of bandwidth that the requests of all warps to shared memory take.

    Threads of a warp that read one element get it at once; but a request takes the time of a word for each thread.
    Neighbouring elements that a thread reads in written-out code come in one request.
    """
    apart, lanes_left = np.ones(nest.count), np.full(nest.count, float(warp))
    for tag in THREADS:
        for loop, _ in _walked(nest, tag):
            lanes = np.minimum(loop.trips, lanes_left)
            apart = apart * (lanes if loop.axis in access.axes else 1)
            lanes_left = np.maximum(lanes_left / np.maximum(lanes, 1), 1)
    lanes = warp / lanes_left
    beside = [p for p in nest.loops if p.kind in (Kind.UNROLLED, Kind.VECTORIZED) and access.stride_one(p.axis)]
    vector = np.minimum(trips(beside, nest.count), WIDEST / access.itemsize)
    requests = _issued(nest, access) / lanes / vector
    return np.asarray(requests * np.maximum(apart * access.itemsize * vector, warp * WORD))


def _walked(nest: Nest, tag: str) -> list[tuple[Loop, Array]]:
    """The loops of a thread axis, with the elements of their axis from one iteration to the next."""
    found = []
    for place, loop in enumerate(nest.loops):
        if loop.thread == tag:
            inside = [p for p in nest.loops[place + 1 :] if p.axis == loop.axis]
            found.append((loop, trips(inside, nest.count)))
    return found[::-1]  # of a loop over several axes the innermost part first
