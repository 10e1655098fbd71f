"""One block of memory for all that passes between kernels: arrays that are not in use at the same time share places."""

from __future__ import annotations

from collections.abc import Mapping

from tensorlang.dataclass import dataclass
from tensorlang.networks.signature import Array
from tensorlang.runtime.memory import ALIGNMENT, aligned_empty


@dataclass(frozen=True, slots=True)
class Life:
    """The bytes of an array, and the first and the last step in which it is in use."""

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """Where each array begins, in bytes, and the bytes of the block."""

    places: Mapping[str, int]
    size: int


def arena_of(lives: Mapping[str, Life]) -> Arena:
    """Place arrays, the largest first, each at the lowest place that is free while it lives.

    Source: Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020 ("greedy by size").
    """
    placed: list[tuple[int, int, Life]] = []
    places: dict[str, int] = {}
    for name, life in sorted(lives.items(), key=lambda item: (-item[1].size, item[1].first, item[0])):
        size, place = _rounded(life.size), 0
        for start, end, other in sorted(placed, key=lambda p: p[0]):
            if other.last < life.first or life.last < other.first:
                continue
            if place + size <= start:
                break
            place = max(place, end)
        places[name] = place
        placed.append((place, place + size, life))
    return Arena(places, max((end for _, end, _ in placed), default=0))


def aligned(array: Array) -> Array:
    """The array, or a copy of it that lies in order and begins with a line of the cache."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def _rounded(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
