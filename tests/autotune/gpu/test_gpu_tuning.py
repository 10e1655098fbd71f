"""Tuning on an OpenCL device: from the first candidate to a schedule in use, and candidates that break the device."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensorlang
from tensorlang import te, topi
from tensorlang.autotune import Result, Status, apply_best, apply_history_best, bench_best, create_task, read_log, tune
from tensorlang.autotune.devices import named_device, timed_device
from tensorlang.autotune.explanation import explain
from tensorlang.autotune.measuring.device import device_clock
from tensorlang.autotune.measuring.harness import Limits, Measurement
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task
from tensorlang.autotune.validation import validate
from tensorlang.cli.main import tensorlang as command_line
from tensorlang.errors import TargetError
from tensorlang.runtime.timer import Timing
from tensorlang.target import parse
from tensorlang.target.cuda.executable import CudaExecutable
from tensorlang.target.opencl.runtime import OpenclDevice

from .programs import drawn

TRIALS = 8
SIZES = (64, 96, 48)
GOOD = (Status.OK, Status.NOISY)
FOLDER = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def task(device: OpenclDevice) -> Task:
    return create_task("matmul", SIZES, "opencl")


@pytest.fixture(scope="module")
def tuned(task: Task, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """Some trials in a log, the last of them in a second run."""
    log = tmp_path_factory.mktemp("tuned") / "log"
    tune(task, trials=TRIALS - 3, log=log, seed=1)
    return tune(task, trials=TRIALS, log=log, seed=1), log


def test_the_best_is_at_least_as_fast_as_the_first(tuned: tuple[Result, Path]) -> None:
    result, log = tuned
    assert (len(result.records), result.resumed) == (TRIALS, TRIALS - 3)
    assert read_log(log).records == result.records
    assert not set(result.failures) - {"noisy"}, result.failures
    first = next(record for record in result.records if record.ok)
    assert result.best is not None
    assert result.best.median <= first.median


def test_records_name_the_device_and_its_driver(tuned: tuple[Result, Path], device: OpenclDevice) -> None:
    record = tuned[0].records[0]
    assert (record.target["kind"], record.target["cpu"]) == ("opencl", str(device))
    assert record.target["gpu"]["max_threads"] == device.threads
    assert record.checked
    assert record.conditions["driver"] == device.driver
    assert record.estimate > 0


def test_a_log_is_used_and_verified(tuned: tuple[Result, Path], task: Task) -> None:
    result, log = tuned
    assert [v.outcome for v in validate([r for r in result.records if r is result.best])] == ["legal"]
    A, B = te.placeholder((64, 48), name="A"), te.placeholder((48, 96), name="B")
    C = topi.matmul(A, B)
    assert "record of" in apply_best(log, [A, B, C], target="opencl").origin
    with apply_history_best(log, miss="error"):
        built = tensorlang.build(te.create_schedule(C.op), [A, B, C], target="opencl")
    a, b = np.random.default_rng(0).uniform(-1, 1, (2, 96, 96)).astype("float32")
    a, b, c = np.ascontiguousarray(a[:64, :48]), np.ascontiguousarray(b[:48]), np.empty((64, 96), "float32")
    built(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_the_best_is_timed_again_beside_numpy(tuned: tuple[Result, Path], task: Task) -> None:
    found = bench_best(tuned[1], task)
    assert found.peak_gflops == 0  # that of a device is not known
    assert len(found.comparison.tensorlang) > 0
    assert found.record.median > 0


def test_what_was_predicted_is_explained(tuned: tuple[Result, Path]) -> None:
    best, *_ = explain(tuned[1])
    assert set(best.terms) >= {"arithmetic", "memory"}
    assert best.measured > 0


@pytest.fixture
def measurer(task: Task) -> Iterator[Measurer]:
    """A real one, some of whose candidates break the device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", FOLDER, prepend=os.pathsep)
        patch.syspath_prepend(FOLDER)
        loaded = importlib.import_module("broken")  # by the name that the workers know it by
        patch.setattr("tensorlang.autotune.measuring.measurer.build_candidate", loaded.build_candidate)
        patch.setattr("tensorlang.autotune.measuring.measurer.run_candidate", loaded.run_candidate)
        with Measurer(task, limits=Limits(run=20.0, build=60.0, builders=1)) as made:
            yield made
        sys.modules.pop("broken")


