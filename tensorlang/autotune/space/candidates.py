"""Candidate values of decisions, from extents and from the device."""

from __future__ import annotations

from collections.abc import Iterable

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 13, 14, 16)
VECTORS = (1, 2, 3, 4, 6)
UNROLLS = (1, 2, 4, 8)


def up_to(values: Iterable[int], limit: int) -> tuple[int, ...]:
    """The values that do not exceed `limit`; 1 when none is left."""
    return tuple(v for v in values if v <= max(1, limit)) or (1,)


def powers(limit: int, first: int = 1) -> tuple[int, ...]:
    """Powers of two from `first` while below `limit`, then `limit` itself: the whole axis in one block."""
    found = []
    value = first
    while value < limit:
        found.append(value)
        value *= 2
    return (*found, max(1, limit))


def vector_widths(extent: int, lanes: int) -> tuple[int, ...]:
    """Widths of a vectorised tile of an axis: whole vectors that the axis fills, or all of a short axis."""
    widths = tuple(lanes * n for n in VECTORS if lanes * n <= extent)
    return widths or (extent,)


def blocks(extent: int, tile: int) -> int:
    """How many tiles an axis has."""
    return -(-extent // tile)
