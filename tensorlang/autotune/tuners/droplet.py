"""Descent on the grid of a template's knobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import NormalDist, fmean, variance

from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.task import TemplateTask
from tensorlang.autotune.tuners.measure import MeasureResult
from tensorlang.autotune.tuners.tuner import Tuner
from tensorlang.errors import DefinitionError
from tensorlang.location import caller

_MANY = 8
"""Knobs of which all combinations of steps are tried at once; of more, steps of one or two knobs."""


class DropletTuner(Tuner):
    """Goes from a configuration to its neighbours, whose knobs are one candidate further or back, while that is faster.

    A neighbour is faster where its times differ by more than chance would make them in `pvalue` of all cases. Where
    none is, it looks two candidates away, then three, and ends at the largest number of candidates that a knob has.
    `start_position`: the candidate of each knob to start from, the first ones where it is left out.

    Source: Canesche et al., The Droplet Search Algorithm for Kernel Scheduling, 2024.
    """

    def __init__(
        self, task: TemplateTask, start_position: Sequence[int] | None = None, pvalue: float = 0.05, seed: int = 0
    ) -> None:
        shape = task.config_space.shape
        self.start_position = list(start_position) if start_position is not None else [0] * len(shape)
        fits = len(self.start_position) == len(shape)
        if not fits or not all(0 <= at < n for at, n in zip(self.start_position, shape, strict=True)):
            raise DefinitionError(
                f"start_position has a candidate of each knob, of {list(shape)}, got {self.start_position}", caller()
            )
        self.pvalue = pvalue
        super().__init__(task, seed)

    def reset(self) -> None:
        super().reset()
        self._centre = list(self.start_position)
        self._costs: tuple[float, ...] = ()
        self._reach = 0
        self._waiting = [self.space.number(self._centre)]

    def has_next(self) -> bool:
        """Whether there is a neighbour left to look at."""
        self._widen()
        return bool(self._waiting)

    def propose(self, count: int) -> list[int]:
        """Neighbours that were not seen yet, the nearest first."""
        self._widen()
        found, self._waiting = self._waiting[:count], self._waiting[count:]
        return found

    def learn(self, config: ConfigEntity, result: MeasureResult) -> None:
        """A configuration that is faster is where the search goes on."""
        if result.ok and self._is_faster(result.costs):
            self._centre, self._costs = self.space.point2knob(config.index), result.costs
            self._reach, self._waiting = 0, []

    def _widen(self) -> None:
        """Wait for neighbours, farther and farther away, until there is one that was not seen."""
        self._waiting = [n for n in self._waiting if n not in self.seen]
        while not self._waiting and self._reach < max(self.space.shape, default=0):
            self._reach += 1
            self._waiting = [n for n in self._neighbours() if n not in self.seen]

    def _neighbours(self) -> list[int]:
        """The configurations some of whose knobs are so many candidates further, or all of those so many back."""
        found: dict[int, None] = {}
        for knobs in _choices(len(self._centre)):
            for way in (self._reach, -self._reach):
                place = [at + way * step for at, step in zip(self._centre, knobs, strict=True)]
                if all(0 <= at < n for at, n in zip(place, self.space.shape, strict=True)):
                    found[self.space.number(place)] = None
        return list(found)

    def _is_faster(self, costs: Sequence[float]) -> bool:
        if not self._costs:
            return True
        gain = fmean(self._costs) - fmean(costs)
        return gain > 0 and _by_chance(gain, self._costs, costs) <= self.pvalue


def _choices(knobs: int) -> Iterable[tuple[int, ...]]:
    """Which knobs move together, 1 for each that does: few before many."""
    moves = product((0, 1), repeat=knobs) if knobs <= _MANY else _one_or_two(knobs)
    return sorted((m for m in moves if any(m)), key=sum)


def _one_or_two(knobs: int) -> Iterable[tuple[int, ...]]:
    for first in range(knobs):
        for second in range(first, knobs):
            yield tuple(int(k in (first, second)) for k in range(knobs))


def _by_chance(difference: float, one: Sequence[float], other: Sequence[float]) -> float:
    """How likely means of equal times differ so much: 0 where there is nothing to tell that they spread (Welch)."""
    spread = sum(variance(times) / len(times) for times in (one, other) if len(times) > 1)
    return 2 * (1 - NormalDist().cdf(difference / math.sqrt(spread))) if spread else 0.0