def test_what_breaks_the_device_costs_one_worker_and_nothing_else(measurer: Measurer, task: Task) -> None:
    sketch = sketches_of(task)[0]
    good: Any = sketch.trace.with_decisions(drawn(sketch, 1, 0)[0]).to_json()
    bad = [{"fault": fault, "trace": good} for fault in ("kernel", "context")]
    results: dict[int, Measurement] = dict(measurer.measure([good, bad[0], good, bad[1], good], lambda: None))
    assert [results[n].status in GOOD for n in (0, 2, 4)] == [True] * 3
    assert results[1].status is Status.CRASH
    assert "the worker process" in results[1].error
    assert results[3].status is Status.RUN_ERROR
    assert "KernelError" in results[3].error
    assert measurer._runner.starts == 3


def test_a_device_is_named_once(device: OpenclDevice) -> None:
    named = named_device(parse("opencl"))
    assert named.cpu == str(device)
    assert named_device(named) == named
    assert named_device(parse("opencl -device=no-such-device")) == parse("opencl -device=no-such-device")
    assert named_device(parse("llvm")) == parse("llvm")


def test_limits_of_the_target_stay(device: OpenclDevice) -> None:
    named = named_device(parse("opencl -max_num_threads=8"))
    assert named.gpu is not None
    assert named.gpu.max_threads == 8


@pytest.mark.parametrize("target", ["cuda -arch=sm_90a", "opencl -device=no-such-device"])
def test_measuring_needs_the_device(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> object:
        raise TargetError("no CUDA driver on this machine")

    monkeypatch.setattr("tensorlang.target.cuda.runtime.cupy", nothing)
    with pytest.raises(TargetError, match="tuning measures on the device, which is not on this machine"):
        tune(create_task("matmul", SIZES, target), trials=1)


def test_the_command_says_so_and_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing() -> object:
        raise TargetError("no CUDA driver on this machine")

    monkeypatch.setattr("tensorlang.target.cuda.runtime.cupy", nothing)
    command = ["tune", "matmul", "--shape", "8,8,8", "--target", "cuda -arch=sm_90a", "--log", str(tmp_path / "log")]
    result = CliRunner().invoke(command_line, command)
    assert isinstance(result.exception, TargetError)  # which the program ends with as with all mistakes of users
    assert "which is not on this machine" in str(result.exception)


class _Timed(CudaExecutable):
    """A kernel for CUDA that takes half a second, and notes how it was asked."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def time_evaluator(self, *args: Any, **options: Any) -> Any:
        self.asked.append(options)
        return lambda *given: Timing((0.5,))


def test_cuda_counts_by_events_with_a_cold_cache() -> None:
    kernel = _Timed()
    assert device_clock(kernel, [])(lambda: None, 3) == (0.5, True)
    assert kernel.asked == [{"number": 3, "flush_l2": True}]


def test_a_cuda_device_is_named_by_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.target.cuda.runtime.current_device", lambda: 0)
    monkeypatch.setattr("tensorlang.target.cuda.runtime.architecture_of", lambda number: "sm_90a")
    assert named_device(parse("cuda")) == parse("cuda -arch=sm_90a")
    assert named_device(parse("cuda -max_num_threads=64")) == parse("cuda -arch=sm_90a -max_num_threads=64")
    assert named_device(parse("cuda -arch=sm_80")) == parse("cuda -arch=sm_80")
    with pytest.raises(TargetError, match="the CUDA device here is sm_90a"):
        timed_device(parse("cuda -arch=sm_80"))
