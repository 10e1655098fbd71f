"""Several tasks under one budget: fair warm-up, then trials where they pay."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tensorlang import te
from tensorlang.autotune import RecordToFile, SearchTask, TaskScheduler, TuningOptions, read_log
from tensorlang.autotune.measuring.harness import BATCH
from tensorlang.autotune.search.sketch_search import SketchSearch
from tensorlang.autotune.task_scheduler import Gradient, OpenMeasurers, Standing
from tensorlang.errors import DefinitionError
from tensorlang.target import parse
from tensorlang.te.operation import Tensor

from .tuners.fakes import FakeMachines


def scaled(n: int, factor: float) -> list[Tensor]:
    A = te.placeholder((n, n), name="A")
    return [A, te.compute((n, n), lambda i, j: A[i, j] * factor, name="B")]


@dataclass
class FakeTask:
    """A task whose best time falls by a rule; its search space ends after `most` trials."""

    rule: Any
    most: int = 10_000
    trials: int = 0
    rounds: list[int] = field(default_factory=list)
    task: Any = None
    lost_after: int = 10_000

    def __post_init__(self) -> None:
        self.task = SearchTask(scaled, (4, 2.0)).task

    def recorded(self, options: TuningOptions) -> int:
        return 0

    def move_to(self, machines: object) -> None:
        return None

    def search(self, seed: int) -> SketchSearch:
        return SketchSearch(self.task, seed)

    def tune(self, options: TuningOptions, seed: int, measurer: object, search: SketchSearch) -> Any:
        wanted = min(options.num_measure_trials, self.most)
        self.rounds.append(wanted - self.trials)
        before, self.trials = self.trials, wanted
        search.history.records += cast(Any, [None] * (wanted - before))

        @dataclass
        class Best:
            median: float

        @dataclass
        class Result:
            records: list[int]
            resumed: int
            best: Best | None
            ended: str

        seconds = self.rule(self.trials)
        ended = "they went home" if wanted > self.lost_after else ""
        return Result([0] * wanted, before, None if math.isinf(seconds) else Best(seconds), ended)


@dataclass
class FakeHarness:
    """Wants so many candidates at a time."""

    batch: int = BATCH


@pytest.fixture(autouse=True)
def no_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fakes need no harness but for its size."""
    if "tmp_path" not in request.fixturenames:
        monkeypatch.setattr(OpenMeasurers, "of", lambda self, n, task: FakeHarness())


def scheduler(tasks: list[FakeTask], **settings: Any) -> TaskScheduler:
    return TaskScheduler(cast(list[SearchTask], tasks), **settings)


OPTIONS = TuningOptions(num_measure_trials=200, num_measures_per_round=10, verbose=0)


def test_trials_go_where_they_pay() -> None:
    flat = FakeTask(lambda trials: 1e-3)
    falling = FakeTask(lambda trials: 1 / (1 + trials))
    made = scheduler([flat, falling])
    made.tune(OPTIONS)
    assert flat.rounds[0] == falling.rounds[0] == 10
    assert flat.trials + falling.trials == 200
    assert falling.trials > 4 * flat.trials
    assert made.best_costs == [1e-3, 1 / (1 + falling.trials)]


def test_weights_count() -> None:
    light, heavy = FakeTask(lambda t: 1 / (10 + t)), FakeTask(lambda t: 1 / (10 + t))
    made = scheduler([light, heavy], task_weights=[1, 20])
    made.tune(OPTIONS)
    assert heavy.trials > 2 * light.trials
    assert made.score == pytest.approx(made.best_costs[0] + 20 * made.best_costs[1])


def test_an_objective_of_ones_own() -> None:
    first, second = FakeTask(lambda t: 1 / (10 + t)), FakeTask(lambda t: 1 / (10 + t))
    made = scheduler([first, second], objective_func=lambda costs: costs[0])
    made.tune(OPTIONS)
    assert (first.trials, second.trials) == (190, 10)


def test_a_short_budget_is_shared_fairly() -> None:
    tasks = [FakeTask(lambda t: 1.0) for _ in range(4)]
    scheduler(tasks).tune(TuningOptions(num_measure_trials=20, num_measures_per_round=64, verbose=0))
    assert [t.trials for t in tasks] == [5, 5, 5, 5]


def test_round_robin_takes_turns_and_leaves_out_what_is_used_up() -> None:
    tasks = [FakeTask(lambda t: 1.0), FakeTask(lambda t: 1.0, most=15), FakeTask(lambda t: 1.0)]
    made = scheduler(tasks, strategy="round-robin")
    made.tune(OPTIONS)
    assert tasks[1].trials == 15
    assert made.standings[1].dead
    assert tasks[0].trials + tasks[2].trials == 185
    assert abs(tasks[0].trials - tasks[2].trials) <= 20
    over = scheduler([FakeTask(lambda t: 1.0, most=15)])
    over.tune(OPTIONS)
    assert over.standings[0].trials == 15


def test_a_task_that_never_works_goes_on_being_tried() -> None:
    broken, good = FakeTask(lambda t: math.inf if t < 50 else 1.0), FakeTask(lambda t: 1e-6)
    made = scheduler([broken, good])
    made.tune(OPTIONS)
    assert broken.trials >= 50
    assert made.best_costs == [1.0, 1e-6]


