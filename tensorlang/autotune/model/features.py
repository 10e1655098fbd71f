"""Features of candidates for the learned model: extents, footprints, registers; one row each.

Loops and arrays are described from the inside out and padded to fixed numbers, so that candidates of
different sketches, shapes and operators share one space of features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.estimate import TERMS, Estimate, Footprints, Machine
from tensorlang.autotune.model.nest import Kind, Nest, register_tile, stack
from tensorlang.schedules.accesses import LINE, PAGE, Access, Array, Footprint

DEPTHS = 6
ACCESSES = 4
STAGES = 3
_KINDS = tuple(Kind)


Columns = dict[str, Array]


def features(nests: Sequence[Nest], guess: Estimate, machine: Machine) -> npt.NDArray[np.float32]:
    """Return one row of features per candidate; the estimate is one of them. See `feature_names`."""
    return stack(list(_columns(nests, guess, machine).values()))


def _columns(nests: Sequence[Nest], guess: Estimate, machine: Machine) -> Columns:
    """The heaviest stage is described in full, the others by their estimates and the sums of their terms."""
    main = heaviest(nests)
    found = {"estimate": _log(guess.seconds)}
    found |= {f"term {name}": _log(term * 1e9) for name, term in guess.terms.items()}
    others = sorted((n for n in range(len(nests)) if n != main), key=lambda n: (-nests[n].operations, n))
    zero = np.zeros(nests[main].count)
    found |= {"share of other stages": 1 - guess.stages[main] / guess.seconds, "stages": zero + len(nests)}
    for place in range(STAGES):
        share = guess.stages[others[place]] / guess.seconds if place < len(others) else zero
        found[f"share of stage {place + 2}"] = share
    return found | _kernel_features(nests[main], machine) | _nest_features(nests[main], guess.footprints[main], machine)


def heaviest(nests: Sequence[Nest]) -> int:
    """The number of the nest with the most operations; the last of equals."""
    return max(range(len(nests)), key=lambda n: (nests[n].operations, n))


def _log(values: Array) -> Array:
    return np.log2(np.maximum(values, 1e-30))


def _kernel_features(nest: Nest, machine: Machine) -> Columns:
    """Of the register tile: its size, what it needs of the register file, and its mix of operations."""
    tile = register_tile(nest, machine.lanes(nest.bits))
    one = np.ones(nest.count)
    trips = dict.fromkeys(_KINDS, one)
    for loop in nest.loops:
        trips[loop.kind] = trips[loop.kind] * loop.trips
    return {
        "accumulators": tile.accumulators,
        "registers": tile.registers,
        "registers too many": np.maximum(tile.registers - machine.vector_registers, 0),
        "loads per operation": tile.loads / tile.fma,
        "gathers": tile.gathers,
        "broadcast rows": tile.broadcast_rows,
        "sums in registers": tile.kept * one,
        "local results": nest.local * one,
        "operations": _log(one * nest.operations),
        "repeats": _log(one * nest.repeats),
        **{f"{kind.value} trips": _log(trips[kind]) for kind in _KINDS},
    }


def _nest_features(nest: Nest, prints: Footprints, machine: Machine) -> Columns:
    """Of the innermost depths: trips, and per array the footprint, its lines, pages, reuse and cache level."""
    zero = np.zeros(nest.count)
    chosen = sorted(range(len(nest.accesses)), key=lambda n: not nest.accesses[n].write)[:ACCESSES]
    arrays = [nest.accesses[n] for n in chosen]
    names = [f"array {n}" for n in range(ACCESSES)]
    found: Columns = {}
    points = np.ones(nest.count)
    for back in range(1, DEPTHS + 1):
        depth = len(nest.loops) - back
        if depth < 0:
            found |= {f"depth {back} {what}": zero for what in ("trips", "bytes", "level")}
            found |= {f"depth {back} {name} {what}": zero for name in names for what in _OF_ACCESS}
            continue
        points = points * nest.loops[depth].trips
        marks = [prints[depth][n] for n in chosen]
        total = sum((m.lines for m in marks), zero) * LINE
        found[f"depth {back} trips"] = _log(nest.loops[depth].trips)
        found |= {f"depth {back} bytes": _log(total), f"depth {back} level": _cache_level(total, machine)}
        for n, name in enumerate(names):
            own = _access_features(arrays[n], marks[n], points) if n < len(arrays) else [zero] * len(_OF_ACCESS)
            found |= {f"depth {back} {name} {what}": column for what, column in zip(_OF_ACCESS, own, strict=True)}
    for n, name in enumerate(names):
        found[f"{name} sets"] = _row_stride(arrays[n], nest) if n < len(arrays) else zero
    return found


_OF_ACCESS = ("bytes", "lines", "pages", "reuse")


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
    lines = max(1, int(np.max(access.shape[-1], initial=0)) * access.itemsize // LINE)
    return np.full(nest.count, np.log2(PAGE // LINE / np.gcd(lines, PAGE // LINE)))


def feature_names() -> tuple[str, ...]:
    """What the columns of a row are, in order."""
    one = np.ones(1)
    nest = Nest((), (Access("Y", 4, (), (), write=True),), {}, frozenset(), 1.0, 32, 1, local=False)
    machine = Machine(1.0, (1.0,), (1,), 16, 16)
    guess = Estimate(one, dict.fromkeys(TERMS, one), (one,), ([[Footprint(one, one, one)]],))
    return tuple(_columns((nest,), guess, machine))
