"""Timing a callable, in the shape that classic time evaluators have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: one result per repeat."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The arithmetic mean of the results."""
        return float(np.mean(self.results))

    @property
    def median(self) -> float:
        """The median of the results."""
        return float(np.median(self.results))

    @property
    def min(self) -> float:
        """The smallest result."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The largest result."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation of the results around their mean."""
        return float(np.std(self.results))

    def __str__(self) -> str:
        names = ("mean", "median", "min", "max", "std")
        return "  ".join(f"{name} {getattr(self, name) * 1e3:.4f} ms" for name in names)


Stopwatch: TypeAlias = Callable[[Callable[..., object], Sequence[Any], int], float]
"""Seconds that a number of calls of a function take, with these arguments; the last argument is the number."""


def host_clock(function: Callable[..., object], args: Sequence[Any], number: int) -> float:
    """Seconds from before the first call until the last one has returned."""
    start = perf_counter()
    for _ in range(number):
        function(*args)
    return perf_counter() - start


class TimeEvaluator:
    """Measures `function(*args)`: `repeat` samples of `number` calls each, after one unmeasured call.

    While a sample is shorter than `min_repeat_ms` milliseconds, its number of calls grows. `stopwatch` takes the time.
    """

    def __init__(
        self,
        function: Callable[..., object],
        number: int,
        repeat: int,
        min_repeat_ms: float = 0,
        stopwatch: Stopwatch = host_clock,
    ) -> None:
        if number < 1 or repeat < 1 or min_repeat_ms < 0:
            given = f"{number}, {repeat} and {min_repeat_ms}"
            raise ArgumentError(f"number and repeat must be at least 1, min_repeat_ms at least 0, got {given}")
        self._function = function
        self._number = number
        self._repeat = repeat
        self._min_seconds = min_repeat_ms / 1e3
        self._stopwatch = stopwatch

    def __call__(self, *args: Any) -> Timing:
        """Run and measure; the arguments are checked as in any call."""
        self._function(*args)
        number = self._number
        results: list[float] = []
        while len(results) < self._repeat:
            seconds = self._stopwatch(self._function, args, number)
            if seconds < self._min_seconds:
                number = self._more_calls(number, seconds)
                continue
            results.append(seconds / number)
        return Timing(tuple(results))

    def _more_calls(self, number: int, seconds: float) -> int:
        """A number of calls that should reach the wanted time; at most ten times as many at once."""
        wanted = number * self._min_seconds / max(seconds, 1e-9)
        return max(number + 1, int(min(1.1 * wanted, 10.0 * number)))
