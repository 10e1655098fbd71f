"""Records describe themselves, and what they teach goes over to other programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorlang.autotune.model.cost_model import CostModel, Transferred, rank_correlation
from tensorlang.autotune.model.features import feature_names
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.search.described import columns_of, describe_records, learn_model, load_model
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import Task, create_task
from tensorlang.errors import RecordError

MULTIPLY = ("matmul", (64, 96, 48))


def _records(task: Task, base: TuningRecord, count: int, seed: int = 0) -> list[TuningRecord]:
    """Records of a task with made-up times: the estimate, and more for narrow tiles, which it knows nothing of."""
    scorer, rng = make_scorer(task, 0), np.random.default_rng(seed)
    made = []
    for sketch in sketches_of(task):
        rows = sketch.sample(rng, count)
        for candidate in scorer.candidates([(sketch, tuple(map(int, row))) for row in rows]):
            slow = 3.0 if candidate.decisions.get("width", 16) < 32 else 1.0
            made.append(
                replace(
                    base,
                    workload=task.workload,
                    target=task.target.to_json(),
                    threads=task.threads,
                    sketch=sketch.name,
                    trace=candidate.trace.to_json(),
                    trace_key=candidate.trace.key,
                    decisions=candidate.decisions,
                    estimate=candidate.estimate,
                    seconds=(slow * candidate.estimate,),
                )
            )
    return made


def test_a_record_is_described_as_its_candidate_was(record: TuningRecord) -> None:
    task = create_task(*MULTIPLY, threads=1)
    for made, one in zip(records := _records(task, record, 2), describe_records(records), strict=True):
        assert one.record is made
        assert one.estimate == pytest.approx(made.estimate)
        assert one.row.shape == (1, len(feature_names()))


def test_records_of_lost_programs_and_failures_are_left_out(record: TuningRecord) -> None:
    task = create_task(*MULTIPLY, threads=1)
    good, bad, *_ = _records(task, record, 2)
    lost = replace(good, workload=replace(good.workload, name="nowhere.py:f"))
    other = replace(good, workload=replace(good.workload, key="0" * 16))
    failed = replace(bad, status=Status.TIMEOUT, seconds=())
    assert [d.record for d in describe_records([lost, other, failed, good])] == [good]


def test_what_was_learned_from_one_shape_orders_another(record: TuningRecord, tmp_path: Path) -> None:
    learn_model(_records(create_task(*MULTIPLY, threads=1), record, 30)).save(tmp_path / "model.ubj")
    transferred = load_model(tmp_path / "model.ubj")
    rows, estimates, seconds = columns_of(
        describe_records(_records(create_task("matmul", (96, 160, 32), threads=1), record, 20, seed=1))
    )
    plain, taught = CostModel(), CostModel(transferred=transferred)
    before = rank_correlation(plain.score(rows, estimates), seconds)
    after = rank_correlation(taught.score(rows, estimates), seconds)
    assert after > before + 0.02
    assert after > 0.9


def test_a_transferred_model_goes_on_learning(record: TuningRecord) -> None:
    records = _records(create_task(*MULTIPLY, threads=1), record, 12)
    rows, estimates, seconds = columns_of(describe_records(records))
    model = CostModel(transferred=learn_model(records))
    model.fit(rows, estimates, 2 * seconds)  # all of it is twice as slow here
    assert model.kind == "residual"
    assert float(np.mean(model.score(rows, estimates) - np.log(2 * seconds))) == pytest.approx(0, abs=0.1)


def test_contributions_add_up_to_the_score(record: TuningRecord) -> None:
    records = _records(create_task(*MULTIPLY, threads=1), record, 12)
    rows, estimates, seconds = columns_of(describe_records(records))
    model = CostModel(transferred=learn_model(records))
    for slower in (seconds * np.linspace(1, 2, len(seconds)), 1 / seconds):  # a residual, and a ranking
        model.fit(rows, estimates, slower)
        prior = model.score(rows, estimates) - model.contributions(rows).sum(axis=1)
        known = np.log(estimates) if model.kind == "residual" else np.zeros(len(rows))
        assert rank_correlation(prior, known) > 0.999 or np.allclose(prior, known, atol=1e-4)


def test_other_files_and_other_features_are_refused(record: TuningRecord, tmp_path: Path) -> None:
    path = tmp_path / "model.ubj"
    with pytest.raises(RecordError, match="is no model file"):
        load_model(path)
    path.write_text("not a model")
    with pytest.raises(RecordError, match="is no model file"):
        load_model(path)
    rows = np.random.default_rng(0).random((20, 3)).astype(np.float32)
    Transferred.learn(rows, np.ones(20), np.arange(1, 21.0), ("a", "b", "c")).save(path)
    with pytest.raises(RecordError, match="trained on other features"):
        load_model(path)
    with pytest.raises(RecordError, match="at least 8 measured candidates, got 0"):
        learn_model([])


def test_different_decisions_that_make_one_schedule_count_once() -> None:
    task = create_task("matmul", (8, 40, 4), threads=1)
    sketches = tuple(s for s in sketches_of(task) if s.name.startswith("reuse.pack-none.rows"))
    knowledge, rng = Knowledge(sketches, make_scorer(task, 0)), np.random.default_rng(0)
    proposed = []
    while batch := knowledge.next_batch(8, rng):
        proposed += batch
    loops = [(c.sketch.name, c.loops) for c in proposed]
    allowed = sum(int(s.allowed(s.unravel(np.arange(s.size))).sum()) for s in sketches)
    assert len(loops) == len(set(loops)) < allowed


def test_the_library_schedule_comes_first_and_only_once() -> None:
    task = create_task("matmul", (8, 20, 4), threads=1)
    knowledge, rng = Knowledge(tuple(sketches_of(task)), make_scorer(task, 0)), np.random.default_rng(0)
    first = knowledge.next_batch(8, rng)
    assert first[0].sketch.start == first[0].decisions
    second = knowledge.next_batch(8, rng)
    assert all((c.sketch.name, c.row) != (first[0].sketch.name, first[0].row) for c in second)
