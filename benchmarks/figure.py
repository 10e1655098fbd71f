"""A figure of a benchmark: what was measured, and what was wanted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `goal` is a bound to stay under (`at_most`) or to reach; None when there is none."""

    name: str
    value: float
    unit: str
    goal: float | None = None
    at_most: bool = True

    @property
    def met(self) -> bool:
        """True when the goal, if any, is met."""
        if self.goal is None:
            return True
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def __str__(self) -> str:
        text = f"{self.name:<58} {self.value:>9.3g} {self.unit}"
        if self.goal is None:
            return text
        return f"{text}  ({'at most' if self.at_most else 'at least'} {self.goal:g}{'' if self.met else ': MISSED'})"
