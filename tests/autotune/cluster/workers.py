"""Schedulers in this process, and workers as users start them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[3]
START = 60.0
FORKING = {"DASK_DISTRIBUTED__WORKER__PRELOAD": "tests.autotune.cluster.forking"} if sys.platform == "linux" else {}


@contextmanager
def scheduler(security: Any = None) -> Iterator[str]:
    """A scheduler without workers; yields its dask:// address."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=0, dashboard_address=":0", security=security, host="127.0.0.1", silence_logs="ERROR"
    ) as cluster:
        yield f"dask://{cluster.scheduler_address.partition('://')[2]}"


@contextmanager
def worker(address: str, *options: str) -> Iterator[psutil.Process]:
    """`tensorlang worker` in a process of its own; yields it when it has announced itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorlang", "worker", address, *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **FORKING},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        assert "measuring for dask://" in said
        yield psutil.Process(process.pid)
    finally:
        kill(descendants(process.pid))
        process.kill()
        process.wait()
        process.stderr.close()


def descendants(pid: int) -> list[psutil.Process]:
    """A process and all that came of it."""
    with suppress(psutil.NoSuchProcess):
        return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return []


def dask_worker(nanny: psutil.Process) -> psutil.Process:
    """The process in which a nanny's worker runs: the one that has the broker's children, or will."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline:
        for child in nanny.children():
            if "spawn_main" in " ".join(child.cmdline()):
                return child
        time.sleep(0.05)
    raise AssertionError(f"no worker under {nanny}")


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill some processes at once, and wait for their end."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)
