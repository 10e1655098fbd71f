"""What tensorlang itself costs: import, lowering, a cold build, a warm call."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tensorlang
from benchmarks import calls
from benchmarks.figure import Figure
from tensorlang.schedule import Schedule, create_schedule
from tensorlang.topi import operator

REPEATS = 7


def measure() -> list[Figure]:
    """Milliseconds, and nanoseconds of calls; medians."""
    return [
        Figure("import tensorlang and te", 1e3 * _import_seconds(), "ms", 300),
        Figure("lower a tiled matmul", 1e3 * _lower_seconds(), "ms", 30),
        Figure("schedule, lower and build a tiled matmul, nothing cached", 1e3 * _cold_build_seconds(), "ms", 200),
        *calls.measure(),
    ]


def _median(function: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _import_seconds() -> float:
    program = "import time; t = time.perf_counter(); from tensorlang import te; te.sum; print(time.perf_counter() - t)"
    path = str(Path(tensorlang.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": path}
    runs = [subprocess.check_output([sys.executable, "-c", program], env=environment) for _ in range(REPEATS)]
    return statistics.median(float(run) for run in runs)


A, B, C = operator("matmul").tensors((512, 512, 512), "float32")


def tiled() -> Schedule:
    """A matmul in tiles, as a user writes it."""
    s = create_schedule(C.op)
    rows, columns = C.op.axis
    i, j, ii, ji = s[C].tile(rows, columns, 32, 32)
    k, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    s[C].reorder(i, j, k, ki, ii, ji)
    s[C].vectorize(ji)
    return s


def _lower_seconds() -> float:
    schedule = tiled()
    return _median(lambda: tensorlang.lower(schedule, [A, B, C]))


def _cold_build_seconds() -> float:
    before = os.environ.get("TENSORLANG_CACHE")
    os.environ["TENSORLANG_CACHE"] = "0"
    try:
        return _median(lambda: tensorlang.build(tiled(), [A, B, C]))
    finally:
        os.environ.pop("TENSORLANG_CACHE")
        if before is not None:
            os.environ["TENSORLANG_CACHE"] = before
