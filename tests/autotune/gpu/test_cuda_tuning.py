"""Tuning for CUDA on an emulated device: builders, a runner with the device, events, cold caches, the log, its use."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorlang
from tensorlang import te
from tensorlang.autotune import Status, apply_best, apply_history_best, create_task, read_log, tune
from tensorlang.autotune.measuring.harness import Limits, Measurement
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.space import sketches_of
from tensorlang.errors import TargetError
from tests.target.cuda.emulated import EmulatedCupy, Job

from .programs import drawn

SIZES = (8, 8, 8)
GOOD = (Status.OK, Status.NOISY)
FOLDER = Path(__file__).parent


def test_tuning_from_the_first_candidate_to_a_schedule_in_use(emulated_cuda: EmulatedCupy, tmp_path: Path) -> None:
    task, log = create_task(f"{FOLDER / 'narrow.py'}:product", (32, 32, 32, "bfloat16", 1), "cuda"), tmp_path / "log"
    result = tune(task, trials=2, log=log, seed=1)
    assert read_log(log).records == result.records
    assert len(result.records) == 2
    assert not set(result.failures) - {"noisy"}, result.failures
    for record in result.records:
        assert (record.target["kind"], record.target["cpu"]) == ("cuda", "sm_90a")
        assert record.checked
        assert record.conditions["flush"] and record.conditions["driver"] == "13000"
        assert min(record.seconds) > 0
    assert emulated_cuda.launches == 0  # they were measured in a process of their own
    assert "record of" in apply_best(log, list(task.tensors), target="cuda").origin
    with apply_history_best(log, miss="error"):
        built = tensorlang.build(te.create_schedule(task.outputs[0].op), list(task.tensors), target="cuda")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (32, 32)).astype(ml_dtypes.bfloat16) for _ in "ab")
    out = np.empty((32, 32), np.float32)
    built(a, b, out)
    assert emulated_cuda.launches == 1
    np.testing.assert_array_equal(out, np.maximum(a.astype(np.float32) @ b.astype(np.float32).T, 0))


@pytest.fixture
def measurer(emulated_cuda: EmulatedCupy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measurer]:
    """A real one, some of whose candidates break the device."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=os.pathsep)
    monkeypatch.syspath_prepend(str(FOLDER))
    loaded = importlib.import_module("broken")  # by the name that the workers know it by
    for function in (loaded.build_candidate, loaded.run_candidate):
        job = Job(function, tuple(emulated_cuda.capabilities), emulated_cuda.mode, emulated_cuda.seed)
        monkeypatch.setattr(f"tensorlang.autotune.measuring.measurer.{function.__name__}", job)
    with Measurer(create_task("matmul", SIZES, "cuda"), limits=Limits(run=60.0, build=60.0, builders=1)) as made:
        yield made
    sys.modules.pop("broken")


def test_a_lost_context_costs_one_worker_and_nothing_else(measurer: Measurer) -> None:
    sketch = sketches_of(measurer.task)[0]
    good: Any = sketch.trace.with_decisions(drawn(sketch, 1, 0)[0]).to_json()
    bad = {"fault": "address", "trace": good}
    results: dict[int, Measurement] = dict(measurer.measure([good, bad, good], lambda: None))
    assert [results[n].status in GOOD for n in (0, 2)] == [True] * 2, results
    assert results[1].status is Status.RUN_ERROR
    assert "KernelError" in results[1].error
    assert measurer._runner.starts == 2


def test_another_architecture_is_refused(emulated_cuda: EmulatedCupy) -> None:
    with pytest.raises(TargetError, match="the CUDA device here is sm_90a"):
        tune(create_task("matmul", SIZES, "cuda -arch=sm_100"), trials=1)
