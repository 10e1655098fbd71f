"""The best record of a log, applied again and timed beside NumPy."""

from __future__ import annotations

import os
from dataclasses import replace

from tensorlang.autotune.apply import best_that_works, find_fit
from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.measuring.measurer import Measurer
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Bench:
    """A record with the seconds of this run, the peak in GFLOP/s (0: unknown), and the comparison with NumPy."""

    record: TuningRecord
    peak_gflops: float
    comparison: Comparison


def bench_best(log: str | os.PathLike[str], task: Task, other_targets: bool = False) -> Bench:
    """Apply the best record of a task again and time it beside NumPy, in turn, in a fresh process.

    A record that is refused, or does not run, gives way to the next best, with a warning. The record of the result has
    the steps as they are for this task, and the seconds of this run.
    Raises RecordError as `apply_best` does, TargetError when this machine cannot run the target.

        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> log = Path(mkdtemp()) / "matmul.jsonl"
        >>> with autotune.LogWriter(log) as writer:
        ...     writer.append(record)
        >>> autotune.bench_best(log, task).record.sketch
        'by hand'
    """
    with Measurer(task, find_fit(log, task, other_targets).record.seed) as measurer:
        peak = measurer.peak_gflops()

        def run(record: TuningRecord, made: Schedule) -> tuple[TuningRecord, Comparison]:
            steps = made.trace.to_json()
            return replace(record, trace=steps, trace_key=made.trace.key), measurer.compare(steps)

        record, comparison = best_that_works(log, task, "bench_best", run, other_targets)
    return Bench(replace(record, seconds=comparison.tensorlang), peak, comparison)
