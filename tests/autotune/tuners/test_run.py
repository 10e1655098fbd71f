"""Tuning a template with a log and live progress, as the command line does; no kernel is built here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorlang.autotune import Interrupted, Phase, Progress, TemplateTask, read_log, tune_template
from tensorlang.autotune.templates.task import create, template_task
from tensorlang.autotune.tuners.index import RandomTuner
from tensorlang.errors import DefinitionError, TargetError
from tensorlang.target import parse

from ..templates.programs import matmul
from .fakes import FakeMachines, FakeMeasurer


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.machines.Measurer", lambda task, seed, limits: FakeMeasurer())


@pytest.fixture(scope="module")
def task() -> TemplateTask:
    return create(matmul, args=(16, 24, 12), target="llvm -num-cores=1")


def test_a_run_goes_on_where_the_log_ends(task: TemplateTask, tmp_path: Path) -> None:
    log, told = tmp_path / "log", list[Progress]()
    first = tune_template(task, trials=6, log=log, tuner=RandomTuner(task))
    second = tune_template(task, trials=10, log=log, tuner=RandomTuner(task), callbacks=[told.append])
    assert second.records[:6] == first.records
    assert (second.resumed, len(second.records)) == (6, 10)
    assert [p.trials for p in told] == [7, 8, 9, 10]
    assert [p.resumed for p in told] == [6] * 4
    assert read_log(log).records == second.records
    assert second.best is not None
    assert second.best.median == min(r.median for r in second.records)
    assert second.peak_gflops == told[0].peak_gflops == 100.0
    again = tune_template(task, trials=10, log=log)
    assert (again.records, again.resumed) == (second.records, 10)


def test_ctrl_c_keeps_what_was_measured(task: TemplateTask, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.trials == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="same log to go on") as caught:
        tune_template(task, trials=50, log=tmp_path / "log", tuner=RandomTuner(task), callbacks=[stop])
    assert len(caught.value.result.records) == 3
    assert read_log(tmp_path / "log").records == caught.value.result.records


def test_any_time_is_enough_for_one_configuration(task: TemplateTask) -> None:
    there = FakeMachines(parse("llvm -mcpu=haswell"))
    result = tune_template(task, trials=50, seconds=0.0, tuner=RandomTuner(task), runner=there)
    assert [r.ok for r in result.records] == [True]
    assert Phase.READING in result.phases


def test_only_this_machine_can_be_timed() -> None:
    with pytest.raises(TargetError, match="cannot be timed on this machine"):
        tune_template(create(matmul, args=(4, 4, 4), target="interpreter"), trials=1)


def test_a_function_of_a_file_is_a_template_or_not(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from tensorlang import autotune, te\n"
        "@autotune.template('own/copy')\n"
        "def tuned(n):\n"
        "    A, B = plain(n)\n"
        "    s = te.create_schedule(B.op)\n"
        "    autotune.get_config().define_split('tile', s[B].op.axis[0], num_outputs=2)\n"
        "    autotune.get_config()['tile'].apply(s, B, s[B].op.axis[0])\n"
        "    return s, [A, B]\n"
        "def plain(n):\n"
        "    A = te.placeholder((n,), name='A')\n"
        "    return [A, te.compute((n,), lambda i: A[i] * 2.0, name='B')]\n"
    )
    found = template_task(f"{path}:tuned", (12,))
    assert found is not None
    assert (found.name, found.workload.name, found.config_space.size) == ("own/copy", f"{path}:tuned", 6)
    assert template_task(f"{path}:plain", (12,)) is None
    assert template_task("matmul", (4, 4, 4)) is None


def test_a_tuner_of_ones_own_moves_to_other_machines() -> None:
    task, there = create(matmul, args=(16, 24, 12), threads=1), FakeMachines(parse("llvm -mcpu=haswell"))
    tuner = RandomTuner(task)
    result = tune_template(task, trials=3, tuner=tuner, runner=there)
    assert result.task.target.cpu == tuner.task.target.cpu == "haswell"
    assert [r.target["cpu"] for r in result.records] == ["haswell"] * 3


def test_a_tuner_has_its_own_model(task: TemplateTask) -> None:
    with pytest.raises(DefinitionError, match=r"give the model to the tuner: XGBTuner\(task, model=...\)"):
        tune_template(task, tuner=RandomTuner(task), model="pretrained")
