"""Tuning on a CUDA device: candidates by threads and on tensor cores, timed by its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang.autotune import create_task, read_log, tune
from tests.device_targets import needs_cuda

pytestmark = list(needs_cuda)
FOLDER = Path(__file__).parent


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("matmul", (64, 96, 48)), (f"{FOLDER / 'narrow.py'}:product", (64, 64, 128, "bfloat16", 1))],
    ids=["matmul", "on tensor cores"],
)
def test_candidates_are_measured(name: str, sizes: tuple[int | str, ...], tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = tune(create_task(name, sizes, "cuda"), trials=4, log=log, seed=1)
    assert read_log(log).records == result.records
    assert len(result.records) == 4
    assert not set(result.failures) - {"noisy"}, result.failures
    assert all(r.checked and r.conditions["flush"] and min(r.seconds) > 0 for r in result.records)
