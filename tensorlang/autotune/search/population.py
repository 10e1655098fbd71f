"""Candidates of one sketch that the search has in view, as they were described: only the model's opinion changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.search.sketch import Indices, Sketch
from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import Array

Rows = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of candidates of a sketch before any is measured.

    `loops`: the trips of all loops; candidates with equal ones are one schedule.
    """

    features: Rows
    estimates: Array
    loops: Array

    def __getitem__(self, part: slice | Numbers) -> Description:
        return Description(self.features[part], self.estimates[part], self.loops[part])

    def and_then(self, other: Description) -> Description:
        """These and others."""
        return Description(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.estimates, other.estimates]),
            np.concatenate([self.loops, other.loops]),
        )


Describe = Callable[[Sketch, Indices], Description]


@dataclass(slots=True)
class Population:
    """Candidates by their numbers in the sketch, each once; `scores` are those of the last judgement."""

    sketch: Sketch
    numbers: Numbers
    described: Description
    scores: Array

    @staticmethod
    def of(sketch: Sketch, describe: Describe) -> Population:
        """Nobody yet."""
        nobody = np.zeros(0, np.int64)
        return Population(sketch, nobody, describe(sketch, sketch.unravel(nobody)), np.zeros(0))

    @property
    def rows(self) -> Indices:
        """The candidates as rows of indices."""
        return self.sketch.unravel(self.numbers)

    def join(self, indices: Indices, describe: Describe) -> slice:
        """Take in candidates that are not there yet, and tell their places; they have no score."""
        fresh = np.setdiff1d(self.sketch.numbers(indices), self.numbers)
        before = len(self.numbers)
        if len(fresh):
            self.described = self.described.and_then(describe(self.sketch, self.sketch.unravel(fresh)))
            self.numbers = np.concatenate([self.numbers, fresh])
            self.scores = np.concatenate([self.scores, np.full(len(fresh), np.inf)])
        return slice(before, len(self.numbers))

    def keep(self, places: Numbers) -> None:
        """Leave out all candidates but some."""
        self.numbers, self.scores, self.described = self.numbers[places], self.scores[places], self.described[places]
