"""Tuners of templates: what they propose, what they leave out, how they end; no kernel is built here."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorlang import autotune
from tensorlang.autotune import MeasureErrorNo, MeasureResult, TemplateTask, read_log
from tensorlang.autotune.search.described import learn_model
from tensorlang.autotune.templates.task import create, template_task
from tensorlang.autotune.tuners.genetic import GATuner
from tensorlang.autotune.tuners.index import GridSearchTuner, RandomTuner, draw_unseen
from tensorlang.autotune.tuners.learned import XGBTuner
from tensorlang.autotune.tuners.tuner import Tuner
from tensorlang.errors import DefinitionError, RecordError, ScheduleError

from ..templates import programs
from ..templates.programs import limited, matmul, rows
from .fakes import fake_measurer, split_seconds


def small_xgb(task: TemplateTask, seed: int = 0) -> XGBTuner:
    """A learning tuner that looks at few configurations: instantiating them is what takes time here."""
    return XGBTuner(task, plan_size=24, seed=seed)


TUNERS: list[Callable[..., Tuner]] = [GridSearchTuner, RandomTuner, GATuner, small_xgb]


@pytest.fixture(scope="module")
def task() -> TemplateTask:
    return create(matmul, args=(16, 24, 12), target="llvm -num-cores=1")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", TUNERS)
def test_equal_seeds_try_the_same_and_nothing_twice(make: Callable[..., Tuner], task: TemplateTask) -> None:
    runs = []
    for seed in (3, 3, 4):
        measurer, fake = fake_measurer()
        tuner = make(task, seed=seed)
        tuner.search(measurer, 24)
        assert tuner.trials == len(fake.seen) == 24
        assert len({r.trace_key for r in tuner.records}) == 24
        configs = [task.config_of(r) for r in tuner.records]
        assert [c and c.settings() for c in configs] == [r.settings for r in tuner.records]
        assert tuner.best is not None
        assert tuner.best.seconds == min(r.median for r in tuner.records)
        runs.append([r.trace_key for r in tuner.records])
    assert runs[0] == runs[1]
    assert (runs[0] == runs[2]) == (make is GridSearchTuner)


@pytest.mark.parametrize("make", [GATuner, small_xgb])
def test_what_is_learned_helps(make: Callable[..., Tuner], task: TemplateTask) -> None:
    def best_after(tuner: Tuner) -> float:
        tuner.search(fake_measurer()[0], 48)
        assert tuner.best is not None
        return tuner.best.seconds

    settings = {"pop_size": 12} if make is GATuner else {}
    learned = sum(best_after(make(task, seed=seed, **settings)) for seed in range(2))
    drawn = sum(best_after(RandomTuner(task, seed=seed)) for seed in range(2))
    assert learned < drawn


def test_the_learning_tuner_finds_the_best_of_its_space(task: TemplateTask) -> None:
    tuner = small_xgb(task, seed=1)
    tuner.search(fake_measurer()[0], 96)
    assert tuner.best_config is not None
    assert [tuner.best_config[k].size[-1] for k in ("tile_y", "tile_x", "tile_k")] == [4, 8, 4]
    assert tuner.best_flops == pytest.approx(task.flop / 0.9e-3)


def test_the_first_trials_are_the_best_by_the_estimate(task: TemplateTask) -> None:
    tuner = XGBTuner(task, plan_size=40)
    first = [tuner.space.get(n) for n in tuner.propose(8)]
    vectors = [config["ann"].anns == ["vec"] for config in first]
    drawn = [tuner.space.get(n)["ann"].anns == ["vec"] for n in draw_unseen(tuner, 40)]
    assert sum(vectors) / 8 > sum(drawn) / 40 + 0.2
    assert len({config.index for config in first}) == 8


def test_a_grid_goes_in_order_within_its_range(task: TemplateTask) -> None:
    tuner = GridSearchTuner(task, range_idx=(5, 12))
    assert [config.index for config in tuner.next_batch(4)] == [5, 6, 7, 8]
    assert [config.index for config in tuner.next_batch(4)] == [9, 10, 11]
    assert tuner.next_batch(4) == []
    drawn = RandomTuner(task, range_idx=(5, 12))
    assert sorted(config.index for config in drawn.next_batch(100)) == list(range(5, 12))


def test_a_small_space_is_tried_to_its_end() -> None:
    task = autotune.task.create(rows, args=(8, 6))
    for make in TUNERS:
        measurer, fake = fake_measurer()
        tuner = make(task)
        tuner.search(measurer, 100)
        assert not tuner.has_next()
        assert (len(tuner.seen), tuner.filtered, tuner.trials) == (12, 6, len(fake.seen))
        assert any("vectorize('k')" in why for why in tuner.refusals)


def test_configurations_with_one_schedule_are_measured_once() -> None:
    same = autotune.task.create("tests/idle_knob", args=(16,))
    measurer, fake = fake_measurer()
    told: list[MeasureResult] = []

    class Watching(GridSearchTuner):
        def learn(self, config: autotune.ConfigEntity, result: MeasureResult) -> None:
            told.append(result)

    tuner = Watching(same)
    tuner.search(measurer, 100)
    assert (same.config_space.size, len(fake.seen), tuner.trials) == (15, 5, 5)
    assert len(told) == 15  # what a tuner knows of one configuration it learns for the others, too


@autotune.template("tests/idle_knob")
def _idle(n: int) -> object:
    from tensorlang import te

    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    cfg.define_split("tile", s[B].op.axis[0], num_outputs=2)
    cfg.define_knob("idle", [1, 2, 3])
    cfg["tile"].apply(s, B, s[B].op.axis[0])
    return s, [A, B]


@autotune.template("tests/idle_knobs")
def _many_idle(n: int) -> object:
    from tensorlang import te

    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    for number in range(16):
        autotune.get_config().define_split(f"idle_{number}", 4096, num_outputs=4)
    return te.create_schedule(B.op), [A, B]


def test_a_search_ends_where_a_large_space_has_one_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.tuners.tuner.MOST_EQUAL", 30)
    tuner = RandomTuner(autotune.task.create("tests/idle_knobs", args=(16,)))
    tuner.search(fake_measurer()[0], 100)
    assert tuner.trials == 1
    assert tuner.has_next()


@autotune.template("tests/fails_sometimes")
def _fails_sometimes(n: int) -> object:
    from tensorlang import te

    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    cfg.define_knob("factor", [4, 2, 0, 8])
    s[B].split(s[B].op.axis[0], factor=n // cfg["factor"].val)
    return s, [A, B]


def test_a_configuration_at_which_the_template_fails_is_refused_and_tuning_goes_on() -> None:
    tuner = GridSearchTuner(autotune.task.create("tests/fails_sometimes", args=(16,)))
    tuner.search(fake_measurer()[0], 100)
    assert (tuner.trials, tuner.filtered) == (3, 1)
    (why,) = tuner.refusals
    assert re.fullmatch(r"the template failed at .*test_tuners.py:\d+: ZeroDivisionError: .*", why)


def test_filtered_configurations_are_counted_and_told() -> None:
    task = autotune.task.create(limited, args=(8,))
    measurer, fake = fake_measurer()
    tuner = GridSearchTuner(task)
    tuner.search(measurer, 100)
    legal = [(y, x) for y, x in itertools.product((1, 2, 4, 8), repeat=2) if y * x <= 8 and y <= x]
    assert len(fake.seen) == len(legal) == tuner.trials
    assert tuner.filtered == 16 - len(legal)
    assert tuner.refusals["a multi_filter of the template does not allow it"] == 6


def test_a_space_of_which_nothing_is_left_says_why() -> None:
    task = autotune.task.create(limited, args=(8,))
    small = GridSearchTuner(task, range_idx=(13, 16))
    with pytest.raises(ScheduleError, match=r"the first 3 tried were refused(.|\n)*3 times: a multi_filter"):
        small.search(fake_measurer()[0], 10)


def test_failures_are_kept_and_avoided(task: TemplateTask) -> None:
    def broken(trace: object) -> bool:
        return "vectorize" in str(trace)

    measurer, _ = fake_measurer(broken=broken)
    tuner = small_xgb(task, seed=0)
    results: list[MeasureResult] = []
    tuner.search(measurer, 64, callbacks=[lambda tuner, inputs, measured: results.extend(measured)])
    failed = [not r.ok for r in results]
    assert len(results) == 64
    assert sum(failed[:8]) > 0
    assert sum(failed[32:]) / 32 < sum(failed[:16]) / 16 + 0.01
    crash = next(r for r in results if not r.ok)
    assert (crash.error_no, crash.costs) == (MeasureErrorNo.RUNTIME_DEVICE, (1e9,))
    good = next(r for r in results if r.ok)
    assert good.error_no == MeasureErrorNo.NO_ERROR
    assert good.costs == good.record.seconds if good.record else ()
    assert good.timestamp > 1.6e9


def test_search_ends_by_trials_by_time_or_when_it_is_stuck(task: TemplateTask) -> None:
    tuner = RandomTuner(task)
    tuner.search(fake_measurer()[0], 5)
    assert tuner.trials == 5
    tuner.search(fake_measurer()[0], 5)
    assert tuner.trials == 10
    tuner.search(fake_measurer()[0], 5, seconds=0.0)
    assert tuner.trials == 10
    stuck = RandomTuner(task)
    stuck.search(fake_measurer(seconds=lambda trace: 1.0)[0], 100, early_stopping=7)
    assert stuck.trials == 8
    assert stuck.best_iter == 1


def test_history_is_taken_over(task: TemplateTask, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = RandomTuner(task, seed=1)
    first.search(fake_measurer()[0], 12, callbacks=[autotune.callback.log_to_file(log)])
    assert [r.trace_key for r in read_log(log).records] == [r.trace_key for r in first.records]
    second = small_xgb(task, seed=2)
    assert second.load_history(log) == 12
    assert second.best is not None and first.best is not None
    assert second.best.seconds == first.best.seconds
    assert second.best_config == first.best_config
    measurer, fake = fake_measurer()
    second.search(measurer, 20)
    assert second.trials == 32
    assert len(fake.seen) == 20
    assert len({r.trace_key for r in second.records}) == 32
    other = autotune.task.create(matmul, args=(16, 24, 13), target="llvm -num-cores=1")
    assert RandomTuner(other).load_history(log) == 0


def test_records_of_another_version_of_the_template_count_by_their_schedules(
    task: TemplateTask, tmp_path: Path
) -> None:
    first = GridSearchTuner(task)
    first.search(fake_measurer()[0], 6)
    renamed = [replace_sketch(r, "tests/matmul 00000000") for r in first.records]
    second = GridSearchTuner(task)
    assert second.load_history(renamed) == 6
    assert task.config_of(renamed[0]) is None
    assert second.best is not None
    assert second.best_config is None
    measurer, fake = fake_measurer()
    second.search(measurer, 4)
    assert [r.trace_key for r in second.records[6:]] == [r.trace_key for r in second.records[-4:]]
    assert {r.trace_key for r in first.records}.isdisjoint(r.trace_key for r in second.records[6:])
    assert len(fake.seen) == 4


def replace_sketch(record: autotune.TuningRecord, sketch: str) -> autotune.TuningRecord:
    from dataclasses import replace

    return replace(record, sketch=sketch)


def test_drawing_does_not_list_a_large_space(task: TemplateTask) -> None:
    tuner = RandomTuner(task)
    tuner.space = autotune.ConfigSpace()
    for n in range(6):
        tuner.space.define_reorder(f"order{n}", [tuner.space.axis(k + 1) for k in range(14)])
    drawn = draw_unseen(tuner, 50)
    assert len(set(drawn)) == 50
    assert max(drawn) > 1 << 64


def test_a_log_that_cannot_be_written_is_refused_before_measuring(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write"):
        autotune.callback.log_to_file(tmp_path / "no" / "log")


def test_progress_in_lines(task: TemplateTask, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = autotune.callback.Monitor()
    tuner = GridSearchTuner(task)
    bar = autotune.callback.progress_bar(12, prefix="[matmul]")
    tuner.search(fake_measurer()[0], 12, callbacks=[bar, monitor])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[matmul] Current/Best: ")
    assert "Progress: (12/12)" in lines[-1]
    assert len(monitor.scores) == len(monitor.timestamps) == 12
    assert max(monitor.scores) == pytest.approx(tuner.best_flops)
    monitor.reset()
    assert monitor.scores == []


def test_words_of_autotvm_that_do_not_exist(task: TemplateTask) -> None:
    assert isinstance(XGBTuner(task, loss_type="reg", feature_type="curve"), Tuner)
    with pytest.raises(DefinitionError, match="loss_type is one of reg, rank, rank-binary, got 'best'"):
        XGBTuner(task, loss_type="best")


def test_two_callbacks_share_a_log(task: TemplateTask, tmp_path: Path) -> None:
    tuner = GridSearchTuner(task)
    logs = [autotune.callback.log_to_file(tmp_path / "log") for _ in range(2)]
    tuner.search(fake_measurer()[0], 3, callbacks=logs)
    assert len(read_log(tmp_path / "log").records) == 6
    assert split_seconds(tuner.records[0].trace) == tuner.records[0].median


@pytest.mark.parametrize("make", TUNERS)
def test_a_batch_is_as_large_as_whoever_measures_wants(make: Callable[..., Tuner], task: TemplateTask) -> None:
    measurer, fake = fake_measurer(batch=40)
    make(task).search(measurer, 60)
    assert fake.batches == [40, 20]


@pytest.mark.parametrize("make", TUNERS)
def test_what_is_proposed_does_not_depend_on_who_is_done_first(make: Callable[..., Tuner], task: TemplateTask) -> None:
    (first, forwards), (second, backwards) = fake_measurer(), fake_measurer(backwards=True)
    settings = {"pop_size": 12} if make is GATuner else {}
    make(task, **settings).search(first, 32)
    make(task, **settings).search(second, 32)
    assert forwards.seen == backwards.seen


def test_what_other_programs_taught_counts_before_the_first_trial(tmp_path: Path) -> None:
    """The taught model knows that nothing is worse than a first split by more than one, which no estimate says."""
    path, model = tmp_path / "own.py", tmp_path / "model"
    path.write_text(Path(programs.__file__).read_text(encoding="utf-8").replace('"tests/', '"taught/'), "utf-8")
    records: list[autotune.TuningRecord] = []
    for size in (16, 32):
        known = template_task(f"{path}:matmul", (size, 24, 12), "llvm -num-cores=1")
        assert known is not None
        teacher = RandomTuner(known)
        teacher.search(fake_measurer(seconds=_wide_rows_are_slow)[0], 40)
        records += teacher.records
    learn_model(records, run_files=True).save(model)

    task = template_task(f"{path}:matmul", (24, 24, 12), "llvm -num-cores=1")
    assert task is not None

    def seconds_of_first(given: Path | None) -> float:
        tuner = XGBTuner(task, plan_size=40, model=given)
        traces = [tuner.prove(tuner.space.get(n)) for n in tuner.propose(8)]
        return sum(_wide_rows_are_slow(trace.to_json()) for trace in traces if trace is not None)

    assert seconds_of_first(model) < 0.5 * seconds_of_first(None)


def _wide_rows_are_slow(trace: Any) -> float:
    first = next(step["factor"] for step in trace if step["step"] == "split")
    return 1e-3 * float(first) ** 2
