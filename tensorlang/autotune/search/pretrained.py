"""The model that comes with the package: what the tuner knows of all programs before it measures any."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from tensorlang.autotune.model.cost_model import Transferred
from tensorlang.autotune.search.described import load_model
from tensorlang.errors import RecordError
from tensorlang.target.spec import Target

PRETRAINED = Path(__file__).parents[1] / "model" / "pretrained.ubj"
"""Made by `python -m benchmarks train`, of records of other programs than those of `python -m benchmarks tuning`."""

PACKAGED = "pretrained"


def chosen_model(model: str | os.PathLike[str] | None, target: Target | None = None) -> Transferred | None:
    """The package's for `pretrained`, none for None, else the one in a file.

    RecordError for the target of a GPU, of which no model knows anything.
    """
    if model is None:
        return None
    if target is not None and target.can.device:
        text = f"model {os.fspath(model)} was learned from CPUs, and there is none for target {target.kind}"
        raise RecordError(f"{text}; leave it out: the search learns from its own measurements")
    return _pretrained() if model == PACKAGED else load_model(model)


@lru_cache(maxsize=1)
def _pretrained() -> Transferred:
    return load_model(PRETRAINED)
