"""Tuning through a scheduler, with real workers that are killed in the middle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest

from tensorlang.autotune import Interrupted, Limits, Progress, Status, Task, create_task, read_log, tune
from tensorlang.autotune.cluster.address import ConnectionRefused, Tls
from tensorlang.autotune.cluster.machines import Cluster
from tensorlang.autotune.measuring.harness import WorkersLost
from tensorlang.autotune.space import sketches_of
from tensorlang.errors import TargetError
from tests.forked_workers import FORKED

from . import workers

pytest.importorskip("distributed", reason="needs dask.distributed: pip install 'tensorlang[cluster]'")

GOOD = (Status.OK, Status.NOISY)
FEW = Limits(builders=1)  # processes to start


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with workers.scheduler() as made:
        yield made


@pytest.fixture(scope="module")
def first(address: str) -> Iterator[psutil.Process]:
    """A worker whose device is `first`."""
    with workers.worker(address, "--device", "first", "--threads", "1") as process:
        yield process


@pytest.fixture(scope="module")
def task() -> Task:
    return create_task("matmul", (24, 40, 16), threads=1)


def _traces(task: Task, count: int) -> list[Any]:
    sketch = sketches_of(task)[0]
    rows = sketch.sample(np.random.default_rng(0), count)
    return [sketch.trace.with_decisions(sketch.decisions(row)).to_json() for row in rows]


def test_a_task_is_tuned_on_the_workers(address: str, first: psutil.Process, task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = tune(task, trials=10, log=log, limits=FEW, runner=address, compare=True)
    assert len(result.records) == 10
    assert (result.ended, result.failures.keys() - {"noisy"}) == ("", set())
    assert result.best is not None
    assert result.comparison is not None
    assert all(r.host["cpu"] and r.host["peak_gflops"] and r.conditions["cpus"] for r in result.records)
    assert read_log(log).records == result.records


def test_a_cluster_has_the_target_of_its_workers(address: str, first: psutil.Process) -> None:
    with Cluster(f"{address}/first") as cluster:
        assert cluster.target.cores == 1
        assert cluster.target_of("llvm") == cluster.target_of(None) == cluster.target
        assert cluster.target_of("llvm -mcpu=haswell") == "llvm -mcpu=haswell"
        with pytest.raises(TargetError, match=r"has 2 threads, the workers of .* have 1; make it with threads=1"):
            cluster.fit(create_task("matmul", (8, 8, 8), threads=2))
        own = create_task("matmul", (8, 8, 8), "llvm -mcpu=haswell", threads=1)
        assert cluster.fit(own) is own


def test_a_device_that_nobody_has_is_named(address: str, first: psutil.Process) -> None:
    with pytest.raises(TargetError, match=r"device 'other'.*tensorlang worker dask://.* --device other"):
        Cluster(f"{address}/other", patience=0.2).__enter__()


def test_no_scheduler_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.cluster.connection.CONNECT_LIMIT", 0.5)
    with pytest.raises(ConnectionRefused, match="start one with: dask scheduler --port 1"):
        Cluster("dask://127.0.0.1:1").__enter__()


def test_ctrl_c_keeps_what_was_measured(address: str, first: psutil.Process, task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def stop(progress: Progress) -> None:
        if progress.trials == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        tune(task, trials=50, log=log, callbacks=[stop], limits=FEW, runner=address)
    assert len(caught.value.result.records) == len(read_log(log).records) == 3


def test_workers_that_die_lose_nothing(address: str, first: psutil.Process, task: Task) -> None:
    """The second worker dies with all its children in the middle, the first is restarted by its nanny."""
    traces = _traces(task, 16)
    found: dict[int, Status] = {}
    with (
        workers.worker(address, "--threads", "1") as second,
        Cluster(address) as cluster,
        cluster.harness(task, 0, FEW) as harness,
    ):
        for position, measurement in harness.measure(traces, lambda: None):
            assert position not in found
            found[position] = measurement.status
            if len(found) == 2:
                workers.kill(workers.descendants(second.pid))
            if len(found) == 6:
                workers.kill([workers.dask_worker(first)])
    assert sorted(found) == list(range(16))
    assert set(found.values()) <= set(GOOD)


def test_when_nobody_is_left_the_run_ends_with_what_is_done(address: str, task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        workers.worker(address, "--device", "last", "--threads", "1") as last,
        Cluster(f"{address}/last", patience=1.0) as cluster,
    ):

        def kill(progress: Progress) -> None:
            if progress.trials == 2:
                workers.kill(workers.descendants(last.pid))

        result = tune(task, trials=50, log=log, callbacks=[kill], limits=FEW, runner=cluster)
    assert 2 <= len(result.records) < 50
    assert read_log(log).records == result.records
    assert "no worker with the device 'last'" in result.ended
    assert "tensorlang worker" in result.ended


def test_a_worker_of_another_kind_ends_the_run(address: str, first: psutil.Process, task: Task) -> None:
    with Cluster(f"{address}/first") as cluster, cluster.harness(task, 0, Limits()) as harness:
        harness._session = harness._session.__class__("x", b"", ("other",), 0, Limits())
        with pytest.raises(WorkersLost, match="worker of another kind joined"):
            list(harness.measure(_traces(task, 1), lambda: None))


def test_encrypted_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.cluster.connection.CONNECT_LIMIT", 5.0)
    from distributed.security import Security

    keys = Security.temporary()
    paths = {}
    for name in ("tls_ca_file", "tls_client_cert", "tls_client_key"):
        paths[name] = tmp_path / name
        paths[name].write_text(getattr(keys, name))
    ca, cert, key = map(str, paths.values())
    options = ("--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key)
    with workers.scheduler(keys) as address, workers.worker(address, *options):
        with Cluster(address, Tls(ca, cert, key)) as cluster:
            assert cluster.target.kind == "llvm"
        with pytest.raises(ConnectionRefused):
            Cluster(address).__enter__()


def test_no_process_is_left(address: str, first: psutil.Process, task: Task) -> None:
    """The children of a session end with it."""
    with Cluster(f"{address}/first") as cluster:
        with cluster.harness(task, 0, FEW) as harness:
            next(harness.measure(_traces(task, 1), lambda: None))
            assert _children(first)
        deadline = time.monotonic() + 20
        while _children(first) and time.monotonic() < deadline:
            time.sleep(0.1)
    assert not _children(first)


def _children(nanny: psutil.Process) -> list[psutil.Process]:
    found = []
    for process in nanny.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it may end at any time
            name, words = process.name(), " ".join(process.cmdline())
            found += [process] if name == FORKED or "measuring.worker" in words else []
    return found
