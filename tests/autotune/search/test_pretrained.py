"""The model that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from tensorlang.autotune.model.features import feature_names
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.pretrained import PACKAGED, PRETRAINED, chosen_model
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import create_task
from tensorlang.errors import RecordError


def test_it_is_packaged_and_knows_our_features() -> None:
    file = resources.files("tensorlang.autotune.model").joinpath("pretrained.ubj")
    assert Path(str(file)) == PRETRAINED
    model = chosen_model(PACKAGED)
    assert model is not None, "train it again: python -m benchmarks train"
    assert model.names == feature_names()


def test_it_corrects_the_estimate() -> None:
    task = create_task("matmul", (96, 96, 96), threads=1)
    (sketch, *_) = sketches_of(task)
    rows = sketch.sample(np.random.default_rng(0), 64)
    plain, taught = make_scorer(task, 0), make_scorer(task, 0, chosen_model(PACKAGED))
    before, after = plain.score(sketch, rows), taught.score(sketch, rows)
    assert np.all(np.isfinite(after))
    assert np.ptp(after - before) > 0.01


def test_first_proposals_depend_on_the_model_alone() -> None:
    task = create_task("matmul", (96, 96, 96), threads=1)
    space = tuple(sketches_of(task))
    batches = []
    for _ in range(2):
        known = Knowledge(space, make_scorer(task, 0, chosen_model(PACKAGED)))
        batches.append([c.trace.key for c in known.next_batch(8, np.random.default_rng(3))])
    assert batches[0] == batches[1]


def test_others_are_files(tmp_path: Path) -> None:
    assert chosen_model(None) is None
    copy = tmp_path / "copy.ubj"
    copy.write_bytes(PRETRAINED.read_bytes())
    model = chosen_model(copy)
    assert model is not None and model.names == feature_names()
    with pytest.raises(RecordError, match="no model file"):
        chosen_model(tmp_path / "absent.ubj")
