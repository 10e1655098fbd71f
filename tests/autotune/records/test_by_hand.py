"""Records of schedules that no tuner made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang import autotune, te
from tensorlang.errors import DefinitionError


def test_a_hand_made_schedule_is_found_and_replayed(tmp_path: Path) -> None:
    task = autotune.create_task("matmul", (8, 8, 8), threads=1)
    s = te.create_schedule(task.outputs)
    s["C"].split("i", factor=4)
    log = tmp_path / "log"
    with autotune.LogWriter(log) as writer:
        writer.append(autotune.record_by_hand(task, s, [3e-6, 1e-6]))
    found = autotune.apply_best(log, task)
    assert found.trace == s.trace
    (record,) = autotune.read_log(log).records
    assert record.median == 2e-6 and record.sketch == "by hand"


@pytest.mark.parametrize("seconds", [[], [0.0], [1e-3, -1.0], [float("inf")]])
def test_times_that_are_none(seconds: list[float]) -> None:
    task = autotune.create_task("matmul", (8, 8, 8), threads=1)
    with pytest.raises(DefinitionError, match="a record wants times of runs in seconds"):
        autotune.record_by_hand(task, te.create_schedule(task.outputs), seconds)
