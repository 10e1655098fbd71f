"""The register tile of a product: how many rows and vectors of the output a micro-kernel keeps in registers."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import LINE, PAGE
from tensorlang.target.spec import Target

MANY = 1 << 12
"""Stands for an extent that is not known: large."""

_CHAINS = 8
"""Independent sums that keep the multiply-add units busy: two units, four cycles of latency."""
_MOST_ROWS = 12
"""As many rows are read side by side as the first cache has ways."""
_MOST_VECTORS = 12
_OF_A_SET = 8
"""Lines of one set of the first cache that stay while a panel passes through: of 8 ways, or of 12."""
_STEP = 1.0
"""What a step costs besides, in multiply-adds: its share of filling and emptying the tile."""
_STREAM = 0.25
"""What a vector that comes from the second cache costs beside one from the first, in multiply-adds."""


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """`rows` times `vectors` accumulators; `width` is the columns of the vectors."""

    rows: int
    vectors: int
    width: int


def register_tile(m: int, n: int, target: Target, bits: int, most_rows: int = _MOST_ROWS) -> RegisterTile:
    """Choose the tile that computes an m by n product in the fewest cycles, tails of the extents included."""
    lanes = target.lanes(bits)
    width = -(-n // lanes)

    def cycles(tile: tuple[int, int]) -> float:
        return sum(r * v * _cost(*part) for part, r, v in _parts(m, width, tile))

    rows, vectors = min(_tiles(target.vector_registers, min(m, most_rows), min(width, _MOST_VECTORS)), key=cycles)
    return RegisterTile(rows, vectors, vectors * lanes)


def fixed_width(m: int, width: int, target: Target, bits: int, most_rows: int = _MOST_ROWS) -> RegisterTile:
    """Choose the rows of a tile whose width is given, by the layout of packed weights."""
    vectors = max(1, -(-width // target.lanes(bits)))
    possible = (target.vector_registers - 1) // vectors - 1
    most = max(1, min(m, most_rows, possible))
    rows = min(range(1, most + 1), key=lambda r: (m // r) * _cost(r, vectors) + bool(m % r) * _cost(m % r, vectors))
    return RegisterTile(rows, vectors, width)


def whole_width(n: int, target: Target, bits: int) -> int:
    """Choose the width of panels that hold n columns and are never cut, so that a row takes the fewest cycles."""
    lanes = target.lanes(bits)

    def cycles(vectors: int) -> float:
        rows = fixed_width(MANY, vectors * lanes, target, bits).rows
        return -(-n // (vectors * lanes)) * _cost(rows, vectors) / rows

    return min(range(1, min(-(-n // lanes), _MOST_VECTORS) + 1), key=cycles) * lanes


def _tiles(registers: int, most_rows: int, most_vectors: int) -> Iterator[tuple[int, int]]:
    """Tiles that leave registers for a row of vectors and one broadcast element."""
    for rows in range(most_rows, 0, -1):
        for vectors in range(most_vectors, 0, -1):
            if rows * vectors + vectors + 1 <= registers:
                yield rows, vectors


def _parts(m: int, width: int, tile: tuple[int, int]) -> Iterator[tuple[tuple[int, int], int, int]]:
    """The sizes of tile that an m by `width` product is cut into, and how many there are each way."""
    rows, vectors = tile
    for r, count in ((rows, m // rows), (m % rows, 1)):
        for v, times in ((vectors, width // vectors), (width % vectors, 1)):
            if r and v:
                yield (r, v), count, times


def _cost(rows: int, vectors: int) -> float:
    """Cycles of a step of a tile, in multiply-adds: two of them, or two loads, start in a cycle."""
    return max(rows * vectors, rows + vectors, _CHAINS) + _STREAM * vectors + _STEP


def side_by_side(apart: int) -> int:
    """How many rows stay in the first cache while they are read side by side, so many bytes apart (0: not known).

    Its ways are pages, so that rows in steps of pages share one set, and are read from the second cache each time.
    """
    sets = PAGE // LINE
    return MANY if apart % LINE or not apart else _OF_A_SET * (sets // gcd(sets, apart // LINE))


def best_part(extent: int, times: int, most: int, vectors: int) -> int:
    """The part, of at most so many, in which an extent is done soonest; `times` pixels for each element of it."""

    def cycles(part: int) -> int:
        pixels = part * times
        return max(pixels * vectors, pixels + vectors, _CHAINS) if part else 0

    def all_cycles(part: int) -> tuple[int, int, int]:
        return extent // part * cycles(part) + cycles(extent % part), -(-extent // part), part

    return min(range(1, min(most, extent) + 1), key=all_cycles)
