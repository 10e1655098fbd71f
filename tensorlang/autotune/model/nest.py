"""Whole populations of candidates as loop nests: one set of loops and accesses, arrays of extents.

Nothing here lowers or calls isl: a nest of n candidates is a few arrays of length n, and every quantity
(tile extents, footprints, trips) is one NumPy expression over all of them.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.ir.thread_tags import VIRTUAL, is_block, is_thread
from tensorlang.schedules.accesses import NEAR, Access, Array, Footprint, footprint, spans


class Kind(Enum):
    """How a loop of a nest runs."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: the program axis it walks, and its trips in every candidate; `thread` is the tag of a bound one."""

    axis: str
    trips: Array
    kind: Kind = Kind.SERIAL
    thread: str = ""

    @property
    def is_thread(self) -> bool:
        """Whether its iterations are threads of a block, or virtual threads of one."""
        return is_thread(self.thread) or self.is_virtual

    @property
    def is_virtual(self) -> bool:
        """Whether its iterations are virtual threads, which one thread runs."""
        return self.thread == VIRTUAL

    @property
    def is_block(self) -> bool:
        """Whether its iterations are blocks."""
        return is_block(self.thread)


@dataclass(frozen=True, slots=True)
class Nest:
    """One stage in all candidates: loops outermost first, arrays touched, and the extents of the stage's axes.

    `operations` of one run, each of which runs `repeats` times; `bits` of an element of the arithmetic; `reduce_axes`
    walk the terms of a reduction; `local` tells whether results gather in a register tile of their own. An `attached`
    stage runs inside loops of another, which are its first ones, `around` in number: those over an axis that is not
    among the `extents` repeat the stage. `scope` is the memory of its array, of which `copies` are kept at once; `host`
    is the stage of which it is a part, itself where it is computed on its own.
    """

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    extents: dict[str, Any]
    reduce_axes: frozenset[str]
    operations: float
    bits: int
    count: int
    local: bool
    attached: bool = False
    around: int = 0
    repeats: float | Array = 1.0
    scope: str = "global"
    copies: float | Array = 1.0
    host: str = ""

    @property
    def output(self) -> Access:
        """The array that is written."""
        return next(a for a in self.accesses if a.write)

    @property
    def inner(self) -> tuple[Loop, ...]:
        """The unrolled and vectorised loops at the bottom: the register tile. Serial ones inside vectors count too."""
        vector = next((n for n, loop in enumerate(self.loops) if loop.kind is Kind.VECTORIZED), len(self.loops))
        serial = [n for n, loop in enumerate(self.loops[:vector]) if loop.kind in (Kind.SERIAL, Kind.PARALLEL)]
        return self.loops[max(self.around, serial[-1] + 1 if serial else 0) :]

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops around the register tile that run one iteration after the other."""
        around = self.loops[: len(self.loops) - len(self.inner)]
        return tuple(loop for loop in around if loop.kind in (Kind.SERIAL, Kind.PARALLEL))

    def tiles(self) -> list[dict[str, Array]]:
        """For every depth d, the extent of each axis inside loops d and deeper; depth 0 is the whole nest."""
        inner = {axis: np.ones(self.count) for axis in self.extents}
        found = [inner]
        for loop in reversed(self.loops):
            if loop.axis in inner:
                inner = {**inner, loop.axis: np.minimum(inner[loop.axis] * loop.trips, self.extents[loop.axis])}
            found.append(inner)
        return found[::-1]

    def trips_outside(self) -> list[Array]:
        """For every depth d, how often the part inside it is entered."""
        found = [np.ones(self.count)]
        for loop in self.loops:
            found.append(found[-1] * loop.trips)
        return found


def footprints(nest: Nest) -> list[list[Footprint]]:
    """The footprint of every access inside every depth, the whole nest first."""
    tiles = nest.tiles()
    found = [[footprint(access, tiles[-1], nest.count) for access in nest.accesses]]
    for loop, tile in zip(reversed(nest.loops), reversed(tiles[:-1]), strict=True):
        inside = found[-1]  # a loop that does not move an access leaves its footprint as it is
        found.append(
            [
                footprint(access, tile, nest.count) if loop.axis in access.axes else mark
                for access, mark in zip(nest.accesses, inside, strict=True)
            ]
        )
    return found[::-1]


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The unrolled and vectorised loops at the bottom of a nest, in vector registers and loads.

    `accumulators` vectors of results; `loads` per innermost iteration, `unaligned` ones in whole vectors among them;
    `fma` vector operations of it;
    `registers` alive; `broadcast_rows` distinct rows read element by element; `kept`: results stay in registers
    across the loop around the tile; `gathers` elements loaded one by one.
    """

    accumulators: Array
    loads: Array
    unaligned: Array
    fma: Array
    registers: Array
    broadcast_rows: Array
    gathers: Array
    kept: bool


def register_tile(nest: Nest, lanes: int) -> RegisterTile:
    """Describe the register tile of a nest on vectors of `lanes` elements."""
    one = np.ones(nest.count)
    inner = nest.inner
    vector = next((loop for loop in inner if loop.kind is Kind.VECTORIZED), None)
    wide = np.ceil(vector.trips / lanes) if vector else one
    unrolled = [loop for loop in inner if loop is not vector]
    fma = math.prod((loop.trips for loop in unrolled), start=one) * wide
    whole, spatial = dict.fromkeys(nest.extents, one), dict.fromkeys(nest.extents, one)
    for loop in unrolled:
        if loop.axis in whole:
            whole[loop.axis] = whole[loop.axis] * loop.trips
            if loop.axis not in nest.reduce_axes:
                spatial[loop.axis] = spatial[loop.axis] * loop.trips

    loads, unaligned, gathers, rows, widest = 0 * one, 0 * one, 0 * one, 0 * one, 0 * one
    for access in nest.accesses:
        if access.write:
            continue
        each = math.prod(spans(access, whole, nest.count), start=one)
        if vector is None or vector.axis not in access.axes:
            loads = loads + each
            if not access.packed:
                rows = np.maximum(rows, math.prod(spans(access, spatial, nest.count), start=one))
        elif access.packed or access.stride(vector.axis) in (1, NEAR):
            vectors = each * wide * (1 if access.packed else access.stride(vector.axis))
            own = math.prod(spans(access, spatial, nest.count), start=one)
            loads, widest = loads + vectors, np.maximum(widest, own * wide)
            if not (access.packed or access.private):
                unaligned = unaligned + vectors
        else:
            gathers = gathers + each * vector.trips
    accumulators = math.prod(spans(nest.output, spatial, nest.count), start=one) * wide
    summed = [loop.axis in nest.reduce_axes for loop in nest.outer]
    kept = (nest.local and not any(summed)) or (bool(summed) and summed[-1])
    if nest.reduce_axes and not kept:
        loads = loads + 2 * accumulators
    # The rows of a tile are updated one after the other: one broadcast is alive at a time.
    return RegisterTile(accumulators, loads, unaligned, fma, accumulators + widest + 1, rows, gathers, kept)


def stack(columns: list[Any]) -> npt.NDArray[np.float32]:
    """Put feature columns beside each other, as XGBoost wants them: float32, row-major."""
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float32)
