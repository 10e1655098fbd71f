"""Explanations: predicted against measured, with terms and drivers, from a log alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tensorlang import config
from tensorlang.autotune.explanation import explain
from tensorlang.autotune.records.log import LogWriter, read_log
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.search.described import load_model
from tensorlang.autotune.search.knowledge import make_scorer
from tensorlang.autotune.space import sketches_of
from tensorlang.autotune.task import create_task
from tensorlang.autotune.tuner import train_model, tune
from tensorlang.cli.main import tensorlang
from tensorlang.errors import RecordError


@pytest.fixture
def log(record: TuningRecord, tmp_path: Path) -> Path:
    """A log of made-up times: the estimate, ten times as much for one candidate."""
    task = create_task("matmul", (32, 64, 16), threads=1)
    sketch = sketches_of(task)[0]
    rows = sketch.sample(np.random.default_rng(0), 20)
    candidates = make_scorer(task, 0).candidates([(sketch, tuple(map(int, row))) for row in rows])
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        for n, c in enumerate(candidates):
            writer.append(
                replace(
                    record,
                    workload=task.workload,
                    target=task.target.to_json(),
                    threads=1,
                    sketch=sketch.name,
                    trace=c.trace.to_json(),
                    trace_key=c.trace.key,
                    decisions=c.decisions,
                    estimate=c.estimate,
                    seconds=((10 if n == 7 else 1 + n / 40) * c.estimate,),
                )
            )
    return path


def test_the_best_comes_first_and_then_the_most_misjudged(log: Path) -> None:
    found = explain(log, count=3)
    assert len(found) == 3
    assert found[0].measured == min(e.measured for e in explain(log, count=100))
    assert found[1].error == pytest.approx(10)
    assert found[1].error >= found[2].error


def test_terms_and_stages_add_up_to_the_estimate(log: Path) -> None:
    for one in explain(log, count=5):
        assert sum(one.stages.values()) == pytest.approx(one.estimate)
        assert one.estimate <= sum(one.terms.values()) * (1 + 1e-9)
        assert set(one.stages) >= {"C", "C.local"}
        assert one.predicted is not None
        assert one.drivers
        factors = [abs(math.log(driver.factor)) for driver in one.drivers]
        assert factors == sorted(factors, reverse=True)


def test_targets_are_explained_apart_and_the_default_store_is_a_log(log: Path) -> None:
    first = read_log(log).records[0]
    with LogWriter(log) as writer:
        writer.append(replace(first, target={**first.target, "cpu": "haswell"}, seconds=(1e-9,)))
    with config.override(store=log.parent):
        found = explain("default", count=1)
    assert sorted(e.measured == 1e-9 for e in found) == [False, True]


def test_the_command_prints_them_as_text_and_as_json(log: Path) -> None:
    shown = CliRunner().invoke(tensorlang, ["explain", str(log), "--count", "2"])
    assert shown.exit_code == 0, shown.output
    assert "matmul(32, 64, 16, float32) on 1 thread: reuse." in shown.output
    assert "terms: arithmetic" in shown.output
    lines = CliRunner().invoke(tensorlang, ["explain", str(log), "--count", "2", "--json"]).output.splitlines()
    assert [json.loads(line)["sketch"] for line in lines] == [e.sketch for e in explain(log, 2)]


def test_a_log_without_a_known_program_is_refused(record: TuningRecord, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        writer.append(record)
    with pytest.raises(RecordError, match="no timed record of a program that can be made again"):
        explain(path)


def test_a_model_learned_from_a_log_is_a_start_for_tuning(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.ubj"
    assert train_model([log], path) == 1
    task = create_task("matmul", (32, 64, 16), threads=1)
    plain, taught = make_scorer(task, 0), make_scorer(task, 0, load_model(path))
    sketch = sketches_of(task)[0]
    rows = sketch.sample(np.random.default_rng(0), 20)
    assert np.ptp(taught.score(sketch, rows) - plain.score(sketch, rows)) > 0.01
    with pytest.raises(RecordError, match="is no model file"):
        tune(task, trials=1, model=tmp_path / "nothing.ubj")
