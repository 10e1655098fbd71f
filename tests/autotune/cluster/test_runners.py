"""Every way to tune, on a cluster: tuners of templates, search tasks, task schedulers, the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil  # type: ignore[import-untyped]
import pytest

from tensorlang import autotune, te
from tensorlang.autotune import (
    DaskRunner,
    Limits,
    Progress,
    RecordToFile,
    SearchTask,
    Status,
    TaskScheduler,
    TuningOptions,
    TuningRecord,
    create_task,
    measure_option,
    read_log,
)
from tensorlang.autotune.cluster.address import ConnectionRefused
from tensorlang.autotune.cluster.connection import Connection
from tensorlang.autotune.cluster.machines import Cluster, ClusterHarness
from tensorlang.autotune.measuring.harness import WorkersLost
from tensorlang.autotune.tuners.index import RandomTuner
from tensorlang.cli.main import main
from tensorlang.errors import TargetError
from tensorlang.te.operation import Tensor

from ..templates import programs
from . import workers

pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'tensorlang[cluster]'")


def bad(records: Sequence[TuningRecord]) -> list[str]:
    """Errors of what was not measured well."""
    return [r.error for r in records if r.status not in (Status.OK, Status.NOISY)]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with workers.scheduler() as made:
        yield made


@pytest.fixture(scope="module")
def worker(address: str) -> Iterator[psutil.Process]:
    with workers.worker(address, "--threads", "1") as process:
        yield process


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """Those that are made."""
    made: list[Connection] = []
    original = Connection.__init__

    def counted(self: Connection, *settings: Any) -> None:
        made.append(self)
        original(self, *settings)

    monkeypatch.setattr(Connection, "__init__", counted)
    return made


def scaled(n: int, factor: float) -> list[Tensor]:
    A = te.placeholder((n, n), name="A")
    return [A, te.compute((n, n), lambda i, j: A[i, j] * factor, name="B")]


def test_a_tuner_of_templates_goes_on_when_its_worker_dies(
    address: str, worker: psutil.Process, tmp_path: Path
) -> None:
    tuner = RandomTuner(autotune.task.create(programs.matmul, args=(16, 24, 12), threads=1))

    def kill(tuner: Any, inputs: object, results: object) -> None:
        if tuner.trials == 2:
            workers.kill([workers.dask_worker(worker)])

    log = tmp_path / "log"
    option = measure_option(runner=DaskRunner(address, build_parallel=1))
    tuner.tune(9, measure_option=option, callbacks=[autotune.callback.log_to_file(log), kill])
    assert not bad(tuner.records)
    assert len({r.trace_key for r in tuner.records}) == tuner.trials == 9
    assert list(read_log(log).records) == tuner.records
    assert all(r.host["cpu"] and r.conditions["cpus"] for r in tuner.records)


def test_tasks_for_the_workers_target_fit_and_others_move(address: str, worker: psutil.Process) -> None:
    with Cluster(address) as cluster:
        made = autotune.task.create(programs.matmul, args=(16, 24, 12), target=cluster.target)
        tuner, search = RandomTuner(made), SearchTask(scaled, (8, 2.0), cluster.target_of("llvm"))
        tuner.move_to(cluster)
        search.move_to(cluster)
        assert tuner.task is made
        assert search.target == made.target == cluster.target
        here = SearchTask(scaled, (8, 2.0), threads=1)
        here.move_to(cluster)
        assert here.target == cluster.target
        for wide in (SearchTask(scaled, (8, 2.0), threads=2), SearchTask(scaled, (8, 2.0), "llvm -num-cores=3")):
            with pytest.raises(TargetError, match=r"threads, the workers of .* have 1; make it with threads=1"):
                wide.tune(TuningOptions(2, runner=cluster, verbose=0))


def test_a_tuner_of_templates_says_when_nobody_is_left(address: str) -> None:
    tuner = RandomTuner(autotune.task.create(programs.matmul, args=(16, 24, 12), threads=1))
    with (
        workers.worker(address, "--device", "last", "--threads", "1") as last,
        Cluster(f"{address}/last", patience=1.0) as cluster,
    ):

        def kill(tuner: Any, inputs: object, results: object) -> None:
            workers.kill(workers.descendants(last.pid))

        option = measure_option(runner=DaskRunner(cluster, build_parallel=1))
        with pytest.raises(WorkersLost, match=r"no worker with the device 'last'.*tensorlang worker dask://"):
            tuner.tune(20, measure_option=option, callbacks=[kill])
    assert 0 < tuner.trials < 20


def test_all_tasks_share_one_connection_and_a_death_loses_nothing(
    address: str, worker: psutil.Process, connections: list[Connection], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    tasks = [SearchTask(scaled, (n, 3.0), threads=1) for n in (16, 24)]
    trials = 0

    def kill(progress: Progress) -> None:
        nonlocal trials
        trials += 1
        if trials == 4:  # in the first round of the second task
            workers.kill([workers.dask_worker(worker)])

    options = TuningOptions(
        num_measure_trials=9,
        num_measures_per_round=3,
        runner=DaskRunner(address, build_parallel=1),
        measure_callbacks=[RecordToFile(log), kill],
        verbose=0,
    )
    results = TaskScheduler(tasks).tune(options)
    assert len(connections) == 1
    assert [r.ended for r in results] == ["", ""]
    records = [record for result in results for record in result.records]
    assert len(records) == len(read_log(log).records) == 9
    assert not bad(records)
    for task in tasks:
        task.apply_best(log)


def test_a_template_is_tuned_from_the_command_line(
    address: str, worker: psutil.Process, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, log = tmp_path / "own.py", tmp_path / "log"
    file.write_text(Path(programs.__file__).read_text("utf-8").replace('"tests/', '"cluster/'), "utf-8")
    arguments = ["tune", f"{file}:matmul", "--args", "16,24,12", "--trials", "3", "--log", str(log)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--runner", address, "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 3
    records = read_log(log).records
    assert [r.sketch.partition(" ")[0] for r in records] == ["cluster/matmul"] * 3
    assert all(r.conditions["cpus"] and r.threads == 1 for r in records)


def test_no_scheduler_is_a_clear_error_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.cluster.connection.CONNECT_LIMIT", 0.5)
    nowhere = "dask://127.0.0.1:1"
    task, template = SearchTask(scaled, (8, 2.0)), autotune.task.create(programs.matmul, args=(16, 24, 12))
    options = TuningOptions(4, runner=nowhere, verbose=0)
    for tune in (
        lambda: task.tune(options),
        lambda: TaskScheduler([task]).tune(options),
        lambda: RandomTuner(template).tune(4, measure_option=measure_option(runner=nowhere)),
    ):
        with pytest.raises(ConnectionRefused, match=r"no scheduler answers at .*:1; start one with: dask scheduler"):
            tune()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("count", "batch"), [(0, 8), (1, 8), (2, 8), (3, 12), (40, 160)])
def test_a_batch_has_a_call_for_every_worker(count: int, batch: int) -> None:
    connection = cast(Connection, SimpleNamespace(workers=[f"tcp://{n}" for n in range(count)]))
    harness = ClusterHarness(create_task("matmul", (8, 8, 8)), cast(Any, Limits()), connection)
    assert harness.batch == batch
