"""A tuned matrix multiplication against the FMA peak and NumPy: results checked first, then one interleaved run."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

import tensorlang
from benchmarks.contest import largest_error, save
from benchmarks.contestant import Contestant
from benchmarks.figure import Figure
from benchmarks.peers.libraries import CORETYPES, numpy
from benchmarks.peers.process import pinned
from benchmarks.workloads import odd
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
    workload = odd(m, n, k)[0]
    inputs = workload.inputs()
    a, b, c = inputs["A"], inputs["B"], np.empty((m, n), np.float32)
    kernel(a, b, c)
    if (error := largest_error(c, workload.reference(inputs))) > workload.tolerance:
        raise ArithmeticError(f"the tuned kernel is off by {error:.2g} of the largest value")

    def own() -> float:
        seconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            kernel(a, b, c)
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    with ExitStack() as stack:
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            stack.enter_context(pinned(1))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        save(inputs, folder)
        peers = [stack.enter_context(Contestant(numpy(name), sys.executable, threads)) for name in CORETYPES]
        for peer in peers:
            peer.prepare(workload, folder)
            peer.result(folder / "result.npy")
        runs: dict[str, Callable[[], float]] = {"tensorlang": own, **{p.name: partial(p.time, CALLS) for p in peers}}
        runs["FMA peak"] = lambda: measure_peak(threads)["gflops"]
        found: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(ROUNDS + 2):
            for name, run in runs.items():
                time.sleep(SETTLE)
                found[name].append(run())
        return {name: values[2:] for name, values in found.items()}
