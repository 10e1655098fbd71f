"""Candidates on their way to whoever measures them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any


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
