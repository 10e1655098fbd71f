"""Callbacks of templates' tuners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorlang.autotune import callback, read_log
from tensorlang.autotune.records.rewriting import merge_logs
from tensorlang.autotune.templates.task import collect
from tensorlang.autotune.tuners.index import RandomTuner
from tensorlang.errors import DefinitionError

from .templates import programs
from .tuners.fakes import fake_measurer


def _searched(callbacks: Any) -> RandomTuner:
    tuner = RandomTuner(collect(programs.matmul, (8, 8, 8), "llvm", 1))
    tuner.search(fake_measurer()[0], 4, callbacks=callbacks)
    return tuner


def test_a_log_is_free_when_tuning_is_over(tmp_path: Path) -> None:
    """It may be merged, repaired or moved in the process that tuned; the callback may be used on."""
    log = tmp_path / "log"
    append = callback.log_to_file(log)
    first = _searched([append]).records
    merged, _ = merge_logs([log], log)
    assert len(merged.records) == len(first)
    log.rename(tmp_path / "moved")
    second = _searched([append]).records
    assert read_log(log).records == tuple(second)


@pytest.mark.parametrize("si_prefix", ["X", None, 3])
def test_a_bar_knows_its_units(si_prefix: Any) -> None:
    with pytest.raises(DefinitionError, match="si_prefix is one of '', 'K', 'M', 'G', 'T', got"):
        callback.progress_bar(4, si_prefix=si_prefix)
