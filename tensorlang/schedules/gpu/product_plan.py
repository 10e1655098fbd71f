"""Tiles of a block of threads: how many elements along an axis, and how warps, lanes and registers share them.

Along an axis, element `((warp * quads + quad) * lanes + lane) * width + w` of a tile belongs to one lane of one warp.
A lane holds `quads` runs of `width` neighbours: each run is one wide access to shared memory, and neighbouring lanes
read neighbouring runs, so that no two of them meet on a bank (the layout of CUTLASS's SIMT products).
"""

from __future__ import annotations

from math import prod

from tensorlang.dataclass import dataclass
from tensorlang.target.gpus import multiprocessors
from tensorlang.target.spec import Target

MANY = 4096
"""Stands for an extent that is not known."""
_CORES = 108
"""Multiprocessors where the target names no architecture that is known: as many as an A100 has."""
_ACCESS = 16
"""Bytes of the widest access to memory of one thread."""
READ_COST = 1.5
"""What reading an element of a fragment costs, in multiply-adds of a thread."""
FETCH_COST = 16.0
"""What bringing an element to shared memory costs, in multiply-adds of a thread."""
LEAST_COPY = 32
"""Bits of the smallest asynchronous copy."""
_STAGES = 3
_FEW = 8
"""With fewer rows or columns, a product is bound by memory: every output is a sum of its own."""
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""In how many parts the terms of a product may be summed by blocks of their own."""
_LEAST_PART = 128
"""Terms of a part, at least: fewer are over before the copies ahead have begun to pay."""
_ADDING_COST = 270_000.0
"""What the kernel that adds the parts costs before it runs: 3 microseconds, of 1.41 GHz and 64 sums a cycle."""
_PARTIAL_COST = 51.0
"""What a partial sum costs that is written and read again: 8 bytes, of which memory moves 10 a cycle for each core."""
_WORD = 32


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
    """The tile of a product: rows and columns of the output, terms of a step, and how many steps are in memory.

    `parts`: in how many parts the terms are summed, by other blocks each.
    """

    rows: Side
    columns: Side
    depth: int
    stages: int = 1
    parts: int = 1

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(side.warps * side.lanes for side in (self.rows, self.columns))


def product_tile(
    m: int | None,
    n: int | None,
    batches: int | None,
    bits: int,
    factor_bits: int,
    target: Target,
    terms: int | None = None,
) -> ProductTile:
    """The tile of a product whose sums have so many bits, and its factors `factor_bits`: the one done first.

    A block takes as long as its multiply-adds and the reads of fragments that they need; blocks run on all
    multiprocessors at once, so that small products want small tiles. `terms` are given where they may be summed in
    parts, which is looked at where there are fewer tiles than multiprocessors.
    """

    cores = cores_of(target)

    def blocks(rows: Side, columns: Side) -> int:
        return -(-(m or MANY) // rows.extent) * -(-(n or MANY) // columns.extent) * (batches or 1)

    def cost(tile: tuple[Side, Side, int]) -> tuple[float, int, int]:
        rows, columns, parts = tile
        count, area = blocks(rows, columns) * parts, rows.extent * columns.extent
        reads = READ_COST * (rows.each + columns.each) / (rows.each * columns.each)
        fetches = FETCH_COST * (rows.extent + columns.extent) / area
        steps = (terms or MANY) / parts
        adding = adding_cost(count * area, parts, cores)
        return -(-count // cores) * area * steps * (1 + reads + fetches) + adding, area, parts

    sides = [_shaped(rows, columns, bits) for rows, columns in _SHAPES]
    few = [parts for parts in PARTS if terms and terms % parts == 0 and terms // parts >= _LEAST_PART and m and n] or [
        1
    ]
    tiles = [(*pair, parts) for pair in sides for parts in (few if blocks(*pair) < cores else [1])]
    rows, columns, parts = min(tiles, key=cost)
    depth = {64: 4, 32: 8}.get(max(bits, factor_bits) if bits > _WORD else factor_bits, 16)
    return ProductTile(rows, columns, depth, stages_of(target), parts)


def cores_of(target: Target) -> int:
    """Multiprocessors that should all have a block."""
    return multiprocessors(target) or _CORES


def adding_cost(partial: int, parts: int, cores: int) -> float:
    """What adding the parts of sums costs, of so many partial ones: in sums that a multiprocessor could update."""
    return _ADDING_COST + _PARTIAL_COST * partial / cores if parts > 1 else 0.0


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
    return _STAGES if target.can.async_copies else 1


def is_thin(m: int | None, n: int | None) -> bool:
    """Whether a product has so few rows or columns that tiles of both would be empty."""
    return min(m or MANY, n or MANY) <= _FEW


def lanes_of_copy(elements: int, threads: int, bits: int, length: int | None) -> int:
    """Neighbouring elements that each thread copies at once: so that all threads take part, of rows of that length."""
    lanes = _ACCESS * 8 // bits
    while lanes > 1 and (elements < lanes * threads or length is None or length % lanes):
        lanes //= 2
    return lanes


def rows_together(m: int | None, n: int | None, block: tuple[int, int], cores: int) -> int:
    """How many rows of blocks should run side by side, column by column, so that L2 serves most of what they fetch.

    Blocks that run at the same time read as many rows of one factor and columns of the other as they cover; in the
    order of rows, few rows and all columns. The number divides that of the rows of blocks; 1 is the order of rows, also
    where an extent is not known.
    """
    if m is None or n is None:
        return 1
    down, across = -(-m // block[0]), -(-n // block[1])

    def fetched(together: int) -> int:
        columns = min(across, -(-cores // together))
        rows = min(down, together * -(-cores // (together * across)))
        return rows * block[0] + columns * block[1]

    return min((count for count in (1, 2, 4, 8, 16) if down % count == 0), key=fetched)
