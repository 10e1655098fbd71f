"""The kernels of a population of nests: blocks, threads, memory of a block, and how many blocks run at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorlang.autotune.model.gpu_machine import GpuMachine
from tensorlang.autotune.model.nest import Loop, Nest
from tensorlang.dataclass import dataclass
from tensorlang.ir.thread_tags import is_thread
from tensorlang.schedules.accesses import Array

WORD = 4
SPARE_REGISTERS = 48
"""Of a thread, for addresses and loop variables: what compiled products of matrices take beside their tiles."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """One kernel in every candidate.

    `shared` bytes of a block; `registers` of a thread, at least; `resident`: blocks that a multiprocessor holds at a
    time; `busy`: the share of the device's multiprocessors that have work, over the whole run; `warps` are at work on
    each of them.
    """

    blocks: Array
    threads: Array
    shared: Array
    registers: Array
    resident: Array
    busy: Array
    warps: Array


def kernels(nests: Sequence[Nest], machine: GpuMachine) -> dict[str, Blocks]:
    """The kernels of a program by their host stages."""
    hosts: dict[str, list[Nest]] = {}
    for nest in nests:
        hosts.setdefault(nest.host, []).append(nest)
    return {host: _blocks(several, machine) for host, several in hosts.items()}


def trips(loops: Sequence[Loop], count: int) -> Array:
    """How often a body inside some loops runs."""
    return np.asarray(math.prod((loop.trips for loop in loops), start=np.ones(count)))


def _blocks(nests: Sequence[Nest], machine: GpuMachine) -> Blocks:
    limits, count = machine.limits, nests[0].count
    one = np.ones(count)
    blocks, threads, shared, held = one, one, 0 * one, 0 * one
    for nest in nests:
        blocks = np.maximum(blocks, trips([loop for loop in nest.loops if loop.is_block], count))
        own = [loop for loop in nest.loops if is_thread(loop.thread)]
        threads = np.maximum(threads, trips(own, count))
    for nest in nests:
        if nest.attached and nest.scope != "global":
            elements = _kept(nest) * nest.copies
            shared = shared + (elements * nest.output.itemsize if nest.scope == "shared" else 0)
            share = {"local": one, "warp": 1 / threads}.get(nest.scope, 0 * one)  # all lanes share what warps hold
            held = held + np.ceil(elements * share * nest.output.itemsize / WORD)
    registers = held + SPARE_REGISTERS
    warps = np.ceil(threads / limits.warp)
    resident = np.minimum(limits.threads_per_core / (warps * limits.warp), limits.blocks_per_core)
    resident = np.minimum(resident, limits.shared_per_core / np.maximum(shared, 1))
    resident = np.minimum(resident, limits.registers / (np.minimum(registers, 255) * warps * limits.warp))
    resident = np.maximum(np.floor(resident), 1)
    rounds = np.ceil(blocks / machine.cores)  # of the multiprocessor with most to do
    busy = blocks / (rounds * machine.cores)
    return Blocks(blocks, threads, shared, registers, resident, busy, warps * np.minimum(resident, rounds))


def _kept(nest: Nest) -> Array:
    """Elements of its array that a stage computes in one place, times the virtual threads that each have their own."""
    tile = nest.tiles()[nest.around]
    elements = np.ones(nest.count)
    for terms in nest.output.dims:
        for axis, _ in terms:
            elements = elements * tile[axis]
    return elements * trips([loop for loop in nest.loops[: nest.around] if loop.is_virtual], nest.count)
