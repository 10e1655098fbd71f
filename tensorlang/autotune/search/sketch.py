"""A sketch: a base trace with open decisions, what limits them, and the nest that they make.

A space is a tuple of sketches; a candidate is one sketch with all its decisions taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.nest import Array, Nest
from tensorlang.errors import ScheduleError

Columns = Mapping[str, Array]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class OpenTrace(Protocol):
    """What the tuner needs of a trace: other decisions, a stable key, a JSON form."""

    @property
    def key(self) -> str: ...

    def with_decisions(self, values: Mapping[str, int]) -> OpenTrace: ...

    def to_json(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class Constraint:
    """A limit of the device on decisions, checked before any build. `text` names it for the user."""

    text: str
    holds: Callable[[Columns], Mask]


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
        """Up to `count` different allowed candidates at random; all of them when the sketch is small."""
        if self.size <= 4 * count:
            every = self.unravel(np.arange(self.size))
            every = every[self.allowed(every)]
            return every[rng.permutation(len(every))[:count]]
        drawn = self.unravel(rng.integers(0, self.size, 4 * count))
        drawn = np.unique(drawn[self.allowed(drawn)], axis=0)
        return drawn[rng.permutation(len(drawn))[:count]]

    def unravel(self, numbers: npt.NDArray[np.int64]) -> Indices:
        """Candidate numbers (0 <= number < size) as rows of indices."""
        shape = tuple(len(values) for values in self.knobs.values())
        if not shape:
            return np.zeros((len(numbers), 0), dtype=np.int64)
        return np.stack(np.unravel_index(numbers, shape), axis=1).astype(np.int64)

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
        legal=["schedule it by hand, or tune a larger problem or another target"],
    )


def _emptied_by(sketch: Sketch, rng: np.random.Generator) -> str:
    """The first constraint after which no candidate is left."""
    size = min(sketch.size, 4096)
    numbers = np.arange(size) if sketch.size <= size else rng.integers(0, sketch.size, size)
    indices = sketch.unravel(numbers)
    for constraint in sketch.constraints:
        indices = indices[constraint.holds(sketch.columns(indices))]
        if not len(indices):
            return f"no candidate is left by: {constraint.text}"
    return "its decisions have no candidates"
