"""XGBoost, through its core interface: the only file that imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

Rows = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]

ROUNDS = 80
# One thread: the libraries of this process and the kernels under test share the cores.
_SHARED: dict[str, Any] = {
    "max_depth": 6,
    "eta": 0.1,
    "subsample": 0.9,
    "colsample_bytree": 0.7,
    "tree_method": "hist",
    "nthread": 1,
    "verbosity": 0,
}


def train_regression(rows: Rows, labels: Values, seed: int) -> Callable[[Rows], Values]:
    """Learn `labels` by least squares; returns a predictor of rows."""
    return _train({"objective": "reg:squarederror", "base_score": float(np.mean(labels))}, rows, labels, seed)


def train_ranking(rows: Rows, labels: Values, seed: int) -> Callable[[Rows], Values]:
    """Learn to order rows by `labels`, larger first, from all pairs; returns a predictor of scores."""
    # By default only pairs with the top 32 count, which gets worse the more is measured.
    ranking = {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": len(rows),
    }
    return _train(ranking, rows, labels, seed, group=True)


def _train(
    objective: dict[str, Any], rows: Rows, labels: Values, seed: int, group: bool = False
) -> Callable[[Rows], Values]:
    data = xgboost.DMatrix(rows, label=labels, nthread=1)
    if group:
        data.set_group([len(rows)])
    booster = xgboost.train({**_SHARED, **objective, "seed": seed}, data, ROUNDS)

    def predict(queries: Rows) -> Values:
        return np.asarray(booster.inplace_predict(queries), dtype=np.float64)

    return predict
