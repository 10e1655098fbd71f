"""The time of the threads of one block: epochs between barriers, and stamps that say who did what when.

A stamp is an int64: an epoch, the number of a thread in its block, and the number of a statement, from the highest
bits to the lowest. Two stamps of one epoch differ in their low bits only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Lanes: TypeAlias = Array | None  # the numbers of the threads at work, None for all of them
Place = TypeVar("Place")
Touched: TypeAlias = tuple[Place, Array, Array, bool]  # an array, elements, the thread at each, if it writes

WARP = 32  # threads
SITE = 1 << 16  # statements are told apart by their number modulo this
THREAD = SITE << 10  # stamps of two epochs are at least this far apart
EVER = 1 << 61  # set in the stamps of blocks, so that an element nobody touched has none that looks like theirs


class Clock:
    """Epochs of one block after the other, none of which is ever used again.

    `low` are the lowest bits of stamps, one for each thread, without a statement. `before_barrier` are called before an
    epoch ends. `together`: what a thread reads now, others of its warp may read as well. Accesses are added
    to `touched`, where they are those of machine code that only begins its work.
    """

    def __init__(self, block: Sequence[int], grid: Sequence[int]) -> None:
        self.block = tuple(block)
        self.grid = tuple(grid)
        self.count = int(np.prod(self.block))
        self.lanes = np.arange(self.count, dtype=np.int64)
        self.low = self.lanes * SITE
        self.number = 0
        self.before_barrier: list[Callable[[], None]] = []
        self.together = False
        self.touched: list[Touched[Any]] | None = None
        self._epoch = 1
        self._tick = 1
        self._ticks = np.ones(-(-self.count // WARP), np.int64)  # epochs of warps

    def start(self, block: int) -> None:
        """Begin with a block, given by its number in the grid, after all threads of the one before are through."""
        self.number = block

    def barrier(self) -> None:
        """All threads wait for each other."""
        self._examine()
        self._epoch += 1
        self._tick += 1
        self._ticks[:] = self._tick

    def warp_barrier(self, lanes: Lanes) -> None:
        """The threads of each of some warps wait for each other."""
        self._examine()
        self._tick += 1
        self._ticks[slice(None) if lanes is None else lanes // WARP] = self._tick

    def _examine(self) -> None:
        for examine in self.before_barrier:
            examine()

    def by_block_epoch(self, low: Array) -> Array:
        """Stamps by epochs of the block."""
        return self._epoch * THREAD + low

    def by_warp_epoch(self, low: Array) -> Array:
        """Stamps by epochs of each warp, which tell threads of one warp apart."""
        stamps: Array = self._ticks[low // (WARP * SITE)] * THREAD + low
        return stamps

    def by_block(self, low: Array) -> Array:
        """Stamps by blocks."""
        return EVER + self.number * THREAD + low

    def thread(self, lane: int) -> str:
        """`thread (x, y, z)` of a number in the block."""
        return f"thread {_place(lane, self.block)}"

    def block_of(self, stamp: int) -> str:
        """`block (x, y, z)` of a stamp by blocks."""
        return f"block {_place((stamp - EVER) // THREAD, self.grid)}"

    @property
    def here(self) -> str:
        """`block (x, y, z)` that runs."""
        return f"block {_place(self.number, self.grid)}"


def _place(number: int, extents: Sequence[int]) -> str:
    x, y = extents[0], extents[1]
    return f"({number % x}, {number // x % y}, {number // (x * y)})"


def lane_of(stamp: int) -> int:
    """The number of the thread in a stamp."""
    return stamp % THREAD // SITE


def site_of(stamp: int) -> int:
    """The number of the statement in a stamp."""
    return stamp % SITE
