"""Tuners that go by numbers alone."""

from __future__ import annotations

from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.tuner import Tuner

DENSE = 4
"""Where the space has at most so many times the configurations wanted, what is left of it is listed."""


def draw_unseen(tuner: Tuner, count: int, low: int = 0, high: int | None = None) -> list[int]:
    """Up to `count` numbers in [low, high) that the tuner has not seen, at random, without listing a large space."""
    end = tuner.space.size if high is None else min(high, tuner.space.size)
    if end - low <= DENSE * (len(tuner.seen) + count):
        left = [n for n in range(low, end) if n not in tuner.seen]
        return [left[i] for i in tuner.rng.permutation(len(left))[:count]]
    found: dict[int, None] = {}
    while len(found) < count:
        number = low + _below(tuner, end - low)
        if number not in tuner.seen:
            found[number] = None
    return list(found)


def _below(tuner: Tuner, limit: int) -> int:
    """A number below a limit of any size."""
    number = 0
    for _ in range((limit.bit_length() + 61) // 31):
        number = (number << 31) | int(tuner.rng.integers(1 << 31))
    return number % limit


class _InRange(Tuner):
    """Proposes numbers from the first up to, without, the second of `range_idx`; all, where none is given."""

    def __init__(self, task: TemplateTask, range_idx: tuple[int, int] | None = None, seed: int = 0) -> None:
        self._range = range_idx
        super().__init__(task, seed)

    @property
    def range_idx(self) -> tuple[int, int]:
        """The range, within the space."""
        first, end = self._range or (0, self.space.size)
        return first, min(end, self.space.size)


class GridSearchTuner(_InRange):
    """Configurations in order of their numbers. `range_idx`: only those from the first up to, without, the second."""

    def reset(self) -> None:
        super().reset()
        self._next = self.range_idx[0]

    def propose(self, count: int) -> list[int]:
        found: list[int] = []
        while self._next < self.range_idx[1] and len(found) < count:
            if self._next not in self.seen:
                found.append(self._next)
            self._next += 1
        return found


class RandomTuner(_InRange):
    """Configurations at random, each once. `range_idx`: only those from the first up to, without, the second."""

    def propose(self, count: int) -> list[int]:
        return draw_unseen(self, count, *self.range_idx)
