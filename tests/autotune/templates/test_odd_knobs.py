"""Knobs that numbers do not describe, and axes that cannot be listed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensorlang import autotune, te
from tensorlang.autotune.templates.candidates import LONGEST
from tensorlang.autotune.templates.space import LARGEST_TABLE
from tensorlang.autotune.templates.task import collect
from tensorlang.autotune.tuners.learned import XGBTuner
from tensorlang.errors import DefinitionError

from ..tuners.fakes import fake_measurer


@autotune.template("tests/odd_knobs")
def odd(n: int, values: Sequence[Any]) -> Any:
    """A row split by a knob, and another knob that does nothing."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s, cfg = te.create_schedule(B.op), autotune.get_config()
    cfg.define_knob("odd", values)
    cfg.define_split("tile", s[B].op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, B, s[B].op.axis[0])
    return s, [A, B]


@pytest.mark.parametrize(
    "values", [[float("inf"), float("nan"), 1.0], [10**400, 1], [0, "a", None], [[1], [2, 3]], [b"x", {1}]]
)
def test_a_model_learns_from_knobs_of_any_value(values: list[Any]) -> None:
    task = collect(odd, (8, values), "llvm", 1)
    tuner = XGBTuner(task, plan_size=8)
    tuner.search(fake_measurer()[0], 4)
    assert tuner.trials == 4  # as many as there are schedules: the knob does nothing
    rows = task.config_space.features(task.config_space.sample(np.random.default_rng(0), 64))
    assert np.isfinite(rows).all()
    assert len(np.unique(rows, axis=0)) > len(task.config_space.space_map["tile"])  # and the values differ


def test_a_long_list_of_values_of_several_kinds_is_described() -> None:
    values = [*range(LARGEST_TABLE), float("inf"), "auto"]
    space = collect(odd, (4, values), "llvm", 1).config_space
    rows = space.features(np.asarray([[n, 0] for n in (0, LARGEST_TABLE, LARGEST_TABLE + 1)]))
    assert len(np.unique(rows[:, 0])) == 3


def test_an_axis_too_long_to_list_its_splits_is_refused_at_once() -> None:
    begun = time.process_time()
    with pytest.raises(DefinitionError, match="too many splits; list those to try: policy='candidate'"):
        collect(odd, (10**18 - 11, [1]), "llvm", 1)
    assert time.process_time() - begun < 20
    assert len(collect(odd, (LONGEST, [1]), "llvm", 1).config_space.space_map["tile"]) == 2  # a prime
