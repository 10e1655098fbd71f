"""Asynchronous copies from global to shared memory, from when a thread begins one until it has waited for it.

Bulk copies are counted by barriers in shared memory, in use in turn: a group has one, which the group that comes as
many later as there are barriers has again, once all threads have waited for the first.
"""

from __future__ import annotations

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.ir.device.clock import Array, Clock
from tensorlang.ir.device.memory import Memory
from tensorlang.ir.device.sites import Sites
from tensorlang.ir.expr import Buffer, Const


@dataclass(frozen=True, slots=True)
class _Copy:
    """The copies of one statement, one an element: to where, from where if `valid`, by which thread, in which group."""

    to: Memory
    at: Array
    source: Memory
    source_at: Array
    valid: Array
    lanes: Array
    groups: Array
    site: int

    def only(self, which: Array) -> _Copy:
        """Some of them."""
        at, source_at, valid, lanes = (a[which] for a in (self.at, self.source_at, self.valid, self.lanes))
        return _Copy(self.to, at, self.source, source_at, valid, lanes, self.groups[which], self.site)

    def move(self) -> None:
        """Set the elements."""
        values = np.zeros(len(self.at), self.to.data.dtype)
        values[self.valid] = self.source.data[self.source_at[self.valid]]
        self.to.data[self.at] = values


class Copies:
    """The copies of one block that are under way. `late`: they happen when they are waited for, else at once.

    `barriers`: how many count these copies, if they are bulk copies.
    """

    def __init__(self, clock: Clock, late: bool, check: bool, barriers: int = 0) -> None:
        self._clock = clock
        self._late = late
        self._check = check
        self._barriers = barriers
        self._closed = np.zeros(clock.count, np.int64)  # groups of each thread
        self._awaited = 0  # groups that all threads have waited for
        self._begun: list[_Copy] = []
        self._bulk: dict[str, Copies] = {}

    def of(self, barriers: Buffer | None) -> Copies:
        """The copies that some barriers count; those of each thread without."""
        if barriers is None:
            return self
        if barriers.name not in self._bulk:
            count = barriers.shape[0]
            assert isinstance(count, Const)
            self._bulk[barriers.name] = Copies(self._clock, self._late, self._check, int(count.value))
        return self._bulk[barriers.name]

    @property
    def has_room(self) -> bool:
        """Whether the next group finds a barrier that no thread waits at any more."""
        return not self._barriers or int(self._closed.max()) - self._awaited < self._barriers

    def check_all_done(self, sites: Sites) -> None:
        """Raise InternalError if a bulk copy is under way, as no block may end so."""
        for copies in self._bulk.values():
            for copy in copies._begun:
                sites.fault(f"a block ends while a copy to {copy.to.buffer.name} is under way", copy.site)

    def begin(
        self, to: Memory, at: Array, source: Memory, source_at: Array, valid: Array, lanes: Array, site: int
    ) -> None:
        """Begin copies, one an element; `source_at` means nothing where `valid` does not hold."""
        copy = _Copy(to, at, source, source_at, valid, lanes, self._closed[lanes], site)
        if self._check:
            to.reserve(at, lanes, site)
            to.copies()[at] = lanes + 1
            source.lend(source_at[valid], 1)
        if not self._late:
            copy.move()
        self._begun.append(copy)

    def commit(self, lanes: Array) -> None:
        """Close the groups of threads."""
        self._closed[lanes] += 1

    def wait(self, lanes: Array, pending: int) -> None:
        """Let threads wait for all but `pending` of their closed groups."""
        done_before = np.full(len(self._closed), -1, np.int64)
        done_before[lanes] = self._closed[lanes] - pending
        if len(lanes) == len(self._closed):
            self._awaited = max(self._awaited, int(done_before.min()))
        left = []
        for copy in self._begun:
            done = copy.groups < done_before[copy.lanes]
            if done.any():
                self._finish(copy.only(done))
            if not done.all():
                left.append(copy.only(~done))
        self._begun = left

    def _finish(self, copy: _Copy) -> None:
        if self._late:
            copy.move()
        if self._check:
            copy.to.copies()[copy.at] = 0
            copy.source.lend(copy.source_at[copy.valid], -1)
            copy.to.arrive(copy.at, copy.lanes, copy.site)
