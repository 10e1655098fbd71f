"""Evolutionary search over the decisions of sketches, with a share of random candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.cost_model import CostModel
from tensorlang.autotune.model.estimate import Estimate
from tensorlang.autotune.model.nest import Array, Nest
from tensorlang.autotune.search.sketch import Indices, OpenTrace, Sketch

POPULATION = 1024
GENERATIONS = 4
RANDOM_SHARE = 0.1
DIFFERENT_KNOBS = 2

Rows = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sketch with all its decisions taken.

    `row` is its place in the sketch, `estimate` in seconds. Candidates of a sketch with equal `loops` are one schedule:
    blocks longer than their axis, say, are all the same.
    """

    sketch: Sketch
    row: tuple[int, ...]
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
    """How populations are judged: the estimate of their nests, features, and the model over both."""

    estimate: Callable[[tuple[Nest, ...]], Estimate]
    features: Callable[[tuple[Nest, ...], Estimate], Rows]
    model: CostModel

    def describe(self, sketch: Sketch, indices: Indices) -> tuple[Rows, Array]:
        """Features and estimated seconds of a population."""
        nests = sketch.describe(indices)
        guess = self.estimate(nests)
        return self.features(nests, guess), guess.seconds

    def score(self, sketch: Sketch, indices: Indices) -> Array:
        """Scores of a population; smaller is better."""
        if not len(indices):
            return np.zeros(0)
        return self.model.score(*self.describe(sketch, indices))

    def candidates(self, chosen: Sequence[tuple[Sketch, tuple[int, ...]]]) -> list[Candidate]:
        """Make candidates of rows of sketches, described together."""
        made: dict[int, Candidate] = {}
        for sketch in {id(s): s for s, _ in chosen}.values():
            places = [n for n, (s, _) in enumerate(chosen) if s is sketch]
            indices = np.asarray([chosen[n][1] for n in places], dtype=np.int64).reshape(len(places), -1)
            nests = sketch.describe(indices)
            guess = self.estimate(nests)
            rows, trips = self.features(nests, guess), _trips(nests)
            for k, n in enumerate(places):
                place = tuple(map(int, chosen[n][1]))
                made[n] = Candidate(sketch, place, float(guess.seconds[k]), rows[k], trips[k].tobytes())
        return [made[n] for n in range(len(chosen))]


def _trips(nests: tuple[Nest, ...]) -> Array:
    """The trips of all loops of every candidate."""
    loops = [loop.trips for nest in nests for loop in nest.loops]
    return np.stack(loops, axis=1) if loops else np.zeros((nests[0].count, 0))


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A population over several sketches, best first."""

    sketches: npt.NDArray[np.int64]
    rows: list[tuple[int, ...]]
    scores: Array


def propose(
    sketches: Sequence[Sketch],
    scorer: Scorer,
    seen: set[tuple[str, tuple[int, ...]]],
    elites: Sequence[tuple[int, tuple[int, ...]]],
    count: int,
    rng: np.random.Generator,
) -> list[Candidate]:
    """Return up to `count` candidates not in `seen` ((sketch name, row)), most promising first.

    `elites` are (sketch number, row) of the best measured so far; they are the first parents. One in ten
    candidates is random, when something was measured already.
    """
    ranked = _evolve(sketches, scorer, elites, rng)
    at_random = sum(rng.random() < RANDOM_SHARE for _ in range(count)) if seen else 0
    picked = _pick_diverse(sketches, ranked, seen, count - at_random)
    taken = seen | {(sketches[n].name, row) for n, row in picked}
    picked += _pick_random(sketches, taken, count - len(picked), rng)
    return scorer.candidates([(sketches[n], row) for n, row in picked])


def _evolve(
    sketches: Sequence[Sketch],
    scorer: Scorer,
    elites: Sequence[tuple[int, tuple[int, ...]]],
    rng: np.random.Generator,
) -> _Ranked:
    """Score random candidates and elites, then breed the best for some generations."""
    share = max(64, POPULATION // len(sketches))
    pools: list[Indices] = []
    for n, sketch in enumerate(sketches):
        own = [row for m, row in elites if m == n]
        drawn = sketch.sample(rng, share)
        pools.append(np.concatenate([np.asarray(own, dtype=np.int64).reshape(len(own), len(sketch.knobs)), drawn]))
    scores = [scorer.score(s, pool) for s, pool in zip(sketches, pools, strict=True)]
    for _ in range(GENERATIONS):
        bar = np.quantile(np.concatenate(scores), 0.25)
        for n, sketch in enumerate(sketches):
            parents = pools[n][scores[n] <= bar]
            if not len(parents):
                continue
            fresh = _breed(sketch, parents, rng)
            merged = np.unique(np.concatenate([pools[n], fresh]), axis=0)
            judged = scorer.score(sketch, merged)
            kept = np.argsort(judged, kind="stable")[: 2 * share]
            pools[n], scores[n] = merged[kept], judged[kept]
    owners = np.concatenate([np.full(len(p), n, dtype=np.int64) for n, p in enumerate(pools)])
    rows = [tuple(map(int, row)) for pool in pools for row in pool]
    flat = np.concatenate(scores)
    order = np.argsort(flat, kind="stable")
    return _Ranked(owners[order], [rows[i] for i in order], flat[order])


def _breed(sketch: Sketch, parents: Indices, rng: np.random.Generator) -> Indices:
    """Children of the parents: half crossed, all mutated in about one knob; only allowed ones."""
    if not len(sketch.knobs):
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


def _pick_diverse(
    sketches: Sequence[Sketch], ranked: _Ranked, seen: set[tuple[str, tuple[int, ...]]], count: int
) -> list[tuple[int, tuple[int, ...]]]:
    """The best unseen candidates that differ from one another in two knobs; closer ones only to fill up."""
    fresh = [
        (int(n), row)
        for n, row in zip(ranked.sketches, ranked.rows, strict=True)
        if (sketches[n].name, row) not in seen
    ]
    picked: list[tuple[int, tuple[int, ...]]] = []
    for n, row in fresh:
        if len(picked) == count:
            return picked
        if all(m != n or _distance(row, other) >= DIFFERENT_KNOBS for m, other in picked):
            picked.append((n, row))
    rest = [item for item in fresh if item not in picked]
    return picked + rest[: count - len(picked)]


def _distance(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


def _pick_random(
    sketches: Sequence[Sketch], taken: set[tuple[str, tuple[int, ...]]], count: int, rng: np.random.Generator
) -> list[tuple[int, tuple[int, ...]]]:
    """Up to `count` unseen candidates, at random."""
    if count <= 0:
        return []
    unseen = [
        (n, row)
        for n, sketch in enumerate(sketches)
        for row in (tuple(map(int, r)) for r in sketch.sample(rng, count + len(taken)))
        if (sketch.name, row) not in taken
    ]
    return [unseen[i] for i in rng.permutation(len(unseen))[:count]]
