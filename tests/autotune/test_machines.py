"""Tuning on machines that are a script: who wins at the end, and what is left when nobody measures any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tensorlang.autotune import Limits, Result, Status, Task, create_task, read_log, tune
from tensorlang.autotune.measuring.harness import BATCH, Harness, Measured, Measurement, WorkersLost
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.supply import Supply
from tensorlang.target.spec import Target

from .fakes import NothingToOpen


@dataclass
class Script(NothingToOpen):
    """Machines and harness in one: the n-th candidate takes `seconds[n]`; lost after `lasting`."""

    seconds: Sequence[float]
    lasting: int = 1000
    task: Task = field(init=False)
    measured: int = 0
    batch: int = BATCH
    batches: list[int] = field(default_factory=list)
    limits: Limits | None = None

    def target_of(self, text: str | Target | None) -> str | Target | None:
        return text

    def fit(self, task: Task) -> Task:
        return replace(task, target=replace(task.target, cpu="abacus"))

    def harness(self, task: Task, seed: int, limits: Limits) -> Harness:
        self.task, self.limits = task, limits
        return self

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        supply = Supply(traces)
        while supply.refill(self.batch):
            numbers = [number for number, _ in supply.waiting]
            supply.waiting.clear()
            self.batches.append(len(numbers))
            for number in numbers:
                if self.measured == self.lasting:
                    raise WorkersLost("they went home")
                seconds = self.seconds[self.measured]
                self.measured += 1
                yield number, Measurement(Status.OK, (seconds,) * 5, checked=True, host={"name": "script"})
            supply.reopen()

    def compare(self, trace: Any) -> Comparison:
        raise AssertionError(trace)

    def peak_gflops(self) -> float:
        return 100.0


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


def _tune(task: Task, script: Script, log: Path | None = None) -> Result:
    return tune(task, trials=4, log=log, runner=script)


def test_records_are_of_the_machine_that_measured(task: Task) -> None:
    result = _tune(task, Script([4.0, 3.0, 2.0, 1.0]))
    assert result.task.target.cpu == "abacus"
    assert all(
        r.target["cpu"] == "abacus" and r.host == {"name": "script", "peak_gflops": 100.0} for r in result.records
    )
    assert (result.peak_gflops, result.ended) == (100.0, "")


def test_the_limits_are_those_given(task: Task) -> None:
    script = Script([1.0] * 4)
    tune(task, trials=2, limits=Limits(flush=True), runner=script)
    assert script.limits == Limits(flush=True)


def test_a_run_whose_workers_are_lost_ends_with_what_is_done(task: Task, tmp_path: Path) -> None:
    result = _tune(task, Script([2.0, 1.0, 3.0], lasting=3), tmp_path / "log")
    assert (len(result.records), result.ended) == (3, "they went home")
    assert result.best == result.records[1]
    assert read_log(tmp_path / "log").records == result.records
    resumed = _tune(task, Script([0.5]), tmp_path / "log")
    assert (resumed.resumed, len(resumed.records), resumed.ended) == (3, 4, "")


@pytest.mark.parametrize("batch", [8, 16])
def test_a_batch_is_as_large_as_whoever_measures_wants(task: Task, batch: int) -> None:
    script = Script([1.0] * 20, batch=batch)
    tune(task, trials=20, runner=script)
    assert sum(script.batches) == 20
    assert batch // 2 < max(script.batches) <= batch
