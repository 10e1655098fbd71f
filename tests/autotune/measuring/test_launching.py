"""Workers die with the process that started them, and with no less."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time

import psutil  # type: ignore[import-untyped]
import pytest

from tensorlang.autotune.measuring import launching
from tensorlang.autotune.measuring.pool import Worker
from tensorlang.autotune.records.record import Status

TUNER = """
import os, signal, sys
from tensorlang.autotune.measuring import launching
from tensorlang.autotune.measuring.messages import Channel
import socket
for what in ("stopped", "starting"):
    ours, theirs = socket.socketpair()
    process = launching.launch("timeit", ["import time; time.sleep(60)"], theirs.fileno(), os.environ)
    if what == "stopped":
        Channel(ours).wait(10)
        process.send_signal(signal.SIGSTOP)
    print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)  # who adopted it has not looked yet
    except psutil.NoSuchProcess:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing kills what is stopped")
def test_no_worker_outlives_its_tuner_stopped_or_starting() -> None:
    done = subprocess.run([sys.executable, "-c", TUNER], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    until = time.monotonic() + 20
    while not all(map(_is_gone, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    assert all(map(_is_gone, pids))


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    made: list[Worker] = []
    thread = threading.Thread(target=lambda: made.append(Worker()))
    thread.start()
    thread.join()
    with made[0] as worker:
        assert worker.run(30, math.sqrt, 4.0).status is Status.OK
        assert worker.starts == 1


def test_who_has_another_parent_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(launching, "_LOOK_EVERY", 0.001)
    here, parents = threading.current_thread(), iter([5, 5, 1])
    monkeypatch.setattr(os, "getppid", lambda: 5 if threading.current_thread() is here else next(parents))
    launching.die_with(5)
    until = time.monotonic() + 10
    while not ended and time.monotonic() < until:
        time.sleep(0.001)
    assert ended == [1]
