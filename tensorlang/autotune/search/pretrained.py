"""The model that comes with the package: what the tuner knows of all programs before it measures any."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from tensorlang.autotune.model.cost_model import Transferred
from tensorlang.autotune.search.described import load_model

PRETRAINED = Path(__file__).parents[1] / "model" / "pretrained.ubj"
"""Made by `python -m benchmarks train`, of records of other programs than those of `python -m benchmarks tuning`."""

PACKAGED = "pretrained"


def chosen_model(model: str | os.PathLike[str] | None) -> Transferred | None:
    """The package's for `pretrained`, none for None, else the one in a file."""
    if model is None:
        return None
    return _pretrained() if model == PACKAGED else load_model(model)


@lru_cache(maxsize=1)
def _pretrained() -> Transferred:
    return load_model(PRETRAINED)
