"""Geometric means of ratios, for groups of workloads that are judged together."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.contest import Outcome
from benchmarks.workloads import MEANS


@dataclass(frozen=True, slots=True)
class Mean:
    """Of the ratios to the best peers, over the workloads of a group that were measured."""

    group: str
    ratio: float
    count: int
    goal: float

    @property
    def met(self) -> bool:
        """True when the goal is reached."""
        return self.ratio >= self.goal

    def __str__(self) -> str:
        text = f"{self.group}: geometric mean {self.ratio:.2f} of {self.count} (at least {self.goal:g})"
        return text if self.met else f"{text} MISSED"


def means(outcomes: Sequence[Outcome]) -> list[Mean]:
    """Of every group with a goal that has ratios."""
    found = []
    for group, goal in MEANS.items():
        ratios = [o.ratio for o in outcomes if o.group == group and o.ratio is not None]
        if ratios:
            found.append(Mean(group, statistics.geometric_mean(ratios), len(ratios), goal))
    return found
