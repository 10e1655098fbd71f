"""Asynchronous copies from global to shared memory, from when a thread begins one until it has waited for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorlang.ir.device.clock import Array, Clock
from tensorlang.ir.device.memory import Memory


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
    """The copies of one block that are under way. `late`: they happen when they are waited for, else at once."""

    def __init__(self, clock: Clock, late: bool, check: bool) -> None:
        self._late = late
        self._check = check
        self._closed = np.zeros(clock.count, np.int64)  # groups of each thread
        self._begun: list[_Copy] = []

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
