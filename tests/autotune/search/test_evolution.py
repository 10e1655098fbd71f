"""Search: proposals are allowed, new, diverse, seeded, and find the best of a known landscape quickly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.autotune.model.cost_model import CostModel
from tensorlang.autotune.model.estimate import Estimate, Machine, estimate
from tensorlang.autotune.model.features import features
from tensorlang.autotune.model.nest import Nest
from tensorlang.autotune.search.evolution import Candidate, Evolution, Scorer
from tensorlang.autotune.search.population import Description
from tensorlang.autotune.search.sketch import Indices, Sketch, require_candidates
from tensorlang.errors import ScheduleError
from tensorlang.schedules.room import Constraint
from tensorlang.target.spec import Target

from ..fakes import fake_sketch

MACHINE = Machine.of(Target("llvm", vector_bytes=64, vector_registers=32))
Seen = set[tuple[str, tuple[int, ...]]]


def _scorer(seed: int = 0) -> Scorer:
    def guess(nests: tuple[Nest, ...]) -> Estimate:
        return estimate(nests, MACHINE, 1)

    return Scorer(guess, lambda nests, judged: features(nests, judged, MACHINE), CostModel(seed))


def _propose(sketches: list[Sketch], seed: int = 0, seen: Seen | None = None, count: int = 8) -> list[Candidate]:
    return Evolution(sketches, _scorer()).propose(seen or set(), [], count, np.random.default_rng(seed))


def _places(candidates: list[Candidate]) -> list[tuple[str, tuple[int, ...]]]:
    return [(c.sketch.name, c.row) for c in candidates]


def test_every_proposal_is_allowed_and_different() -> None:
    found = _propose([fake_sketch("a"), fake_sketch("b", 8)], count=16)
    assert len(set(_places(found))) == len(found) == 16
    assert all(c.sketch.allowed(np.array([c.row])).all() for c in found)


def test_equal_seeds_propose_the_same() -> None:
    seen: Seen = {("elsewhere", (0,))}  # something was measured: a share of the next is random
    runs = [_places(_propose([fake_sketch()], seed, seen, 24)) for seed in (5, 5, 6)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_what_was_seen_is_not_proposed_again() -> None:
    first = set(_places(_propose([fake_sketch()])))
    again = set(_places(_propose([fake_sketch()], seen=first)))
    assert not first & again


def test_a_space_is_used_up_and_then_empty() -> None:
    sketches = [fake_sketch("a", 2), fake_sketch("b", 3)]
    every = sum(int(s.allowed(s.unravel(np.arange(s.size))).sum()) for s in sketches)
    seen: Seen = set()
    evolution, rng = Evolution(sketches, _scorer()), np.random.default_rng(0)
    while batch := _places(evolution.propose(seen, [], 8, rng)):
        assert not seen & set(batch)
        seen |= set(batch)
    assert len(seen) == every


def test_a_batch_is_diverse() -> None:
    rows = [c.row for c in _propose([fake_sketch()])]
    near = [sum(x != y for x, y in zip(a, b, strict=True)) < 2 for a in rows for b in rows if a is not b]
    assert not any(near)


def test_candidates_carry_their_decisions() -> None:
    candidate = _propose([fake_sketch()])[0]
    assert candidate.trace.to_json() == candidate.decisions
    assert set(candidate.decisions) == {"rows", "width", "depth"}
    assert candidate.estimate > 0


def test_the_best_of_a_known_landscape_is_found_in_few_trials() -> None:
    """Times that the estimate knows nothing of: best at rows 5, width 48, depth 8."""

    def truth(c: Candidate) -> float:
        d = c.decisions
        return 1e-3 * (1 + abs(d["rows"] - 5) / 8 + abs(d["width"] - 48) / 32 + abs(d["depth"] - 8) / 8)

    def trials(seed: int) -> int:
        rng, scorer, sketch = np.random.default_rng(seed), _scorer(seed), fake_sketch()
        seen: Seen = set()
        measured: list[tuple[Candidate, float]] = []
        evolution = Evolution([sketch], scorer)
        while True:
            best = sorted(measured, key=lambda m: m[1])[:8]
            for c in evolution.propose(seen, [(sketch, m[0].row) for m in best], 8, rng):
                seen.add((sketch.name, c.row))
                measured.append((c, truth(c)))
                if truth(c) < 1.15e-3:
                    return len(measured)
            rows = np.stack([c.features for c, _ in measured])
            estimates = np.array([c.estimate for c, _ in measured])
            scorer.model.fit(rows, estimates, np.array([t for _, t in measured]))

    # 6 of about 320 candidates are that good: chance alone needs about 46.
    assert np.mean([trials(seed) for seed in range(5)]) < 35


def test_small_sketches_are_enumerated_and_large_ones_sampled() -> None:
    sketch, rng = fake_sketch(), np.random.default_rng(0)
    every = sketch.sample(rng, sketch.size)
    some = sketch.sample(rng, 20)
    assert len(every) == int(sketch.allowed(sketch.unravel(np.arange(sketch.size))).sum())
    assert len(some) == 20
    assert len(np.unique(some, axis=0)) == 20


def test_numbers_are_those_of_rows() -> None:
    sketch = fake_sketch()
    numbers = np.arange(sketch.size)
    assert np.array_equal(sketch.numbers(sketch.unravel(numbers)), numbers)


def test_nobody_is_described_twice_while_in_view() -> None:
    described: list[tuple[str, tuple[int, ...]]] = []

    class Counting(Scorer):
        def describe(self, sketch: Sketch, indices: Indices) -> Description:
            described.extend((sketch.name, tuple(row)) for row in indices.tolist())
            return super().describe(sketch, indices)

    plain = _scorer()
    sketches = [fake_sketch("a"), fake_sketch("b")]
    Evolution(sketches, Counting(plain.estimate, plain.features, plain.model)).propose(
        set(), [], 8, np.random.default_rng(0)
    )
    assert len(described) == len(set(described)) > 0


def test_an_empty_space_names_the_constraint() -> None:
    impossible = Constraint("tiles are made of gold", lambda v: v["rows"] > 1000)
    sketch = replace(fake_sketch("sad"), constraints=(*fake_sketch().constraints, impossible))
    with pytest.raises(ScheduleError, match="sad: no candidate is left by: tiles are made of gold"):
        require_candidates([sketch], np.random.default_rng(0))
    alive = require_candidates([sketch, fake_sketch("glad")], np.random.default_rng(0))
    assert [s.name for s in alive] == ["glad"]
    with pytest.raises(ScheduleError, match="no rule makes a sketch"):
        require_candidates([], np.random.default_rng(0))
