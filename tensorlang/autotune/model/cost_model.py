"""The score of candidates: an analytical prior, what XGBoost learned of its error, and a guard.

While the estimate orders what was measured well, the model learns `log t - slope * log t_hat` and scores in
log seconds. When the estimate misleads (Spearman correlation under 0.5), a pairwise ranking replaces it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tensorlang.autotune.model.nest import Array

Rows = npt.NDArray[np.float32]

FEWEST_TO_LEARN = 8
TRUSTED = 0.5


class CostModel:
    """Scores candidates; smaller is better. Starts as the analytical estimate alone."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._slope = 1.0
        self._learned: Callable[[Rows], Array] | None = None
        self.kind = "estimate"

    def fit(self, rows: Rows, estimates: Array, seconds: Array) -> None:
        """Learn from measured candidates: `rows` of features, estimated and measured seconds."""
        if len(seconds) < FEWEST_TO_LEARN:
            return
        from tensorlang.autotune.model import xgb_model

        prior, truth = np.log(estimates), np.log(seconds)
        if rank_correlation(prior, truth) < TRUSTED:
            self.kind, self._slope = "ranking", 0.0
            order = xgb_model.train_ranking(rows, _ranks(-truth), self._seed)
            self._learned = lambda queries: -order(queries)
            return
        self.kind, self._slope = "residual", fitted_slope(prior, truth)
        self._learned = xgb_model.train_regression(rows, truth - self._slope * prior, self._seed)

    def score(self, rows: Rows, estimates: Array) -> Array:
        """Score a population; log seconds, except for a ranking, whose scores only order."""
        prior = self._slope * np.log(estimates)
        return prior if self._learned is None else prior + self._learned(rows)


def fitted_slope(prior: Array, truth: Array) -> float:
    """The slope of truth over prior, between 0 and 1."""
    spread = float(np.var(prior))
    if spread == 0:
        return 0.0
    return float(np.clip(np.mean((prior - prior.mean()) * (truth - truth.mean())) / spread, 0, 1))


def _ranks(values: Array) -> Array:
    """Ranks from 0, ties sharing their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    middle = upper - (counts + 1) / 2
    return np.asarray(middle[place], dtype=np.float64)


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's correlation; zero when either is constant."""
    x, y = _ranks(a), _ranks(b)
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])
