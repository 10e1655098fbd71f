"""A sketch: a base trace with open decisions, what limits them, and the nest that they make.

A space is a tuple of sketches; a candidate is one sketch with all its decisions taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.nest import Nest
from tensorlang.dataclass import dataclass
from tensorlang.errors import ScheduleError
from tensorlang.schedules.accesses import Array
from tensorlang.schedules.room import Columns, Constraint, Mask

Indices = npt.NDArray[np.int64]


class OpenTrace(Protocol):
    """What the tuner needs of a trace: other decisions, a stable key, a JSON form."""

    @property
    def key(self) -> str: ...

    def with_decisions(self, values: Mapping[str, int]) -> OpenTrace: ...

    def to_json(self) -> Any: ...


MORE_DRAWS = 32
"""Where hardly a candidate is allowed, so often more are drawn before few must do."""
_LARGEST = np.iinfo(np.int64).max
"""Numbers of candidates are int64 up to here; those of larger sketches, of many stages, are Python's."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """One shape of schedule. `knobs`: candidates of every open decision; `nests` describes populations of it.

    `start`: decisions to measure before any others.
    """

    name: str
    trace: OpenTrace
    knobs: Mapping[str, tuple[int, ...]]
    constraints: tuple[Constraint, ...]
    nests: Callable[[Columns, int], tuple[Nest, ...]]
    start: Mapping[str, int] | None = None

    @property
    def size(self) -> int:
        """Number of candidates before constraints."""
        return math.prod(len(values) for values in self.knobs.values())

    def columns(self, indices: Indices) -> dict[str, Array]:
        """Decision values of a population given as candidate indices, one row per candidate."""
        return {
            name: np.asarray(values, dtype=np.float64)[indices[:, n]]
            for n, (name, values) in enumerate(self.knobs.items())
        }

    def allowed(self, indices: Indices) -> Mask:
        """Which candidates every constraint allows."""
        columns = self.columns(indices)
        mask = np.ones(len(indices), dtype=bool)
        for constraint in self.constraints:
            mask &= constraint.holds(columns)
        return mask

    def describe(self, indices: Indices) -> tuple[Nest, ...]:
        """The nests of a population."""
        return self.nests(self.columns(indices), len(indices))

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """Up to `count` different allowed candidates at random; all of them when the sketch is small.

        There are fewer where limits leave few: a quarter of them are enough not to look further.
        """
        if self.size <= 4 * count:
            every = self.unravel(np.arange(self.size))
            every = every[self.allowed(every)]
            return every[rng.permutation(len(every))[:count]]
        drawn = self._allowed_at_random(rng, 4 * count)
        for _ in range(MORE_DRAWS):
            if len(drawn) >= count // 4:
                break
            drawn = np.concatenate([drawn, self._allowed_at_random(rng, max(1024, 4 * count))])
        drawn = self.unravel(np.unique(self.numbers(drawn)))
        return drawn[rng.permutation(len(drawn))[:count]]

    def _allowed_at_random(self, rng: np.random.Generator, count: int) -> Indices:
        """Those of so many candidates at random that are allowed, groups of stages mended."""
        drawn = self._mended(self.draw(rng, count), rng)
        return drawn[self.allowed(drawn)]

    def draw(self, rng: np.random.Generator, count: int) -> Indices:
        """Candidates at random, allowed or not."""
        if self.size <= _LARGEST:
            return self.unravel(rng.integers(0, self.size, count))
        return np.stack([rng.integers(0, len(values), count) for values in self.knobs.values()], axis=1)

    def _mended(self, drawn: Indices, rng: np.random.Generator) -> Indices:
        """Candidates whose groups of stages are allowed, each for itself.

        Of many groups hardly a candidate would be allowed in all. The decisions of one that is not are taken from
        another candidate, where it is.
        """
        for prefix in dict.fromkeys(c.prefix for c in self.constraints if c.prefix):
            columns = self.columns(drawn)
            good = np.ones(len(drawn), dtype=bool)
            for constraint in self.constraints:
                if constraint.prefix == prefix:
                    good &= constraint.holds(columns)
            places = np.flatnonzero([name.startswith(prefix) for name in self.knobs])
            bad = np.flatnonzero(~good)
            if len(bad) and good.any():
                donors = rng.choice(np.flatnonzero(good), len(bad))
                drawn[np.ix_(bad, places)] = drawn[np.ix_(donors, places)]
        return drawn

    def unravel(self, numbers: npt.NDArray[np.int64]) -> Indices:
        """Candidate numbers (0 <= number < size) as rows of indices."""
        shape = tuple(len(values) for values in self.knobs.values())
        if not shape:
            return np.zeros((len(numbers), 0), dtype=np.int64)
        if self.size <= _LARGEST:
            return np.stack(np.unravel_index(numbers, shape), axis=1).astype(np.int64)
        columns: list[npt.NDArray[np.int64]] = []
        for base in reversed(shape):
            numbers, digits = numbers // base, numbers % base
            columns.insert(0, digits.astype(np.int64))
        return np.stack(columns, axis=1)

    def numbers(self, indices: Indices) -> npt.NDArray[np.int64]:
        """The candidate numbers of rows of indices."""
        shape = tuple(len(values) for values in self.knobs.values())
        if not shape:
            return np.zeros(len(indices), dtype=np.int64)
        if self.size <= _LARGEST:
            return np.asarray(np.ravel_multi_index(tuple(indices.T), shape), dtype=np.int64)
        numbers = np.zeros(len(indices), dtype=object)
        for base, digits in zip(shape, indices.T, strict=True):
            numbers = numbers * base + digits.astype(object)
        return numbers

    def indices(self, rows: Sequence[tuple[int, ...]]) -> Indices:
        """Rows of candidates as one array."""
        return np.asarray(rows, dtype=np.int64).reshape(len(rows), len(self.knobs))

    def row(self, decisions: Mapping[str, int]) -> tuple[int, ...] | None:
        """The place of a candidate; None when the sketch has no such candidate."""
        try:
            return tuple(values.index(decisions[name]) for name, values in self.knobs.items())
        except (KeyError, ValueError):
            return None

    def decisions(self, row: Sequence[int]) -> dict[str, int]:
        """The decisions of one candidate."""
        return {name: values[i] for (name, values), i in zip(self.knobs.items(), row, strict=True)}


def require_candidates(sketches: Sequence[Sketch], rng: np.random.Generator) -> tuple[Sketch, ...]:
    """Drop empty sketches; ScheduleError names the constraint that emptied each when none is left."""
    alive = tuple(s for s in sketches if len(s.sample(rng, 256)))
    if alive:
        return alive
    reasons = [f"{s.name}: {_emptied_by(s, rng)}" for s in sketches] or ["no rule makes a sketch of this program"]
    raise ScheduleError(
        "autotune",
        "the search space is empty\n" + "\n".join(reasons),
        suggested=["schedule it by hand, or tune a larger problem or another target"],
    )


def _emptied_by(sketch: Sketch, rng: np.random.Generator) -> str:
    """The first constraint after which no candidate is left."""
    size = min(sketch.size, 4096)
    indices = sketch.unravel(np.arange(size)) if sketch.size <= size else sketch.draw(rng, size)
    for constraint in sketch.constraints:
        indices = indices[constraint.holds(sketch.columns(indices))]
        if not len(indices):
            return f"no candidate is left by: {constraint.text}"
    return "its decisions have no candidates"
