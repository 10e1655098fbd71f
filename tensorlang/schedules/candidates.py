"""Candidate values of decisions, from extents and from the device."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24)  # the last divides into all others: one row block suits many tiles
VECTORS = (1, 2, 3, 4, 6)
UNROLLS = (1, 2, 4, 8)


def up_to(values: Iterable[int], limit: int) -> tuple[int, ...]:
    """The values that do not exceed `limit`; 1 when none is left."""
    return tuple(v for v in values if v <= max(1, limit)) or (1,)


def powers(limit: int, first: int = 1) -> tuple[int, ...]:
    """Powers of two times `first`, up to the first that reaches `limit`: the whole axis in one block."""
    found = [first]
    while found[-1] < limit:
        found.append(2 * found[-1])
    return tuple(found)


def vector_widths(extent: int, lanes: int) -> tuple[int, ...]:
    """Widths of a vectorised tile of an axis: whole vectors that the axis fills, or all of a short axis."""
    widths = tuple(lanes * n for n in VECTORS if lanes * n <= extent)
    return widths or (extent,)


def row_blocks(extent: int) -> tuple[int, ...]:
    """Cache blocks of an unrolled axis: multiples of most register tiles, up to the whole axis."""
    return tuple(sorted({1, *powers(extent, 12)}))


def column_blocks(extent: int, lanes: int) -> tuple[int, ...]:
    """Cache blocks of a vectorised axis: whole vectors, times powers of two and three times those."""
    if extent < lanes:
        return (extent,)
    return tuple(sorted({*powers(extent, lanes), *powers(extent, 3 * lanes)}))


def around(number: int, most: int) -> tuple[int, ...]:
    """Numbers near one, up to `most`: an eighth of it to eight times as much."""
    near = {round(number * 2.0**n) for n in range(-3, 4)} | {round(number * 0.75), round(number * 1.5)}
    return tuple(sorted(n for n in near if 1 <= n <= max(most, number)))


def part_sizes(extent: int, least: int) -> tuple[int, ...]:
    """Sizes of the parts that an axis is cut into, two or more: equal ones, or almost, of at least so many elements."""
    counts = range(2, extent // max(1, least) + 1)
    even = [n for n in counts if extent % n == 0] or [n for n in powers(extent) if n in counts]
    return tuple(sorted({ceil(extent / n) for n in even}))
