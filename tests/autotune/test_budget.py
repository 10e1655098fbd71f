"""What bounds a search, and what starts it: clear answers for values that do neither."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.autotune import create_task, tune
from tensorlang.autotune.budget import LARGEST_SEED, check_budget, checked_seed
from tensorlang.autotune.templates.task import collect
from tensorlang.autotune.tuners.index import RandomTuner
from tensorlang.autotune.tuners.run import tune_template
from tensorlang.errors import DefinitionError

from .templates import programs


@pytest.mark.parametrize("trials", [-1, 1.5, "3", None, math.nan, math.inf])
def test_trials_are_counted(trials: Any) -> None:
    with pytest.raises(DefinitionError, match="trials is a number of measurements, got"):
        check_budget(trials, None)


@pytest.mark.parametrize("seconds", [-1, math.nan, "x", -math.inf])
def test_seconds_are_a_time(seconds: Any) -> None:
    with pytest.raises(DefinitionError, match="seconds is a time or None, got"):
        check_budget(1, seconds)


def test_what_bounds_a_search() -> None:
    check_budget(0, 0, None)
    check_budget(np.int64(10**12), math.inf, 1)


@pytest.mark.parametrize("seed", [-1, LARGEST_SEED + 1, 1.5, "x", None])
def test_a_seed_that_records_cannot_hold_is_refused_before_any_measurement(seed: Any, tmp_path: Path) -> None:
    log, template = tmp_path / "log", collect(programs.matmul, (8, 8, 8), "llvm", 1)
    for search in (
        lambda: tune(create_task("matmul", (8, 8, 8), threads=1), 1, log=log, seed=seed),
        lambda: tune_template(template, 1, log=log, seed=seed),
        lambda: RandomTuner(template, seed=seed),
    ):
        with pytest.raises(DefinitionError, match="seed is a whole number from 0 to"):
            search()
    assert not log.exists()


def test_seeds_of_numpy_are_numbers() -> None:
    made = checked_seed(np.int64(7))
    assert (made, type(made)) == (7, int)
    assert checked_seed(LARGEST_SEED) == LARGEST_SEED
