"""The tuner: finds fast schedules by proposing legal ones, measuring them, and learning from the times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.autotune import callback
from tensorlang.autotune.apply import apply_best, find_best, find_nearest, replay
from tensorlang.autotune.bench import Bench, bench_best
from tensorlang.autotune.context import ApplyHistoryBest, HistoryMiss, apply_history_best
from tensorlang.autotune.dag import ComputeDAG
from tensorlang.autotune.explanation import Explanation, explain
from tensorlang.autotune.hardware import HardwareParams
from tensorlang.autotune.importers.importing import import_log
from tensorlang.autotune.machines import machines_of
from tensorlang.autotune.measuring.harness import Limits
from tensorlang.autotune.phases import Phase, on_phase
from tensorlang.autotune.policy import (
    PreloadCustomSketchRule,
    PreloadMeasuredStates,
    RandomModel,
    SketchPolicy,
    XGBModel,
)
from tensorlang.autotune.reading import RecordReader, load_best_record, save_records
from tensorlang.autotune.records.by_hand import record_by_hand
from tensorlang.autotune.records.log import Log, LogWriter, best_record, best_records, read_log
from tensorlang.autotune.records.record import Status, TuningRecord
from tensorlang.autotune.records.rewriting import merge_logs
from tensorlang.autotune.records.store import default_store
from tensorlang.autotune.report.writing import Report, make_report, report_logs
from tensorlang.autotune.result import Interrupted, Progress, Result
from tensorlang.autotune.search_task import RecordToFile, SearchTask, TuningOptions, register_workload
from tensorlang.autotune.task import Task, create_task, task_of
from tensorlang.autotune.task_scheduler import TaskScheduler
from tensorlang.autotune.templates.config import ConfigEntity
from tensorlang.autotune.templates.entity import AnnotateEntity, OtherOptionEntity, ReorderEntity, SplitEntity
from tensorlang.autotune.templates.registry import get_config, template
from tensorlang.autotune.templates.space import ConfigSpace
from tensorlang.autotune.templates.task import TemplateTask, template_task
from tensorlang.autotune.tuner import train_model, tune
from tensorlang.autotune.tuners.measure import (
    BuildResult,
    DaskRunner,
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureOption,
    MeasureResult,
    measure_option,
)
from tensorlang.autotune.tuners.run import tune_template
from tensorlang.names import listing, lookup
from tensorlang.schedule.history import RecordSkipped
from tensorlang.schedule.recorded import allow_in_records

if TYPE_CHECKING:  # what the package offers here, for type checkers and editors
    from tensorlang.autotune import dag
    from tensorlang.autotune import record as record
    from tensorlang.autotune.search_task import auto_schedule as auto_schedule
    from tensorlang.autotune.templates.contexts import ApplyFixedConfig
    from tensorlang.autotune.templates.contexts import FallbackContext as FallbackContext
    from tensorlang.autotune.templates.operators import register_topi_compute as register_topi_compute
    from tensorlang.autotune.templates.operators import register_topi_schedule as register_topi_schedule
    from tensorlang.autotune.tuners import measure as measure
    from tensorlang.autotune.tuners.droplet import DropletTuner as DropletTuner
    from tensorlang.autotune.tuners.measure import LocalRPCMeasureContext as LocalRPCMeasureContext

    apply_fixed_config = ApplyFixedConfig
    loop_state = dag

__all__ = [
    "AnnotateEntity",
    "ApplyHistoryBest",
    "Bench",
    "BuildResult",
    "ComputeDAG",
    "ConfigEntity",
    "ConfigSpace",
    "DaskRunner",
    "Explanation",
    "HardwareParams",
    "HistoryMiss",
    "Interrupted",
    "Limits",
    "LocalBuilder",
    "LocalRunner",
    "Log",
    "LogWriter",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureOption",
    "MeasureResult",
    "OtherOptionEntity",
    "Phase",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "Progress",
    "RandomModel",
    "RecordReader",
    "RecordSkipped",
    "RecordToFile",
    "ReorderEntity",
    "Report",
    "Result",
    "SearchTask",
    "SketchPolicy",
    "SplitEntity",
    "Status",
    "Task",
    "TaskScheduler",
    "TemplateTask",
    "TuningOptions",
    "TuningRecord",
    "XGBModel",
    "allow_in_records",
    "apply_best",
    "apply_history_best",
    "bench_best",
    "best_record",
    "best_records",
    "callback",
    "create_task",
    "default_store",
    "explain",
    "find_best",
    "find_nearest",
    "get_config",
    "import_log",
    "load_best_record",
    "machines_of",
    "make_report",
    "measure_option",
    "merge_logs",
    "on_phase",
    "read_log",
    "record_by_hand",
    "register_workload",
    "replay",
    "report_logs",
    "save_records",
    "task_of",
    "template",
    "template_task",
    "train_model",
    "tune",
    "tune_template",
]


if not TYPE_CHECKING:  # a type checker knows what there is

    def __getattr__(name: str) -> Any:
        return lookup(__name__, name)


def __dir__() -> list[str]:
    return listing(__name__)