def test_tuning_stops_early_and_in_time() -> None:
    task = FakeTask(lambda t: 1.0)
    made = scheduler([task])
    made.tune(TuningOptions(num_measure_trials=500, num_measures_per_round=10, early_stopping=30, verbose=0))
    assert task.trials == 40
    late = FakeTask(lambda t: 1.0)
    scheduler([late]).tune(TuningOptions(num_measure_trials=500, seconds=0.0, verbose=0))
    assert late.trials == 0


def test_the_gradient_of_similar_tasks_is_bounded_by_what_they_reach() -> None:
    slow, fast = Standing(1e6, "same", [1.0, 1.0, 1.0, 1.0, 1.0]), Standing(1e6, "same", [1e-3])
    alone = Standing(1e6, "other", [1.0] * 5)
    gradient = Gradient()
    assert gradient.of(slow, [slow, fast]) == pytest.approx(0.8 * (2e-3 - 1.0))
    assert gradient.of(alone, [alone, fast]) == pytest.approx(0.8 * -1 / 5)
    falling = Standing(1e6, "other", [8.0, 4.0, 2.0, 1.0])
    assert gradient.of(falling, [falling]) == pytest.approx(0.2 * (1 - 8) / 3 + 0.8 * -1 / 4)
    assert gradient.of(Standing(1.0, "x", [1.0], dead=True), []) == 0
    assert gradient.of(Standing(1.0, "x", [math.inf]), []) == -math.inf


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task_weights": [1]}, "there are 2 tasks and 1 weights"),
        ({"task_weights": [1, -2]}, r"weights are how often a task runs, got \[1, -2\]"),
        ({"task_weights": [1, float("nan")]}, "weights are how often a task runs, got"),
        ({"strategy": "best"}, "strategy is 'gradient' or 'round-robin', got 'best'"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    tasks = [FakeTask(lambda t: 1.0)] * 2
    with pytest.raises(DefinitionError, match=message):
        scheduler(tasks, **settings)
    with pytest.raises(DefinitionError, match="needs at least one task"):
        scheduler([])


def test_real_tasks_share_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [SearchTask(scaled, (n, 3.0), "llvm -num-cores=1") for n in (16, 24)]
    log = tmp_path / "log"
    made = TaskScheduler(tasks)
    results = made.tune(
        TuningOptions(num_measure_trials=4, num_measures_per_round=1, measure_callbacks=[RecordToFile(log)])
    )
    assert sum(len(r.records) for r in results) == len(read_log(log).records) == 4
    assert [s.trials > 0 for s in made.standings] == [True, True]
    assert "4/4 trials: " in capsys.readouterr().err
    later = TaskScheduler([*tasks, SearchTask(scaled, (8, 3.0), "llvm -num-cores=1")], load_log_file=log)
    assert [s.trials for s in later.standings] == [*(s.trials for s in made.standings), 0]
    assert later.best_costs == [*made.best_costs, math.inf] and later.choose(0) == 2
    without = TaskScheduler(tasks[:1])
    results = without.tune(TuningOptions(num_measure_trials=2, num_measures_per_round=1, verbose=0))
    assert sum(len(r.records) for r in results) == 2
    assert len(read_log(log).records) == 4


def test_rounds_grow_with_those_who_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenMeasurers, "of", lambda self, n, task: FakeHarness(4 * BATCH))
    many, short = FakeTask(lambda t: 1.0), [FakeTask(lambda t: 1.0) for _ in range(10)]
    scheduler([many]).tune(OPTIONS)
    assert many.rounds == [40] * 5
    scheduler(short).tune(OPTIONS)
    assert [t.rounds for t in short] == [[20]] * 10


def test_when_nobody_is_left_no_other_task_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    lost, never = FakeTask(lambda t: 1.0, lost_after=5), FakeTask(lambda t: 1.0)
    made = scheduler([lost, never])
    results = made.tune(TuningOptions(num_measure_trials=200, num_measures_per_round=10))
    assert [r.ended for r in results] == ["they went home"]
    assert (lost.rounds, never.rounds) == ([10], [])
    assert not made.standings[0].dead
    assert capsys.readouterr().err.endswith("tuning ended early: they went home\n")


def test_machines_elsewhere_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, opened = FakeMachines(parse("llvm -mcpu=haswell"), seconds=lambda trace: 1.0), list[str]()

    def open_machines(runner: str, tls: object) -> Any:
        opened.append(runner)
        return nullcontext(there)

    monkeypatch.setattr("tensorlang.autotune.tuners.measure.machines_of", open_machines)
    tasks = [SearchTask(scaled, (n, 5.0), "llvm", threads=1) for n in (16, 24)]
    log = RecordToFile(tmp_path / "log")
    options = TuningOptions(6, num_measures_per_round=2, runner="dask://host:1", measure_callbacks=[log], verbose=0)
    results = TaskScheduler(tasks, strategy="round-robin").tune(options)
    assert opened == ["dask://host:1"]
    assert len(there.fakes) == 2
    assert sum(len(r.records) for r in results) == 6
    assert {task.target.cpu for task in tasks} == {r.task.target.cpu for r in results} == {"haswell"}
    assert [task.recorded(options) for task in tasks] == [len(r.records) for r in results]
    schedule, _ = tasks[0].apply_best(log.filename)
    assert results[0].best is not None
    assert schedule.trace.key == results[0].best.trace_key
