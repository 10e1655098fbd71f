"""How fast candidates are judged: features and a trained model, on one core, in the space of a matmul."""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.figure import Figure
from benchmarks.peers.process import pinned
from tensorlang.autotune import create_task
from tensorlang.autotune.search.evolution import Scorer
from tensorlang.autotune.search.knowledge import make_scorer
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import sketches_of

SIZES = (1024, 1024, 1024)
POPULATION = 10_000
TRAINED_ON = 256
TURNS = 9
CANDIDATES_A_SECOND = 200_000


def measure() -> list[Figure]:
    """Candidates a second of processor time: described and scored by a model that has learned from some trials."""
    task, rng = create_task("matmul", SIZES, threads=1), np.random.default_rng(0)
    with pinned(1):
        space = require_candidates(sketches_of(task), rng)
        scorer = make_scorer(task, 0)
        largest = max(space, key=lambda sketch: sketch.size)
        known = scorer.describe(largest, largest.sample(rng, TRAINED_ON))
        seconds = known.estimates * rng.lognormal(0, 0.1, len(known.estimates))
        scorer.model.fit(known.features, known.estimates, seconds)
        rates = [_rate(scorer, sketch, rng) for sketch in space]
    return [
        Figure(
            f"candidates of matmul {'×'.join(map(str, SIZES))} scored a second, median of {len(space)} sketches",
            statistics.median(rates),
            "",
            CANDIDATES_A_SECOND,
            at_most=False,
        ),
        Figure("the same, in the sketch that is described slowest", min(rates), ""),
    ]


def _rate(scorer: Scorer, sketch: Sketch, rng: np.random.Generator) -> float:
    """The median over some turns. Rows may repeat: a population is as large in every sketch."""
    few = sketch.sample(rng, POPULATION)
    population = few[rng.integers(0, len(few), POPULATION)]
    seconds = []
    for _ in range(TURNS):
        start = time.process_time()
        scorer.score(sketch, population)
        seconds.append(time.process_time() - start)
    return POPULATION / statistics.median(seconds)
