"""Proposals while others are measured: they depend on times alone, not on how soon builds and runs are done."""

from __future__ import annotations

import json
import math
import random
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tensorlang.autotune import Result, Status, Task, create_task, tune
from tensorlang.autotune.measuring.harness import Measured, Measurement
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.supply import Supply
from tensorlang.errors import InternalError

from .fakes import NothingToOpen


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


def seconds_of(trace: Any, salt: str = "") -> float:
    return 1e-3 + 1e-5 * (zlib.crc32((salt + json.dumps(trace)).encode()) % 100)


@dataclass
class Disordered(NothingToOpen):
    """Takes candidates early or late, and is done with them in any order, by chance."""

    task: Task
    seed: int
    salt: str = ""
    batch: int = 8
    taken: list[Any] = field(default_factory=list)
    deadline: float = 0.0

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        self.deadline = deadline
        chance, supply = random.Random(self.seed), Supply(traces)
        work: list[tuple[int, Any]] = []
        while supply.refill(chance.randrange(1, 7)) or work:
            self.taken += [trace for _, trace in supply.waiting]
            work += supply.waiting
            supply.waiting.clear()
            number, trace = work.pop(chance.randrange(len(work)))
            status = Status.NOISY if number % 5 == 4 else Status.OK
            seconds = (seconds_of(trace, self.salt),) * 5 if status is Status.OK else ()
            yield number, Measurement(status, seconds, checked=True, host={"name": "chance"})
            supply.reopen()

    def compare(self, trace: Any) -> Comparison:
        raise InternalError("nothing is compared here")

    def peak_gflops(self) -> float:
        return 0.0


def _tune(task: Task, harness: Disordered, trials: int = 40) -> Result:
    return tune(task, trials, measurer=harness, seed=3)


def test_equal_times_make_equal_proposals_whatever_is_done_first(task: Task) -> None:
    runs = [Disordered(task, seed) for seed in range(4)]
    results = [_tune(task, run) for run in runs]
    assert all(run.taken == runs[0].taken for run in runs)
    orders = [[r.trace for r in result.records] for result in results]
    assert orders[0] != orders[1]
    assert [len(order) for order in orders] == [40] * 4


def test_proposals_draw_on_what_was_measured(task: Task) -> None:
    one, other = Disordered(task, 0), Disordered(task, 0, "otherwise")
    for harness in (one, other):
        _tune(task, harness)
    before_any_result = one.batch // 2 * 2
    assert one.taken[:before_any_result] == other.taken[:before_any_result]
    assert one.taken != other.taken


def test_a_space_is_used_up_while_some_are_measured(task: Task) -> None:
    small = create_task("matmul", (2, 2, 2), threads=1)
    harness = Disordered(small, 1)
    result = _tune(small, harness, 100_000)
    assert 0 < len(result.records) == len(harness.taken) < 100_000
    assert len({json.dumps(trace) for trace in harness.taken}) == len(harness.taken)


def test_whoever_measures_is_told_when_time_is_over(task: Task) -> None:
    harness, start = Disordered(task, 0), time.monotonic()
    tune(task, 8, 1000.0, measurer=harness)
    assert 1000 <= harness.deadline - start < 1000 + (time.monotonic() - start)
    _tune(task, harness, 8)
    assert harness.deadline == math.inf


def test_a_run_that_is_stuck_ends(task: Task) -> None:
    result = tune(task, 200, measurer=Disordered(task, 0), early_stopping=12)
    assert result.best is not None
    numbers = [n for n, record in enumerate(result.records) if record is result.best]
    assert len(result.records) - 1 - numbers[0] == 12


@dataclass
class Hopeless(Disordered):
    """Nothing works, and the time is over at once."""

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        for number, _ in super().measure(traces, best, deadline):
            yield number, Measurement(Status.BUILD_ERROR, error="no")


def test_where_nothing_works_a_batch_is_tried_and_no_more(task: Task) -> None:
    harness = Hopeless(task, 0)
    result = tune(task, 200, 0.0, measurer=harness)
    assert result.best is None
    assert len(result.records) == 1 + harness.batch
