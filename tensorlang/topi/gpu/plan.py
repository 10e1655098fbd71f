"""Tiles of a block of threads: how many elements along an axis, and how warps, lanes and registers share them.

Along an axis, element `((warp * quads + quad) * lanes + lane) * width + w` of a tile belongs to one lane of one warp.
A lane holds `quads` runs of `width` neighbours: each run is one wide access to shared memory, and neighbouring lanes
read neighbouring runs, so that no two of them meet on a bank (the layout of CUTLASS's SIMT products).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from tensorlang.target.spec import Target

MANY = 4096
"""Stands for an extent that is not known."""
CORES = 108
"""Multiprocessors that should all have a block; as many as an A100 has. A few more or less change little."""
_ACCESS = 16
"""Bytes of the widest access to memory of one thread."""
READ_COST = 1.5
"""What reading an element of a fragment costs, in multiply-adds of a thread."""
FETCH_COST = 16.0
"""What bringing an element to shared memory costs, in multiply-adds of a thread."""
_ASYNCHRONOUS = 80
"""The architecture (sm_80) from which copies to shared memory run by themselves."""
LEAST_COPY = 32
"""Bits of the smallest asynchronous copy."""
_STAGES = 3
_FEW = 8
"""With fewer rows or columns, a product is bound by memory: every output is a sum of its own."""
_WORD = 32
WARP = 32
"""Threads that run together."""


@dataclass(frozen=True, slots=True)
class Side:
    """The tile of a block along one axis of the output."""

    warps: int = 1
    quads: int = 1
    lanes: int = 1
    width: int = 1

    @property
    def extent(self) -> int:
        """Elements of the tile."""
        return self.warps * self.quads * self.lanes * self.width

    @property
    def run(self) -> int:
        """Elements that the lanes of a warp hold side by side."""
        return self.lanes * self.width

    @property
    def each(self) -> int:
        """Elements of one thread."""
        return self.quads * self.width


@dataclass(frozen=True, slots=True)
class ProductTile:
    """The tile of a product: rows and columns of the output, terms of a step, and how many steps are in memory."""

    rows: Side
    columns: Side
    depth: int
    stages: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(side.warps * side.lanes for side in (self.rows, self.columns))


def product_tile(
    m: int | None, n: int | None, batches: int | None, bits: int, factor_bits: int, target: Target
) -> ProductTile:
    """The tile of a product whose sums have so many bits, and its factors `factor_bits`: the one done first.

    A block takes as long as its multiply-adds and the reads of fragments that they need; blocks run on all
    multiprocessors at once, so that small products want small tiles.
    """
    tiles = [_shaped(rows, columns, bits) for rows, columns in _SHAPES]

    def cost(tile: tuple[Side, Side]) -> tuple[float, int]:
        rows, columns = tile
        blocks = -(-(m or MANY) // rows.extent) * -(-(n or MANY) // columns.extent) * (batches or 1)
        area = rows.extent * columns.extent
        reads = READ_COST * (rows.each + columns.each) / (rows.each * columns.each)
        fetches = FETCH_COST * (rows.extent + columns.extent) / area
        return -(-blocks // CORES) * area * (1 + reads + fetches), area

    rows, columns = min(tiles, key=cost)
    depth = {64: 4, 32: 8}.get(max(bits, factor_bits) if bits > _WORD else factor_bits, 16)
    return ProductTile(rows, columns, depth, stages_of(target))


def _shaped(rows: Side, columns: Side, bits: int) -> tuple[Side, Side]:
    """Sides for sums of so many bits: with half the elements in a run where sums have twice the bits."""
    if bits <= _WORD:
        return rows, columns
    halved = [Side(s.warps, s.quads, s.lanes, max(1, s.width // 2)) for s in (rows, columns)]
    return halved[0], halved[1]


_SHAPES = (
    (Side(2, 2, 8, 4), Side(4, 2, 4, 4)),
    (Side(2, 2, 8, 4), Side(2, 2, 4, 4)),
    (Side(1, 2, 8, 4), Side(4, 2, 4, 4)),
    (Side(2, 1, 8, 4), Side(2, 2, 4, 4)),
    (Side(1, 1, 8, 4), Side(2, 2, 4, 4)),
    (Side(1, 1, 8, 4), Side(2, 1, 4, 4)),
    (Side(1, 1, 4, 4), Side(1, 1, 8, 2)),
)
"""Tiles of 128 by 128 down to 16 by 16, 64 elements of a thread down to 8."""


def stages_of(target: Target) -> int:
    """Steps of a product whose factors are in shared memory at once: more than one where copies are asynchronous."""
    found = re.match(r"sm_(\d+)", target.cpu)
    copies = target.kind == "cuda" and (found is None or int(found.group(1)) >= _ASYNCHRONOUS)
    return _STAGES if copies else 1


def is_thin(m: int | None, n: int | None) -> bool:
    """Whether a product has so few rows or columns that tiles of both would be empty."""
    return min(m or MANY, n or MANY) <= _FEW


def lanes_of_copy(elements: int, threads: int, bits: int, length: int | None) -> int:
    """Neighbouring elements that each thread copies at once: so that all threads take part, of rows of that length."""
    lanes = _ACCESS * 8 // bits
    while lanes > 1 and (elements < lanes * threads or length is None or length % lanes):
        lanes //= 2
    return lanes
