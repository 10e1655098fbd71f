"""The score of candidates: an analytical prior, what XGBoost learned of its error, and a guard.

While the estimate orders what was measured well, the model learns `log t - slope * log t_hat` and scores in
log seconds. When the estimate misleads (Spearman correlation under 0.5), a pairwise ranking replaces it.
What was learned from other programs may correct the estimate from the start: it is a part of the prior then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.schedules.accesses import Array

if TYPE_CHECKING:
    from tensorlang.autotune.model.xgb_model import Trees  # xgboost takes long to import

Rows = npt.NDArray[np.float32]

FEWEST_TO_LEARN = 8
TRUSTED = 0.5


@dataclass(frozen=True, slots=True)
class Transferred:
    """What was learned from measurements of other programs: what the estimate misses of the order of their candidates.

    It corrects the logarithm of the estimate. `names` are those of the features; a model of other features is refused.
    """

    trees: Trees
    names: tuple[str, ...]

    @staticmethod
    def learn(
        rows: Rows,
        estimates: Array,
        seconds: Array,
        names: tuple[str, ...],
        seed: int = 0,
        programs: Sequence[str] | None = None,
    ) -> Transferred:
        """Learn from measured candidates of any programs; `programs` names that of each: who is faster among them."""
        from tensorlang.autotune.model.xgb_model import train_transfer

        if len(seconds) < FEWEST_TO_LEARN:
            raise RecordError(f"a model needs at least {FEWEST_TO_LEARN} measured candidates, got {len(seconds)}")
        groups = [""] * len(seconds) if programs is None else list(programs)
        order = np.argsort(groups, kind="stable")
        _, counts = np.unique(groups, return_counts=True)
        ranks = [_ranks(-part) for part in np.split(seconds[order], np.cumsum(counts)[:-1])]
        known = -np.log(estimates[order])
        return Transferred(train_transfer(rows[order], known, np.concatenate(ranks), counts, seed), names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file."""
        self.trees.save(path, {"features": list(self.names)})

    @staticmethod
    def load(path: str | os.PathLike[str], names: tuple[str, ...]) -> Transferred:
        """Read a model of features with these names; RecordError when there is none in the file."""
        from tensorlang.autotune.model.xgb_model import load_trees

        trees, notes = load_trees(path)
        if tuple(notes.get("features", ())) != names:
            raise RecordError(f"{os.fspath(path)} was trained on other features, by another version: train it again")
        return Transferred(trees, names)


class CostModel:
    """Scores candidates; smaller is better. Starts as the analytical estimate, corrected by what was transferred."""

    def __init__(self, seed: int = 0, transferred: Transferred | None = None) -> None:
        self._seed = seed
        self._slope = 1.0
        self._transferred = transferred
        self._trees: Trees | None = None
        self.kind = "estimate"

    def fit(self, rows: Rows, estimates: Array, seconds: Array) -> None:
        """Learn from measured candidates: `rows` of features, estimated and measured seconds."""
        if len(seconds) < FEWEST_TO_LEARN:
            return
        from tensorlang.autotune.model import xgb_model

        prior, truth = self.prior(rows, estimates), np.log(seconds)
        if rank_correlation(prior, truth) < TRUSTED:
            self.kind, self._slope = "ranking", 0.0
            self._trees = xgb_model.train_ranking(rows, _ranks(-truth), self._seed)
            return
        self.kind, self._slope = "residual", fitted_slope(prior, truth)
        self._trees = xgb_model.train_regression(rows, truth - self._slope * prior, self._seed)

    def prior(self, rows: Rows, estimates: Array) -> Array:
        """Log seconds before anything of this program was measured."""
        known = np.log(estimates)
        return known if self._transferred is None else known - self._transferred.trees.predict(rows)

    def score(self, rows: Rows, estimates: Array) -> Array:
        """Score a population; log seconds, except for a ranking, whose scores only order."""
        prior = self._slope * self.prior(rows, estimates)
        if self._trees is None:
            return prior
        learned = self._trees.predict(rows)
        return prior - learned if self.kind == "ranking" else prior + learned

    def contributions(self, rows: Rows) -> Array:
        """What each feature adds to the score of every row, and last what all rows have; zeros before any learning."""
        found = np.zeros((len(rows), rows.shape[1] + 1))
        if self._transferred is not None:
            found -= self._slope * self._transferred.trees.contributions(rows)
        if self._trees is not None:
            found += (-1 if self.kind == "ranking" else 1) * self._trees.contributions(rows)
        return found


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
