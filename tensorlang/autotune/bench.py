"""The best record of a log, applied again and timed beside NumPy."""

from __future__ import annotations

import os
from dataclasses import replace

from tensorlang.autotune.apply import find_best, replay
from tensorlang.autotune.jobs import Comparison
from tensorlang.autotune.measure import Measurer
from tensorlang.autotune.records import TuningRecord
from tensorlang.autotune.task import Task
from tensorlang.autotune.tuner import dtype_peak, measured_peak, require_native


def bench_best(log: str | os.PathLike[str], task: Task) -> tuple[TuningRecord, float, Comparison]:
    """Apply the best record of a task again and time it beside NumPy, interleaved, in a fresh process.

    Returns the record with the seconds of this run, the peak in GFLOP/s (0: unknown), and the comparison.
    Raises RecordError as `apply_best` does.
    """
    require_native(task)
    record = find_best(log, task)
    replay(record, task)
    with Measurer(task, record.seed) as measurer:
        peak = dtype_peak(task, measured_peak(measurer, task))
        comparison = measurer.compare(record.trace)
    return replace(record, seconds=comparison.tensorlang), peak, comparison
