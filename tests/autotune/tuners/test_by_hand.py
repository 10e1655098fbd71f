"""Measurements by the user: results made by hand, and lines of AutoTVM's logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorlang import autotune, te
from tensorlang.errors import DefinitionError, RecordError


@autotune.template("tests/by_hand")
def scaled(n: int) -> Any:
    """Twice the numbers, in tiles."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    s = te.create_schedule(B.op)
    cfg = autotune.get_config()
    cfg.define_split("tile", B.op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, B, B.op.axis[0])
    return s, [A, B]


def test_a_tuner_takes_results_that_were_made_by_hand() -> None:
    task = autotune.task.create("tests/by_hand", args=(16,), target="llvm")
    tuner, tried = autotune.tuner.GridSearchTuner(task), []
    while tuner.has_next():
        for config in tuner.next_batch(2):
            inp = autotune.MeasureInput(target=task.target, task=task, config=config)
            tried.append(config["tile"].size[-1])
            costs, number = ((1.0 / tried[-1], 9.0, 1e-9), 0) if tried[-1] < 16 else ((1e9,), 4)
            tuner.update([inp], [autotune.MeasureResult(costs, number, 1.0, 2.0)])
    assert sorted(tried) == [1, 2, 4, 8, 16]
    assert tuner.best_config is not None and tuner.best is not None
    assert tuner.best_config["tile"].size[-1] == 8 and tuner.best.seconds == 0.125


def test_lines_go_both_ways(tmp_path: Path) -> None:
    task = autotune.task.create("tests/by_hand", args=(16,), target="llvm -mcpu=haswell")
    inp = autotune.MeasureInput(task.target, task, task.config_space.get(3))
    line = autotune.record.encode(inp, autotune.MeasureResult((0.5, 0.25), 0, 3.0, 4.0))
    assert json.loads(line)["result"] == [[0.5, 0.25], 0, 3.0, 4.0]
    again, result = autotune.record.decode(line)
    assert (again.task.name, again.task.args, again.config) == (task.name, task.args, inp.config)
    assert (str(again.target), result.costs, result.error_no) == (str(task.target), (0.5, 0.25), 0)
    log = tmp_path / "log.json"
    log.write_text(f"# a comment\n{line}\n\n{line}\n", encoding="utf-8")
    assert len(list(autotune.record.load_from_file(log))) == 2


def test_the_best_of_our_own_logs_is_read_and_asked_for(tmp_path: Path) -> None:
    task, log = autotune.task.create("tests/by_hand", args=(16,), target="llvm"), tmp_path / "log.jsonl"
    option = autotune.measure_option(runner=autotune.LocalRunner(timeout=20))
    tuner = autotune.tuner.GridSearchTuner(task)
    tuner.tune(2, option, callbacks=[autotune.callback.log_to_file(log)])
    measured = list(autotune.record.load_from_file(log))
    assert sorted(inp.config.index for inp, _ in measured) == [0, 1] and all(result.ok for _, result in measured)
    autotune.record.pick_best(log, tmp_path / "best")
    ((inp, result),) = autotune.record.load_from_file(tmp_path / "best")
    assert inp.config == tuner.best_config and result.seconds == min(r.seconds for _, r in measured)
    found = autotune.apply_history_best(log).query(task.target, task.workload)
    assert found is not None and found.median == result.seconds


def test_what_is_no_line_is_refused() -> None:
    for line in (
        "",
        "{}",
        "[1]",
        '{"input": ["llvm", "nobody", [], {}], "config": {}, "result": [[1], 0, 1, 1], "version": 0.2}',
    ):
        with pytest.raises(RecordError):
            autotune.record.decode(line)
    with pytest.raises(DefinitionError, match="reads json, got 'pickle'"):
        autotune.record.decode("", "pickle")
