"""Kernels built by several processes: the same ones, with the same errors, and nobody is left behind."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from tensorlang import config, te
from tensorlang.autotune import apply_history_best
from tensorlang.autotune.measuring import pool
from tensorlang.driver import Lowered
from tensorlang.errors import ScheduleError
from tensorlang.networks import building, crew
from tensorlang.networks.building import Job, build_all
from tensorlang.networks.crew import Crew, workers_for
from tensorlang.target import parse

A = te.placeholder((6, 8), name="A")
X = np.arange(48, dtype=np.float32).reshape(6, 8)


def scaled(factor: int) -> Job:
    return Job((A,), (te.compute((6, 8), lambda i, j: A[i, j] * factor, name="B"),), parse(None))


def called() -> Job:
    """A kernel that no other process can build."""

    def seven(given: Any, made: Any) -> None:
        made[:] = 7 * given

    made = te.extern((6, 8), [A], seven, name="B", dtype="float32")
    return Job((A,), (made,), parse(None), calls=True)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    with config.override(cache_dir=tmp_path):
        yield [scaled(2), scaled(3), called(), scaled(5)]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs that this process did."""
    found, begin = list[Job](), Job.begin

    def recorded(job: Job) -> Callable[[], Any]:
        found.append(job)
        return begin(job)

    monkeypatch.setattr(Job, "begin", recorded)
    return found


def check(kernels: list[Any]) -> None:
    for factor, kernel in zip((2, 3, 7, 5), kernels, strict=True):
        made = np.empty_like(X)
        kernel(X, made)
        np.testing.assert_array_equal(made, factor * X)


def test_workers_build_what_is_built_here(jobs: list[Job], begun: list[Job], tmp_path: Path) -> None:
    told: list[Job] = []
    with Crew() as workers:
        kernels = build_all(jobs, workers.begin(2), told.append, here=False)
    assert begun == [jobs[2]] and sorted(map(id, told)) == sorted(map(id, jobs))
    check(kernels)
    objects = [file for file in tmp_path.glob("*.o") if b"ELF" in file.read_bytes()[:36]]
    assert len(objects) == len(jobs)  # where the settings of this process say
    for kernel, own in zip(kernels, build_all(jobs, Crew()), strict=True):
        assert [kernel.source(form) for form in own.source_forms] == [own.source(form) for form in own.source_forms]
        assert isinstance(kernel.origin, Lowered) and isinstance(own.origin, Lowered)
        assert kernel.origin.schedule.trace == own.origin.schedule.trace
        assert kernel.packed is not None


def test_all_processes_take_from_one_queue(jobs: list[Job], begun: list[Job]) -> None:
    told: list[Job] = []
    with Crew() as workers:
        check(build_all(jobs, workers.begin(1), told.append))
    assert jobs[2] in begun and sorted(map(id, told)) == sorted(map(id, jobs))


def dies(message: bytes) -> None:
    os._exit(3)


def test_what_a_worker_could_not_build_is_built_here(
    jobs: list[Job], begun: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "_built", dies)
    with Crew() as workers:
        check(build_all(jobs, workers.begin(1), here=False))
    assert sorted(map(id, begun)) == sorted(map(id, jobs))


def test_errors_are_those_of_this_process(jobs: list[Job]) -> None:
    found = []
    for count in (0, 1):
        with Crew() as workers, config.override(statements=1), pytest.raises(ScheduleError) as caught:
            build_all(jobs[:1], workers.begin(count), here=False)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_what_is_to_be_done_meanwhile_waits_for_no_kernel(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = Event(), list[bool]()
    begin = Job.begin

    def waits(job: Job) -> Callable[[], Any]:
        finish = begin(job)
        return lambda: finish() if begun.wait(60.0) else None

    def meanwhile() -> None:
        done.append(begun.is_set())
        begun.set()

    monkeypatch.setattr(Job, "begin", waits)
    check(build_all(jobs, Crew(), meanwhile=meanwhile))
    assert done == [False]


def test_kernels_of_few_stages_are_lowered_first(jobs: list[Job]) -> None:
    first: te.Tensor = te.compute((6, 8), lambda i, j: A[i, j] + 1, name="B")
    long, told = Job((A,), (te.compute((6, 8), lambda i, j: first[i, j] * 2, name="C"),), parse(None)), list[Job]()
    build_all([long, *jobs[:2]], Crew(), told.append)
    assert told == [*jobs[:2], long]


def test_an_interrupt_ends_workers(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[pool.Worker] = []

    class Recorded(pool.Worker):
        def __init__(self) -> None:
            super().__init__()
            started.append(self)

    def stop(job: Job) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "Worker", Recorded)
    for here in (True, False):
        with pytest.raises(KeyboardInterrupt), Crew() as workers:
            build_all(jobs, workers.begin(2), stop, here)
    assert started and all(worker._closed and worker._process is None for worker in started)


def test_workers_are_started_where_they_are_worth_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def found(cores: int, kernels: int, quota: float = math.inf) -> int:
        monkeypatch.setattr(crew, "cpu_quota", lambda: quota)
        with config.override(num_threads=cores):
            return workers_for(kernels)

    assert [found(cores, 100) for cores in (1, 2, 3, 8, 64)] == [0, 0, 1, 6, 8]
    assert [found(8, kernels) for kernels in (0, 3, 4, 9)] == [0, 0, 1, 2]
    assert [found(64, 100, quota) for quota in (0.5, 3.5, 16.0)] == [0, 1, 8]
    (tmp_path / "log.jsonl").write_text("")
    with apply_history_best(tmp_path / "log.jsonl", miss="ignore"):
        assert found(8, 100) == 0
    with config.override(dump=tmp_path):
        assert found(8, 100) == 0
    with config.override(log="networks"):
        assert found(8, 100) == 0
