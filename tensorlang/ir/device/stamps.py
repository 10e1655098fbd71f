"""Who touched each element of an array in the epoch that runs: the race detector.

Two agents (threads, warps or blocks) race when they touch an element in one epoch and one of them writes. Per element
it is enough to keep the last write, the last read, and one read by another agent than the last in the same epoch.
"""

from __future__ import annotations

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.device.clock import EVER, SITE, THREAD, WARP, Array


@dataclass(frozen=True, slots=True)
class Clash:
    """Access number `position` of those asked about races with an earlier one: its stamp, and `read` or `write`."""

    position: int
    stamp: int
    earlier: str


class _Users:
    """The last agent that used each element in a way that several may, and another one of its epoch."""

    def __init__(self, size: int) -> None:
        self.last = np.zeros(size, np.int64)
        self.other = np.zeros(size, np.int64)


class Stamps:
    """The accesses to one array. Agents are told apart by the bits of stamps from `agent` on, below `epoch`."""

    def __init__(self, size: int, agent: int, epoch: int) -> None:
        self._size = size
        self._agent = agent
        self._span = np.uint64(epoch - agent)
        self._written = np.zeros(size, np.int64)
        self._read = _Users(size)
        self._updated: _Users | None = None

    def read(self, at: Array, mine: Array, last: bool = False) -> Clash | None:
        """Record reads of the elements `at` by agents of the stamps `mine`; return a race if there is one.

        They need not be kept if they are the `last` accesses of their epoch.
        """
        clash = self._clash(self._written, at, mine, "writes")
        if clash is None and self._updated is not None:
            clash = self._clash_users(self._updated, at, mine, "updates")
        if not last:
            self._use(self._read, at, mine)
        return clash

    def update(self, at: Array, mine: Array) -> Clash | None:
        """Record atomic updates, which race with all others than themselves."""
        clash = self._clash(self._written, at, mine, "writes") or self._clash_users(self._read, at, mine, "reads")
        if self._updated is None:
            self._updated = _Users(self._size)
        self._use(self._updated, at, mine)
        return clash

    def write(self, at: Array, mine: Array) -> Clash | None:
        """Record writes."""
        clash = self._clash(self._written, at, mine, "writes") or self._clash_users(self._read, at, mine, "reads")
        if clash is None and self._updated is not None:
            clash = self._clash_users(self._updated, at, mine, "updates")
        self._written[at] = mine
        return clash or self._clash(self._written, at, mine, "writes")

    def _others(self, old: Array, mine: Array) -> Array:
        """Where stamps are of one epoch and of two agents."""
        apart: Array = (old ^ mine) - self._agent
        return apart.view(np.uint64) < self._span

    def _clash(self, kept: Array, at: Array, mine: Array, earlier: str) -> Clash | None:
        old = kept[at]
        races = self._others(old, mine)
        if not races.any():
            return None
        position = int(races.argmax())
        return Clash(position, int(old[position]), earlier)

    def _clash_users(self, users: _Users, at: Array, mine: Array, earlier: str) -> Clash | None:
        return self._clash(users.last, at, mine, earlier) or self._clash(users.other, at, mine, earlier)

    def _use(self, users: _Users, at: Array, mine: Array) -> None:
        old = users.last[at]
        users.last[at] = mine
        now = users.last[at]
        for earlier in (mine, old):
            others = self._others(earlier, now)
            if others.any():
                users.other[at[others]] = earlier[others]


def by_thread(size: int) -> Stamps:
    """Races of the threads of a block, or of a warp: stamps by epochs of that."""
    return Stamps(size, SITE, THREAD)


def by_warp(size: int) -> Stamps:
    """Races of the warps of a block: stamps by epochs of the block."""
    return Stamps(size, WARP * SITE, THREAD)


def by_block(size: int) -> Stamps:
    """Races of the blocks of a launch: stamps by blocks."""
    return Stamps(size, THREAD, EVER)
