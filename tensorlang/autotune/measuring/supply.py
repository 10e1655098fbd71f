"""Candidates on their way to whoever measures them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

BATCHES = 2
"""That are measured at a time: the next one is proposed, and proven, while the last one is being built."""


class Supply:
    """Takes traces from a source when there is room for them, and numbers them in that order.

    A source that gives None has nothing before more is measured; it is asked again after `reopen`.
    """

    def __init__(self, source: Iterable[Any]) -> None:
        self._source = iter(source)
        self._open = True
        self._count = 0
        self.waiting: deque[tuple[int, Any]] = deque()

    def refill(self, count: int) -> bool:
        """Let up to `count` traces wait; tell whether any came. What the source computes for it, it computes here."""
        before = self._count
        while self._open and len(self.waiting) < count:
            trace = next(self._source, None)
            self._open = trace is not None
            if self._open:
                self.waiting.append((self._count, trace))
                self._count += 1
        return self._count > before

    def reopen(self) -> None:
        """More was measured."""
        self._open = True


def overlapped(
    propose: Callable[[int], int],
    is_measured: Callable[[int], bool],
    study: Callable[[int], object],
    batch: int,
    count: int,
) -> Iterator[int | None]:
    """The numbers of up to `count` candidates, in the order of `propose`; None when more results are needed first.

    `propose` makes up to so many more, and tells how many there are. `batch` is what keeps the measuring busy. What is
    proposed draws on the results of all batches but the last one, which is still being measured, in the order in which
    they were proposed: each is studied, by its number, before the next batch. So proposals depend on times alone, not
    on how long builds take.
    """
    size, given = max(1, batch // BATCHES), 0
    earlier = last = range(0)
    while given < count:
        while not all(map(is_measured, earlier)):
            yield None
        for number in earlier:
            study(number)
        made = propose(min(size, count - given))
        if not made:
            return
        earlier, last = last, range(given, given + made)
        given += made
        yield from last
