"""A tuned matrix multiplication on one core, against the FMA peak and NumPy, in one interleaved run."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from benchmarks.figure import Figure
from tensorlang.autotune import bench_best, create_task, tune

SHARE_OF_PEAK = 0.85
TUNING_SECONDS = 120.0


def measure(size: int = 1024, seconds: float = TUNING_SECONDS, threads: int = 1) -> list[Figure]:
    """Tune for `seconds`, then time the winner beside NumPy and the peak; sizes are square, float32."""
    task = create_task("matmul", (size, size, size, "float32"), threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.jsonl")
        result = tune(task, trials=1_000_000, seconds=seconds, log=log)
        bench = bench_best(log, task)
    peak, comparison = bench.peak_gflops, bench.comparison
    what = f"matmul {size}³ float32, {threads} thread{'s' * (threads > 1)}"
    speed, numpy = (
        task.workload.flops / statistics.median(times) / 1e9 for times in (comparison.tensorlang, comparison.numpy)
    )
    return [
        Figure(f"{what}: tuning", result.seconds, "s"),
        Figure(f"{what}: trials", len(result.records), ""),
        Figure(f"{what}: trials that failed", sum(result.failures.values()), ""),
        Figure(f"{what}: FMA peak", peak, "GFLOP/s"),
        Figure(f"{what}: NumPy", numpy, "GFLOP/s"),
        Figure(f"{what}: tensorlang", speed, "GFLOP/s"),
        Figure(f"{what}: share of the peak", speed / peak, "", SHARE_OF_PEAK, at_most=False),
        Figure(f"{what}: times NumPy", comparison.speedup, ""),
    ]
