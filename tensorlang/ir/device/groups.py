"""Machine code that goes on after its call, from then until the threads that began it have waited for its group.

Meanwhile nobody may use what it writes, nor write what it reads. What it means happens at once: an access that would
see the difference is an error.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.device.clock import Array, Clock, Touched
from tensorlang.ir.device.memory import Memory


@dataclass(frozen=True, slots=True)
class _Work:
    """What the code of one call does to an array: its elements, for each the first thread of those that run the code.

    `groups`: those of the threads that the elements count to.
    """

    memory: Memory
    at: Array
    writes: bool
    lanes: Array
    groups: Array
    site: int

    def only(self, which: Array) -> _Work:
        """Some of the elements."""
        return _Work(self.memory, self.at[which], self.writes, self.lanes[which], self.groups[which], self.site)


class Groups:
    """The machine code of one block that is under way in groups of one name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed = np.zeros(clock.count, np.int64)  # groups of each thread
        self._begun: list[_Work] = []

    def begin(self, touched: Iterable[Touched[Memory]], count: int, site: int) -> None:
        """Begin what accesses have been noted of; as many neighbours as `count` run the code together."""
        found: dict[tuple[int, bool], tuple[Memory, Array]] = {}
        for memory, at, lanes, writes in touched:
            flags = np.zeros((-(-self._clock.count // count), memory.data.size), np.bool_)
            _, flags = found.setdefault((id(memory), writes), (memory, flags))
            flags[lanes // count, at] = True
        for (_, writes), (memory, flags) in found.items():
            owner, at = np.nonzero(flags)
            lanes = owner * count
            memory.engage(at, 1, writes)
            self._begun.append(_Work(memory, at, writes, lanes, self._closed[lanes], site))

    def commit(self, lanes: Array) -> None:
        """Close the groups of threads."""
        self._closed[lanes] += 1

    def wait(self, lanes: Array, pending: int) -> None:
        """Let threads wait for all but `pending` of their closed groups."""
        done_before = np.full(len(self._closed), -1, np.int64)
        done_before[lanes] = self._closed[lanes] - pending
        left = []
        for work in self._begun:
            done = work.groups < done_before[work.lanes]
            if done.any():
                self._finish(work.only(done))
            if not done.all():
                left.append(work.only(~done))
        self._begun = left

    def _finish(self, work: _Work) -> None:
        work.memory.engage(work.at, -1, work.writes)
        if not work.writes:
            self._clock.together = True
            work.memory.seen(work.at, work.lanes, work.site)
            self._clock.together = False
