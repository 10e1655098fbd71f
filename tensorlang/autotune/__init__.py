"""The tuner: finds fast schedules by proposing legal ones, measuring them, and learning from the times."""

from __future__ import annotations

from tensorlang.autotune.apply import apply_best, find_best, replay
from tensorlang.autotune.bench import Bench, bench_best
from tensorlang.autotune.measuring.measurer import Limits
from tensorlang.autotune.records.log import Log, LogWriter, best_record, best_records, merge_logs, read_log
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.result import Interrupted, Progress, Result
from tensorlang.autotune.task import Task, create_task, task_of
from tensorlang.autotune.tuner import tune

__all__ = [
    "Bench",
    "Interrupted",
    "Limits",
    "Log",
    "LogWriter",
    "Progress",
    "Result",
    "Status",
    "Task",
    "TuningRecord",
    "apply_best",
    "bench_best",
    "best_record",
    "best_records",
    "create_task",
    "find_best",
    "merge_logs",
    "read_log",
    "replay",
    "task_of",
    "tune",
]
