"""Workers: whatever a call does to its process, the caller gets a status and the next call works."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

import tensorlang
from tensorlang.autotune.measuring.launching import launch
from tensorlang.autotune.measuring.pool import Shares, Worker, WorkerSettings, share_cpus, thread_environment, wait_any
from tensorlang.autotune.records.record import Status
from tensorlang.errors import InternalError
from tests.forked_workers import FORKED


@pytest.fixture
def as_users_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh interpreters, and no forks of one of these tests."""
    monkeypatch.setattr("tensorlang.autotune.measuring.pool.launch", launch)


fresh = pytest.mark.usefixtures("as_users_have_them")


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(WorkerSettings(memory_bytes=4 << 30)) as made:
        yield made


def _alive(worker: Worker) -> bool:
    return bool(worker.run(30, math.sqrt, 4.0).value == 2.0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all are fresh interpreters")
def test_workers_of_tests_are_forks(worker: Worker) -> None:
    """Or each of hundreds would take a second to import this package."""
    assert psutil.Process(worker.run(30, os.getpid).value).name() == FORKED


@fresh
def test_workers_of_users_are_fresh_interpreters(worker: Worker) -> None:
    assert "tensorlang.autotune.measuring.worker" in psutil.Process(worker.run(30, os.getpid).value).cmdline()


def test_a_call_returns_its_value(worker: Worker) -> None:
    assert _alive(worker)
    assert worker.starts == 1


@fresh
def test_a_worker_finds_this_package_wherever_it_lies(worker: Worker) -> None:
    first, *_ = worker.run(30, os.getenv, "PYTHONPATH").value.split(os.pathsep)
    assert tensorlang.__file__ == str(Path(first, "tensorlang", "__init__.py"))


def test_an_exception_is_a_status_and_the_worker_stays(worker: Worker) -> None:
    reply = worker.run(30, math.sqrt, -1.0)
    assert (reply.status, reply.value) == (Status.RUN_ERROR, None)
    assert "ValueError" in reply.error
    assert _alive(worker)
    assert worker.starts == 1


@fresh
def test_a_segmentation_fault_is_a_crash_by_name(worker: Worker) -> None:
    reply = worker.run(30, ctypes.string_at, 0)
    assert reply.status is Status.CRASH
    assert "SIGSEGV" in reply.error
    assert _alive(worker)
    assert worker.starts == 2


def test_an_exit_is_a_crash_with_its_code(worker: Worker) -> None:
    reply = worker.run(30, os._exit, 3)
    assert (reply.status, "code 3" in reply.error) == (Status.CRASH, True)
    assert _alive(worker)


def test_a_hang_is_killed_at_its_limit(worker: Worker) -> None:
    start = time.monotonic()
    reply = worker.run(0.3, time.sleep, 600)
    assert reply.status is Status.TIMEOUT
    assert "0.3 s" in reply.error
    assert time.monotonic() - start < 10
    assert _alive(worker)


@fresh
def test_too_much_memory_is_a_status(worker: Worker) -> None:
    assert worker.run(30, bytearray, 8 << 30).status is Status.MEMORY
    assert worker.starts == 1


def test_a_worker_that_died_while_idle_is_replaced(worker: Worker) -> None:
    pid = worker.run(30, os.getpid).value
    psutil.Process(pid).kill()
    psutil.wait_procs([psutil.Process(pid)], timeout=10)
    assert worker.run(30, os.getpid).status in (Status.OK, Status.CRASH)
    assert _alive(worker)
    assert worker.starts == 2


@contextmanager
def _no_longer_than(seconds: int) -> Iterator[None]:
    """Turn what would wait for ever into a failure."""

    def fail(*_: object) -> None:
        raise TimeoutError("it waits for a worker")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _stop(worker: Worker) -> None:
    """Stop the process behind the back of its owner."""
    assert worker._process is not None
    worker._process.send_signal(signal.SIGSTOP)


MORE_THAN_FITS = 1 << 24
"""Bytes that no connection takes at once."""


def test_a_reply_that_a_pause_cuts_in_two_is_read_after_it(worker: Worker) -> None:
    assert _alive(worker)
    worker.submit(30, bytes, MORE_THAN_FITS)
    wait_any([worker])
    worker.pause()
    assert worker.collect() is None
    wait_any([worker])
    worker.resume()
    while (reply := worker.collect()) is None:
        wait_any([worker])
    assert reply.value == bytes(MORE_THAN_FITS)


def test_long_messages_come_whole_through_pauses_at_any_moment(worker: Worker) -> None:
    chance = random.Random(0)
    with _no_longer_than(60):
        for _ in range(30):
            sent = chance.randbytes(chance.randrange(1 << 20))
            worker.submit(30, operator.mul, sent, 3)
            while (reply := worker.collect()) is None:
                if chance.random() < 0.3:
                    worker.pause()
                    time.sleep(chance.random() * 1e-3)
                    assert worker.collect() is None
                    worker.resume()
                else:
                    wait_any([worker], time.monotonic() + chance.random() * 1e-3)
            assert reply.value == 3 * sent
    assert worker.starts == 1


@pytest.mark.parametrize("size", [0, MORE_THAN_FITS])
def test_a_worker_that_somebody_stopped_is_given_up_at_its_limit(worker: Worker, size: int) -> None:
    assert _alive(worker)
    _stop(worker)
    with _no_longer_than(30):
        reply = worker.run(0.2, len, bytes(size))
    assert (reply.status, reply.error) == (Status.TIMEOUT, "not done after 0.2 s")
    assert _alive(worker)


@fresh
def test_a_worker_that_does_not_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorlang.autotune.measuring.pool.START_LIMIT", 0.3)
    with Worker() as worker, _no_longer_than(30):
        _stop(worker)
        reply = worker.run(30, len, bytes(MORE_THAN_FITS))
        assert (reply.status, reply.error) == (Status.TIMEOUT, "not started after 0.3 s")


@fresh
def test_a_worker_that_dies_at_its_start_is_a_crash() -> None:
    with Worker(WorkerSettings(memory_bytes=1 << 20)) as worker, _no_longer_than(60):
        assert worker.run(30, len, bytes(MORE_THAN_FITS)).status is Status.CRASH


def test_a_worker_that_dies_while_it_is_paused_is_a_crash(worker: Worker) -> None:
    assert _alive(worker)
    worker.submit(30, time.sleep, 600)
    worker.pause()
    assert worker._process is not None
    worker._process.kill()
    with _no_longer_than(30):
        worker.resume()
        while (reply := worker.collect()) is None:
            wait_any([worker])
    assert (reply.status, "SIGKILL" in reply.error) == (Status.CRASH, True)
    assert _alive(worker)


def test_an_interrupt_in_a_pause_leaves_no_stopped_process(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _alive(worker)
    process = worker._process
    assert process is not None
    send = process.send_signal

    def interrupted(number: int) -> None:
        send(number)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(process, "send_signal", interrupted)
        worker.pause()
    worker.abandon()
    with _no_longer_than(30):
        assert _alive(worker)
    assert worker.starts == 1


def test_two_calls_at_once_are_our_own_mistake(worker: Worker) -> None:
    worker.submit(30, time.sleep, 0.2)
    with pytest.raises(InternalError):
        worker.submit(30, time.sleep, 0.2)


def test_workers_run_beside_each_other(worker: Worker) -> None:
    with Worker() as other:
        for each in (worker, other):
            each.run(30, math.sqrt, 1.0)
        for each in (worker, other):
            each.submit(30, time.sleep, 0.5)
        start = time.monotonic()
        waiting = {worker, other}
        while waiting:
            wait_any(waiting)
            waiting -= {w for w in waiting if w.collect() is not None}
        assert time.monotonic() - start < 0.9


def test_closing_ends_the_process() -> None:
    worker = Worker()
    pid = worker.run(30, os.getpid).value
    worker.close()
    assert not psutil.pid_exists(pid)


@fresh
def test_a_worker_leaves_ctrl_c_to_its_parent_and_writes_no_core(worker: Worker) -> None:
    assert worker.run(30, resource.getrlimit, resource.RLIMIT_CORE).value == (0, 0)
    pid = worker.run(30, os.getpid).value
    psutil.Process(pid).send_signal(2)
    assert _alive(worker)
    assert worker.starts == 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs CPU affinity")
def test_a_worker_stays_on_its_cpus() -> None:
    cpu = min(os.sched_getaffinity(0))
    with Worker(WorkerSettings(cpus=(cpu,), environment=thread_environment(3))) as worker:
        assert worker.run(30, os.sched_getaffinity, 0).value == {cpu}
        assert worker.run(30, os.getenv, "OMP_NUM_THREADS").value == "3"


@pytest.mark.parametrize(
    ("threads", "cpus", "runner", "builders", "polite"),
    [
        (1, (0, 1), (1,), (0, 1), (False, True)),
        (2, (0, 1), (0, 1), (0, 1), (True, True)),
        (3, (4, 5, 6, 7), (5, 6, 7), (4, 5, 6, 7), (False, True, True, True)),
        (8, (0, 1), (0, 1), (0, 1), (True, True)),
        (2, tuple(range(8)), (6, 7), (0, 1, 2, 3, 4, 5), (False,) * 6),
        (1, tuple(range(64)), (63,), tuple(range(16)), (False,) * 16),
    ],
)
def test_builders_that_share_a_cpu_with_the_runner_are_polite(
    threads: int, cpus: tuple[int, ...], runner: tuple[int, ...], builders: tuple[int, ...], polite: tuple[bool, ...]
) -> None:
    assert share_cpus(threads, cpus) == Shares(runner, tuple((c,) for c in builders), polite)


def test_a_number_of_builders_is_kept_to() -> None:
    assert share_cpus(1, (0, 1), 1) == Shares((1,), ((0,),), (False,))
    assert share_cpus(1, (0, 1), 3) == Shares((1,), ((0,), (1,), (0,)), (False, True, False))
    assert share_cpus(1, (), 2) == Shares((), ((), ()), (True, True))


def test_a_paused_call_goes_on_and_its_limit_waits(worker: Worker) -> None:
    assert _alive(worker)
    worker.submit(0.5, time.sleep, 0.1)
    worker.pause()
    time.sleep(0.7)
    assert worker.remaining == math.inf
    worker.resume()
    while (reply := worker.collect()) is None:
        wait_any([worker])
    assert reply.status is Status.OK
    assert worker.starts == 1


def test_an_abandoned_call_leaves_the_worker_free(worker: Worker) -> None:
    worker.submit(30, time.sleep, 600)
    worker.pause()
    worker.abandon()
    assert not worker.busy
    assert _alive(worker)
    worker.abandon()
    assert worker.starts == 2
