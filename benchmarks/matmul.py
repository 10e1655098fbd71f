"""A tuned matrix multiplication against the FMA peak and NumPy: results checked first, then one interleaved run."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

import tensorlang
from benchmarks.figure import Figure
from benchmarks.peers import CORETYPES, NumpyPeer
from tensorlang.autotune import apply_best, create_task, tune
from tensorlang.runtime.executable import Executable
from tensorlang.target import measure_peak

SHARE_OF_PEAK = 0.85
TUNING_SECONDS = 120.0
ROUNDS = 25
CALLS = 3  # in a row, in one turn; the best counts
SETTLE = 0.005  # seconds between turns

Shape = tuple[int, int, int]


def measure(
    shape: Shape = (1024, 1024, 1024), seconds: float = TUNING_SECONDS, threads: int = 1, goal: float | None = None
) -> list[Figure]:
    """Tune M,N,K in float32 for `seconds`, check the winner, and time it in turn with NumPy and the peak."""
    task = create_task("matmul", (*shape, "float32"), threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        result = tune(task, trials=1_000_000, seconds=seconds, log=log)
        schedule = apply_best(log, task)
    kernel = tensorlang.build(schedule, list(task.tensors), target=task.target)
    seconds_of = _interleaved(kernel, shape, threads)
    what = f"matmul {'×'.join(map(str, shape))} float32, {threads} thread{'s' * (threads > 1)}"
    flops = 2 * shape[0] * shape[1] * shape[2]
    peak = statistics.median(seconds_of.pop("FMA peak"))
    speed = {name: flops / statistics.median(times) / 1e9 for name, times in seconds_of.items()}
    best = max(value for name, value in speed.items() if name != "tensorlang")
    return [
        Figure(f"{what}: tuning", result.seconds, "s"),
        Figure(f"{what}: trials", len(result.records), ""),
        Figure(f"{what}: trials that failed", sum(result.failures.values()), ""),
        Figure(f"{what}: FMA peak", peak, "GFLOP/s"),
        *(Figure(f"{what}: {name}", value, "GFLOP/s") for name, value in speed.items()),
        Figure(f"{what}: share of the peak", speed["tensorlang"] / peak, "", goal, at_most=False),
        Figure(f"{what}: times the best NumPy", speed["tensorlang"] / best, ""),
    ]


def _interleaved(kernel: Executable, shape: Shape, threads: int) -> dict[str, list[float]]:
    """Seconds of every competitor, in turn; GFLOP/s for the peak."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b, c = rng.random((m, k), np.float32), rng.random((k, n), np.float32), np.empty((m, n), np.float32)
    kernel(a, b, c)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, exact, rtol=1e-4)

    def own() -> float:
        seconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            kernel(a, b, c)
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    with ExitStack() as stack:
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            before = os.sched_getaffinity(0)
            stack.callback(os.sched_setaffinity, 0, before)
            os.sched_setaffinity(0, {max(before)})
        peers = [stack.enter_context(NumpyPeer(shape, threads, name)) for name in CORETYPES]
        runs: dict[str, Callable[[], float]] = {"tensorlang": own, **{p.name: partial(p.run, CALLS) for p in peers}}
        runs["FMA peak"] = lambda: measure_peak(threads)["gflops"]
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS + 2):
            for name, run in runs.items():
                time.sleep(SETTLE)
                found[name].append(run())
        return {name: values[2:] for name, values in found.items()}
