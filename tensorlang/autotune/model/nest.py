"""Whole populations of candidates as loop nests: one set of loops and accesses, arrays of extents.

Nothing here lowers or calls isl: a nest of n candidates is a few arrays of length n, and every quantity
(tile extents, footprints, trips) is one NumPy expression over all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

LINE = 64
PAGE = 4096


class Kind(Enum):
    """How a loop of a nest runs."""

    SERIAL = "serial"
    PARALLEL = "parallel"
    UNROLLED = "unrolled"
    VECTORIZED = "vectorized"


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop: the program axis it walks, and its trips in every candidate."""

    axis: str
    trips: Array
    kind: Kind = Kind.SERIAL


@dataclass(frozen=True, slots=True)
class Access:
    """One array as the nest touches it.

    `dims` gives each dimension's index as (axis, coefficient) terms; `packed`: laid out in the order of use,
    so that what a tile touches is contiguous.
    """

    buffer: str
    itemsize: int
    shape: tuple[int, ...]
    dims: tuple[tuple[tuple[str, int], ...], ...]
    write: bool = False
    packed: bool = False

    @property
    def axes(self) -> frozenset[str]:
        """The axes that move this access."""
        return frozenset(axis for terms in self.dims for axis, _ in terms)

    def stride_one(self, axis: str) -> bool:
        """True when neighbouring iterations of `axis` touch neighbouring elements."""
        outer = {a for terms in self.dims[:-1] for a, _ in terms}
        return bool(self.dims) and (axis, 1) in self.dims[-1] and axis not in outer


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops outermost first, arrays touched, and the program's axis extents.

    `operations` of one run; `bits` of an element of the arithmetic; `packing_bytes` copied before or between
    the loops; `reduce_axes` walk the terms of a reduction; `local` tells whether results gather in a register
    tile of their own.
    """

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    extents: dict[str, int]
    reduce_axes: frozenset[str]
    operations: float
    bits: int
    packing_bytes: Array
    local: bool

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(self.packing_bytes)

    @property
    def output(self) -> Access:
        """The array that is written."""
        return next(a for a in self.accesses if a.write)

    def tiles(self) -> list[dict[str, Array]]:
        """For every depth d, the extent of each axis inside loops d and deeper; depth 0 is the whole nest."""
        inner = {axis: np.ones(self.count) for axis in self.extents}
        found = [inner]
        for loop in reversed(self.loops):
            inner = {**inner, loop.axis: np.minimum(inner[loop.axis] * loop.trips, self.extents[loop.axis])}
            found.append(inner)
        return found[::-1]

    def trips_outside(self) -> list[Array]:
        """For every depth d, how often the part inside it is entered."""
        found = [np.ones(self.count)]
        for loop in self.loops:
            found.append(found[-1] * loop.trips)
        return found


@dataclass(frozen=True, slots=True)
class Footprint:
    """What an access touches inside a depth: elements, cache lines and pages, per candidate."""

    elements: Array
    lines: Array
    pages: Array


def rows_of(access: Access, tile: dict[str, Array], count: int) -> Array:
    """How many rows (values of all dimensions but the last) an access touches inside a tile."""
    return math.prod(_spans(access, tile, count)[:-1], start=np.ones(count))


def _spans(access: Access, tile: dict[str, Array], count: int) -> list[Array]:
    """How many values each dimension's index takes inside a tile."""
    spans = []
    for terms, size in zip(access.dims, access.shape, strict=True):
        span = np.ones(count)
        for axis, coefficient in terms:
            span = span + abs(coefficient) * (tile[axis] - 1)
        spans.append(np.minimum(span, size))
    return spans


def footprint(access: Access, tile: dict[str, Array], count: int) -> Footprint:
    """Exact for boxes with unit coefficients; for strided dimensions the bounding box."""
    spans = _spans(access, tile, count)
    if not spans:
        one = np.ones(count)
        return Footprint(one, one, one)
    elements = math.prod(spans, start=np.ones(count))
    size = elements * access.itemsize
    if access.packed:
        return Footprint(elements, np.ceil(size / LINE), np.ceil(size / PAGE))
    rows, width = elements / spans[-1], spans[-1] * access.itemsize
    whole = spans[-1] >= access.shape[-1]  # full rows lie one after the other
    lines = np.where(whole, np.ceil(size / LINE), rows * np.ceil(width / LINE))
    row_bytes = access.shape[-1] * access.itemsize
    per_page = max(1.0, PAGE / row_bytes)
    pages = np.where(whole, np.ceil(size / PAGE), np.ceil(rows / per_page) * np.ceil(width / PAGE))
    return Footprint(elements, lines, pages)


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The unrolled and vectorised loops at the bottom of a nest, in vector registers and loads.

    `accumulators` vectors of results; `loads` per innermost iteration; `fma` vector operations of it;
    `registers` alive; `broadcast_rows` distinct rows read element by element; `kept`: results stay in registers
    across the loop around the tile; `gathers` elements loaded one by one.
    """

    accumulators: Array
    loads: Array
    fma: Array
    registers: Array
    broadcast_rows: Array
    gathers: Array
    kept: bool


def register_tile(nest: Nest, lanes: int) -> RegisterTile:
    """Describe the register tile of a nest on vectors of `lanes` elements."""
    one = np.ones(nest.count)
    inner = [loop for loop in nest.loops if loop.kind in (Kind.UNROLLED, Kind.VECTORIZED)]
    vector = next((loop for loop in inner if loop.kind is Kind.VECTORIZED), None)
    wide = np.ceil(vector.trips / lanes) if vector else one
    fma = math.prod((loop.trips for loop in inner if loop is not vector), start=one) * wide

    def vectors(access: Access, reduced: bool = True) -> Array:
        unrolled = (u for u in inner if u is not vector and (reduced or u.axis not in nest.reduce_axes))
        return math.prod((u.trips for u in unrolled if u.axis in access.axes), start=one)

    loads, gathers, rows, widest = 0 * one, 0 * one, 0 * one, 0 * one
    for access in nest.accesses:
        if access.write:
            continue
        each = vectors(access)
        if vector is None or vector.axis not in access.axes:
            loads = loads + each
            rows = np.maximum(rows, 0 if access.packed else vectors(access, reduced=False))
        elif access.stride_one(vector.axis):
            loads, widest = loads + each * wide, np.maximum(widest, vectors(access, reduced=False) * wide)
        else:
            gathers = gathers + each * vector.trips
    accumulators = vectors(nest.output) * wide
    serial = [loop for loop in nest.loops if loop.kind in (Kind.SERIAL, Kind.PARALLEL)]
    kept = bool(serial) and serial[-1].axis in nest.reduce_axes
    if nest.reduce_axes and not kept:
        loads = loads + 2 * accumulators
    # The rows of a tile are updated one after the other: one broadcast is alive at a time.
    return RegisterTile(accumulators, loads, fma, accumulators + widest + 1, rows, gathers, kept)


def stack(columns: list[Any]) -> npt.NDArray[np.float32]:
    """Put feature columns beside each other, as XGBoost wants them: float32, row-major."""
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.float32)
