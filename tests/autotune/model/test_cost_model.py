"""The learned model: it corrects the prior, and drops a prior that misleads."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.autotune.model.cost_model import CostModel, fitted_slope, rank_correlation
from tensorlang.schedules.accesses import Array

Rows = np.ndarray[tuple[int, int], np.dtype[np.float32]]


def _samples(count: int, seed: int = 0) -> tuple[Rows, Array, Array]:
    """Features, a decent estimate, and times that differ from it by a factor that the features know."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 8, (count, 6)).astype(np.float32)
    estimates = np.exp(rows[:, 0].astype(float) / 2)
    seconds = estimates * np.exp(0.6 * (rows[:, 1] > 3) + 0.3 * rows[:, 2])
    return rows, estimates, seconds


def test_it_starts_as_the_estimate() -> None:
    rows, estimates, seconds = _samples(20)
    model = CostModel()
    model.fit(rows[:5], estimates[:5], seconds[:5])  # too few to learn from
    assert model.kind == "estimate"
    assert np.array_equal(model.score(rows, estimates), np.log(estimates))


def test_it_learns_what_the_estimate_misses() -> None:
    rows, estimates, seconds = _samples(200)
    model = CostModel()
    model.fit(rows[:100], estimates[:100], seconds[:100])
    assert model.kind == "residual"
    held_out = slice(100, 200)
    learned = rank_correlation(model.score(rows[held_out], estimates[held_out]), seconds[held_out])
    assert learned > rank_correlation(estimates[held_out], seconds[held_out]) + 0.1
    assert learned > 0.9


def test_residual_scores_are_log_seconds() -> None:
    rows, estimates, seconds = _samples(200)
    model = CostModel()
    model.fit(rows, estimates, seconds)
    assert abs(float(np.mean(model.score(rows, estimates) - np.log(seconds)))) < 0.05


def test_a_misleading_estimate_is_dropped() -> None:
    rows, estimates, seconds = _samples(200)
    model = CostModel()
    wrong = 1 / estimates
    model.fit(rows[:100], wrong[:100], seconds[:100])
    assert model.kind == "ranking"
    assert rank_correlation(model.score(rows[100:], wrong[100:]), seconds[100:]) > 0.8


def test_training_again_forgets_the_guard() -> None:
    rows, estimates, seconds = _samples(60)
    model = CostModel()
    model.fit(rows, 1 / estimates, seconds)
    model.fit(rows, estimates, seconds)
    assert model.kind == "residual"


def test_equal_seeds_give_equal_scores() -> None:
    rows, estimates, seconds = _samples(60)
    scores = []
    for seed in (1, 1, 2):
        model = CostModel(seed)
        model.fit(rows, estimates, seconds)
        scores.append(model.score(rows, estimates))
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 1, 2, 2], [1, 1, 2, 2], 1.0),
        ([1, 1, 1], [1, 2, 3], 0.0),
    ],
)
def test_rank_correlation_is_spearmans(a: list[float], b: list[float], expected: float) -> None:
    assert rank_correlation(np.array(a, float), np.array(b, float)) == pytest.approx(expected)


def test_slopes_stay_between_zero_and_one() -> None:
    x = np.arange(10.0)
    assert [fitted_slope(x, s * x) for s in (-1.0, 0.5, 3.0)] == pytest.approx([0.0, 0.5, 1.0])
    assert fitted_slope(np.ones(5), np.arange(5.0)) == 0.0
