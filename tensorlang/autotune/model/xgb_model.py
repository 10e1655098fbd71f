"""XGBoost, through its core interface: the only file that imports it."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import xgboost

from tensorlang.autotune.records.regular import read_regular, replace_regular
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.files import writing

Rows = npt.NDArray[np.float32]
Values = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

MOST_BYTES = 64 << 20
"""Of a model file; the one that ships has a tenth of a megabyte."""
ROUNDS = 80
TRANSFER_ROUNDS = 80
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

_CAREFUL = {"max_depth": 2, "eta": 0.07, "colsample_bytree": 0.5, "lambdarank_num_pair_per_sample": 20}
"""For what is used on other programs than it was learned from: trees that split less."""
_RANKING = {"objective": "rank:pairwise", "lambdarank_pair_method": "mean"}
"""By default only pairs with the top 32 count, which gets worse the more is measured."""


@dataclass(frozen=True, slots=True)
class Trees:
    """A trained model over rows of features."""

    booster: xgboost.Booster

    def predict(self, rows: Rows) -> Values:
        """The label of every row."""
        return np.asarray(self.booster.inplace_predict(rows), dtype=np.float64)

    def contributions(self, rows: Rows) -> Values:
        """What each feature adds to the prediction of every row; the last column is what all rows have."""
        data = xgboost.DMatrix(rows, nthread=1)
        return np.asarray(self.booster.predict(data, pred_contribs=True), dtype=np.float64)

    def save(self, path: str | os.PathLike[str], notes: dict[str, Any]) -> None:
        """Write a model file (UBJSON) with notes about it; TensorlangError where that cannot be."""
        self.booster.set_attr(notes=json.dumps(notes))
        with writing(path):
            replace_regular(path, bytes(self.booster.save_raw("ubj")))


def load_trees(path: str | os.PathLike[str]) -> tuple[Trees, dict[str, Any]]:
    """Read a model file and its notes; RecordError when it is not one.

    XGBoost reads it by machine code that trusts it: a model is to be from somebody whose programs one would run.
    """
    booster = xgboost.Booster({"nthread": 1})
    try:
        content = read_regular(path, most=MOST_BYTES)
        if content[:1] != b"{":
            raise ValueError("it is neither UBJSON nor JSON")  # other formats of XGBoost's are not read
        booster.load_model(bytearray(content))
        notes = json.loads(booster.attr("notes") or "")
        if not isinstance(notes, dict):
            raise ValueError("its notes are no object")
    except (OSError, ValueError, RecursionError, xgboost.core.XGBoostError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RecordError(f"{os.fspath(path)} is no model file of the tuner: {why}") from None
    return Trees(booster), notes


def train_regression(rows: Rows, labels: Values, seed: int) -> Trees:
    """Learn `labels` by least squares."""
    return _train({"objective": "reg:squarederror", "base_score": float(np.mean(labels))}, rows, labels, seed)


def train_transfer(rows: Rows, known: Values, labels: Values, counts: Counts, seed: int) -> Trees:
    """Learn what to add to `known` scores to order rows by `labels`, larger first, for use on other programs.

    Rows are of several programs, `counts` of each, one after the other; only those of one are compared.
    """
    data = xgboost.DMatrix(rows, label=labels, base_margin=known, nthread=1)
    data.set_group(counts)
    return Trees(xgboost.train({**_SHARED, **_RANKING, **_CAREFUL, "seed": seed}, data, TRANSFER_ROUNDS))


def train_ranking(rows: Rows, labels: Values, seed: int) -> Trees:
    """Learn to order rows by `labels`, larger first, from all pairs."""
    return _train({**_RANKING, "lambdarank_num_pair_per_sample": len(rows)}, rows, labels, seed, group=True)


def _train(objective: dict[str, Any], rows: Rows, labels: Values, seed: int, group: bool = False) -> Trees:
    data = xgboost.DMatrix(rows, label=labels, nthread=1)
    if group:
        data.set_group([len(rows)])
    return Trees(xgboost.train({**_SHARED, **objective, "seed": seed}, data, ROUNDS))
