"""Evolutionary search over the decisions of sketches, with a share of random candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

import numpy as np

from tensorlang.autotune.model.cost_model import CostModel
from tensorlang.autotune.model.estimate import Estimate
from tensorlang.autotune.model.nest import Nest
from tensorlang.autotune.search.population import Description, Population, Rows
from tensorlang.autotune.search.sketch import Indices, OpenTrace, Sketch
from tensorlang.dataclass import dataclass
from tensorlang.schedules.accesses import Array

POPULATION = 1024
FIRST_GENERATIONS = 4
GENERATIONS = 1  # of every later proposal
REFRESHED = 4  # in so many proposals every sketch gets newcomers
RANDOM_SHARE = 0.1
DIFFERENT_KNOBS = 2

Row: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[Sketch, Row]
Seen: TypeAlias = tuple[str, Row]
"""A candidate by the name of its sketch."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sketch with all its decisions taken.

    `row` is its place in the sketch, `estimate` in seconds. Candidates of a sketch with equal `loops` are one schedule:
    blocks longer than their axis, say, are all the same.
    """

    sketch: Sketch
    row: Row
    estimate: float
    features: Rows
    loops: bytes = b""

    @property
    def decisions(self) -> dict[str, int]:
        return self.sketch.decisions(self.row)

    @property
    def trace(self) -> OpenTrace:
        """The trace of this candidate: no user code runs."""
        return self.sketch.trace.with_decisions(self.decisions)


@dataclass(frozen=True, slots=True)
class Scorer:
    """How candidates are judged: the estimate of their nests, features, and the model over both."""

    estimate: Callable[[tuple[Nest, ...]], Estimate]
    features: Callable[[tuple[Nest, ...], Estimate], Rows]
    model: CostModel

    def describe(self, sketch: Sketch, indices: Indices) -> Description:
        """What the model judges candidates by, and what tells equal schedules."""
        nests = sketch.describe(indices)
        guess = self.estimate(nests)
        loops = [loop.trips for nest in nests for loop in nest.loops]
        trips = np.stack(loops, axis=1) if loops else np.zeros((len(indices), 0))
        return Description(self.features(nests, guess), guess.seconds, trips)

    def score(self, sketch: Sketch, indices: Indices) -> Array:
        """Scores of some candidates of a sketch."""
        return self.judge([self.describe(sketch, indices)])[0]

    def judge(self, described: Sequence[Description]) -> list[Array]:
        """Scores of candidates of several sketches, all at once; smaller is better."""
        estimates = np.concatenate([d.estimates for d in described])
        if not len(estimates):
            return [estimates] * len(described)
        scores = self.model.score(np.concatenate([d.features for d in described]), estimates)
        ends = np.cumsum([len(d.estimates) for d in described])
        return np.split(scores, ends[:-1])

    def candidates(self, chosen: Sequence[Place]) -> list[Candidate]:
        """Make candidates of rows of sketches, described together."""
        made: dict[int, Candidate] = {}
        for sketch in {id(s): s for s, _ in chosen}.values():
            places = [n for n, (s, _) in enumerate(chosen) if s is sketch]
            described = self.describe(sketch, sketch.indices([chosen[n][1] for n in places]))
            made |= {n: _candidate(sketch, chosen[n][1], described, k) for k, n in enumerate(places)}
        return [made[n] for n in range(len(chosen))]


def _candidate(sketch: Sketch, row: Row, described: Description, place: int) -> Candidate:
    estimate, features = float(described.estimates[place]), described.features[place]
    return Candidate(sketch, row, estimate, features, described.loops[place].tobytes())


class Evolution:
    """Populations of all sketches, which go on breeding from one proposal to the next."""

    def __init__(self, sketches: Sequence[Sketch], scorer: Scorer) -> None:
        self._scorer = scorer
        self._populations = [Population.of(sketch, scorer.describe) for sketch in sketches]
        self._share = max(64, POPULATION // len(sketches))
        self._proposals = 0

    def propose(
        self, seen: AbstractSet[Seen], elites: Sequence[Place], count: int, rng: np.random.Generator
    ) -> list[Candidate]:
        """Return up to `count` candidates not in `seen`, most promising first.

        `elites` are the best measured so far; they are the first parents. One in ten candidates is random, when
        something was measured already.
        """
        if count <= 0:
            return []
        for number, population in enumerate(self._populations):
            self._change(number, population, seen, elites, rng)
        self._judge([(population, slice(None)) for population in self._populations])
        for _ in range(GENERATIONS if self._proposals else FIRST_GENERATIONS):
            self._go_on(rng)
        self._proposals += 1
        at_random = sum(rng.random() < RANDOM_SHARE for _ in range(count)) if seen else 0
        picked = self._pick_diverse(seen, count - at_random)
        taken = seen | {(candidate.sketch.name, candidate.row) for candidate in picked}
        return picked + self._scorer.candidates(self._pick_random(taken, count - len(picked), rng))

    def _change(
        self,
        number: int,
        population: Population,
        seen: AbstractSet[Seen],
        elites: Sequence[Place],
        rng: np.random.Generator,
    ) -> None:
        """Let the elites join, and newcomers now and then; who was measured and is no elite leaves."""
        sketch = population.sketch
        known = sketch.numbers(sketch.indices([row for name, row in seen if name == sketch.name]))
        joining = sketch.indices([row for other, row in elites if other is sketch])
        leaving = np.isin(population.numbers, np.setdiff1d(known, sketch.numbers(joining)))
        population.keep(np.flatnonzero(~leaving))
        if not self._proposals or (number + self._proposals) % REFRESHED == 0:
            joining = np.concatenate([joining, sketch.sample(rng, self._share)])
        population.join(joining, self._scorer.describe)

    def _go_on(self, rng: np.random.Generator) -> None:
        """One generation: the best quarter of all has children, and the best of each population stay."""
        scores = np.concatenate([population.scores for population in self._populations])
        bar = np.quantile(scores, 0.25) if len(scores) else 0.0
        born: list[tuple[Population, slice]] = []
        for population in self._populations:
            children = _breed(population.sketch, population.rows[population.scores <= bar], rng)
            born.append((population, population.join(children, self._scorer.describe)))
        self._judge(born)
        for population in self._populations:
            population.keep(np.argsort(population.scores, kind="stable")[: 2 * self._share])

    def _judge(self, parts: Sequence[tuple[Population, slice]]) -> None:
        """Score parts of populations, all at once."""
        scores = self._scorer.judge([population.described[part] for population, part in parts])
        for (population, part), found in zip(parts, scores, strict=True):
            population.scores[part] = found

    def _pick_diverse(self, seen: AbstractSet[Seen], count: int) -> list[Candidate]:
        """The best unseen candidates that differ from one another in two knobs; closer ones only to fill up."""
        sizes = [len(population.scores) for population in self._populations]
        owners = np.repeat(np.arange(len(sizes)), sizes)
        places = np.concatenate([np.arange(size) for size in sizes])
        rows = [population.rows for population in self._populations]
        apart: list[tuple[Population, Row, int]] = []
        close: list[tuple[Population, Row, int]] = []
        for at in np.argsort(np.concatenate([population.scores for population in self._populations]), kind="stable"):
            if len(apart) >= count:
                break
            owner, place = int(owners[at]), int(places[at])
            population, row = self._populations[owner], tuple(rows[owner][place].tolist())
            if (population.sketch.name, row) in seen:
                continue
            near = any(p is population and _distance(row, other) < DIFFERENT_KNOBS for p, other, _ in apart)
            (close if near else apart).append((population, row, place))
        chosen = [*apart, *close][: max(0, count)]
        return [_candidate(p.sketch, row, p.described, place) for p, row, place in chosen]

    def _pick_random(self, taken: AbstractSet[Seen], count: int, rng: np.random.Generator) -> list[Place]:
        """Up to `count` unseen candidates at random, of one sketch after the other in random order."""
        found: list[Place] = []
        for number in rng.permutation(len(self._populations)):
            if len(found) >= count:
                break
            sketch = self._populations[number].sketch
            own = sum(name == sketch.name for name, _ in taken)
            drawn = [tuple(row) for row in sketch.sample(rng, count + own).tolist()]
            found += [(sketch, row) for row in drawn if (sketch.name, row) not in taken][: count - len(found)]
        return found


def _breed(sketch: Sketch, parents: Indices, rng: np.random.Generator) -> Indices:
    """Children of the parents: half crossed, all mutated in about one knob; only allowed ones."""
    if not len(sketch.knobs) or not len(parents):
        return parents[:0]
    count = max(64, 2 * len(parents))
    mothers, fathers = (parents[rng.integers(0, len(parents), count)] for _ in range(2))
    crossed = np.where(rng.random(mothers.shape) < 0.5, mothers, fathers)
    children = np.where(rng.random((count, 1)) < 0.5, crossed, mothers)
    sizes = np.asarray([len(values) for values in sketch.knobs.values()])
    stepped = np.clip(children + rng.choice([-1, 1], children.shape), 0, sizes - 1)
    jumped = rng.integers(0, sizes, children.shape)
    changed = np.where(rng.random(children.shape) < 0.5, stepped, jumped)
    mutate = rng.random(children.shape) < 1 / len(sizes)
    children = np.where(mutate, changed, children)
    return children[sketch.allowed(children)]


def _distance(a: Row, b: Row) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))
