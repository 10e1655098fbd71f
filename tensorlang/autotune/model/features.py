"""Features of candidates for the learned model: extents, footprints, registers; one row each.

Loops and arrays are described from the inside out and padded to fixed numbers, so that candidates of
different sketches, shapes and operators share one space of features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.estimate import Estimate, Machine
from tensorlang.autotune.model.nest import (
    LINE,
    PAGE,
    Access,
    Array,
    Footprint,
    Kind,
    Nest,
    footprint,
    register_tile,
    stack,
)

DEPTHS = 6
ACCESSES = 4
_KINDS = tuple(Kind)


def features(nest: Nest, guess: Estimate, machine: Machine) -> npt.NDArray[np.float32]:
    """Return one row of features per candidate; the estimate is one of them."""
    columns = [_log(guess.seconds), *(_log(term * 1e9) for term in guess.terms.values())]
    columns += _kernel_features(nest, machine)
    columns += _nest_features(nest, machine)
    return stack(columns)


def _log(values: Array) -> Array:
    return np.log2(np.maximum(values, 1e-30))


def _kernel_features(nest: Nest, machine: Machine) -> list[Array]:
    """Of the register tile: its size, what it needs of the register file, and its mix of operations."""
    tile = register_tile(nest, machine.lanes(nest.bits))
    one = np.ones(nest.count)
    trips = dict.fromkeys(_KINDS, one)
    for loop in nest.loops:
        trips[loop.kind] = trips[loop.kind] * loop.trips
    return [
        tile.accumulators,
        tile.registers,
        np.maximum(tile.registers - machine.vector_registers, 0),
        tile.loads / tile.fma,
        tile.gathers,
        tile.broadcast_rows,
        tile.kept * one,
        nest.local * one,
        _log(nest.packing_bytes + 1),
        _log(one * nest.operations),
        *(_log(trips[kind]) for kind in _KINDS),
    ]


def _nest_features(nest: Nest, machine: Machine) -> list[Array]:
    """Of the innermost depths: trips, and per array the footprint, its lines, pages, reuse and cache level."""
    tiles = nest.tiles()
    zero = np.zeros(nest.count)
    arrays = sorted(nest.accesses, key=lambda a: not a.write)[:ACCESSES]
    columns: list[Array] = []
    points = np.ones(nest.count)
    for back in range(1, DEPTHS + 1):
        depth = len(nest.loops) - back
        if depth < 0:
            columns += [zero] * (3 + 4 * ACCESSES)
            continue
        points = points * nest.loops[depth].trips
        marks = [footprint(a, tiles[depth], nest.count) for a in arrays]
        total = sum((m.lines for m in marks), zero) * LINE
        columns += [_log(nest.loops[depth].trips), _log(total), _cache_level(total, machine)]
        for access, mark in zip(arrays, marks, strict=True):
            columns += _access_features(access, mark, points)
        columns += [zero] * (4 * (ACCESSES - len(arrays)))
    columns += [_row_stride(a, nest) for a in arrays] + [zero] * (ACCESSES - len(arrays))
    return columns


def _access_features(access: Access, mark: Footprint, points: Array) -> list[Array]:
    return [
        _log(mark.elements * access.itemsize),
        _log(mark.lines),
        _log(mark.pages),
        _log(points / mark.elements),
    ]


def _cache_level(size: Array, machine: Machine) -> Array:
    """0 when a footprint fits the first level, 1 the second, ... by bytes."""
    return sum((np.asarray(size > cache, dtype=np.float64) for cache in machine.caches), np.zeros_like(size))


def _row_stride(access: Access, nest: Nest) -> Array:
    """Cache sets that a column of this array hits, as log2: few sets mean conflicts. Packed arrays use all."""
    if access.packed or len(access.shape) < 2:
        return np.full(nest.count, 6.0)
    lines = max(1, access.shape[-1] * access.itemsize // LINE)
    return np.full(nest.count, np.log2(PAGE // LINE / np.gcd(lines, PAGE // LINE)))
