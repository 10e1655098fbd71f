"""Draws of hypothesis strategies that depend on a seed alone.

The engine of hypothesis begins with the simplest example, looks for constants in the modules that are imported, and
goes on from what it has seen: its examples are those of a run, not of a number. Here every choice is one of a
`random.Random`, so that a case is the same in every process.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

from tensorlang.errors import MissingDependency

try:
    from hypothesis.errors import StopTest, UnsatisfiedAssumption
    from hypothesis.internal.conjecture.data import ConjectureData
    from hypothesis.internal.conjecture.providers import PrimitiveProvider
except ImportError as error:
    raise MissingDependency("soaks draw with hypothesis: pip install 'tensorlang[test]'") from error

if TYPE_CHECKING:
    from hypothesis.internal.intervalsets import IntervalSet
    from hypothesis.strategies import SearchStrategy

_WIDE = 1 << 32
"""The range of integers and floats without bounds."""


class NothingDrawn(Exception):
    """A strategy that ended without a value."""


class Draws:
    """A source of random values: `Draws(seed).draw(strategy)`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"choice {seed}")
        self._data = ConjectureData(random=Random(seed), provider=_Dice)

    def draw(self, strategy: SearchStrategy[Any]) -> Any:
        """Draw a value; NothingDrawn where the strategy takes too many choices."""
        try:
            return self._data.draw(strategy)
        except (StopTest, UnsatisfiedAssumption) as error:
            raise NothingDrawn(str(error)) from error


class _Dice(PrimitiveProvider):
    """Every choice with a random generator, uniformly."""

    def __init__(self, conjecturedata: ConjectureData | None, /) -> None:
        super().__init__(conjecturedata)
        assert conjecturedata is not None and conjecturedata._random is not None
        self._random = conjecturedata._random

    def draw_boolean(self, p: float = 0.5) -> bool:
        return self._random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        low = min_value if min_value is not None else (shrink_towards if max_value is None else max_value) - _WIDE
        return self._random.randint(low, max_value if max_value is not None else max(low, shrink_towards) + _WIDE)

    def draw_float(
        self,
        *,
        min_value: float = -math.inf,
        max_value: float = math.inf,
        allow_nan: bool = True,
        smallest_nonzero_magnitude: float,
    ) -> float:
        value = self._random.uniform(max(min_value, -_WIDE), min(max_value, _WIDE))
        return value if abs(value) >= smallest_nonzero_magnitude else max(min_value, 0.0)

    def draw_string(self, intervals: IntervalSet, *, min_size: int = 0, max_size: int = 1 << 10) -> str:
        length = self._random.randint(min_size, min(max_size, min_size + 20))
        return "".join(chr(intervals[self._random.randrange(len(intervals))]) for _ in range(length))

    def draw_bytes(self, min_size: int = 0, max_size: int = 1 << 10) -> bytes:
        return self._random.randbytes(self._random.randint(min_size, min(max_size, min_size + 20)))
