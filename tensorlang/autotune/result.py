"""What tuning tells while it runs and when it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from tensorlang.autotune.measuring.jobs import Comparison
from tensorlang.autotune.phases import Phase
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.markup import code, folded, page, table
from tensorlang.schedule.trace import Trace
from tensorlang.words import format_failures, format_seconds, format_speed


def count_failures(records: Iterable[TuningRecord]) -> Counter[str]:
    """Number of records of each status that is not ok."""
    return Counter(r.status.value for r in records if not r.ok)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a callback sees after each trial.

    `trials` counts the `resumed` ones too; `elapsed` in seconds; `peak_gflops` of the task's dtype and threads, 0 when
    it is unknown.
    """

    record: TuningRecord
    best: TuningRecord | None
    trials: int
    resumed: int
    failures: Counter[str]
    elapsed: float
    peak_gflops: float


@dataclass(frozen=True, slots=True)
class Result:
    """What tuning gave. `records` are all of this task, the `resumed` first ones from the log included.

    `task` is for the machine that measured. `ended` says why tuning ended before its time; empty when it did not.
    `phases`: the seconds that each phase took.
    """

    task: Task
    best: TuningRecord | None
    records: tuple[TuningRecord, ...]
    resumed: int
    seconds: float
    peak_gflops: float
    comparison: Comparison | None = None
    ended: str = ""
    phases: Mapping[Phase, float] = field(default_factory=dict)

    @property
    def failures(self) -> Counter[str]:
        """Number of records of each status that is not ok."""
        return count_failures(self.records)

    def _repr_html_(self) -> str:
        """What a notebook shows: the best time beside the peak and NumPy, trials, and the schedule."""
        rows = [
            ("trials", f"{len(self.records)} in {self.seconds:.0f} s"),
            ("failures", format_failures(self.failures)),
        ]
        if self.best is None:
            return page(f"{self.task.workload}: nothing worked", table(("", ""), rows))
        speed = self.best.gflops
        share = f", {speed / self.peak_gflops:.0%} of the peak" if self.peak_gflops else ""
        rows.insert(0, ("best", f"{format_seconds(self.best.median)}, {format_speed(speed)} GFLOP/s{share}"))
        if self.comparison is not None:
            rows.insert(1, ("beside", f"{self.comparison.speedup:.2f} times as fast as {self.comparison.competitor}"))
        steps = str(Trace.from_json(self.best.trace).to_python())
        return page(f"{self.task.workload}", table(("", ""), rows), folded("schedule", code(steps)))


class Interrupted(KeyboardInterrupt):
    """Tuning was stopped by Ctrl-C; `result` holds what was measured, the log has it too."""

    def __init__(self, result: Result) -> None:
        super().__init__("tuning was interrupted; run it again with the same log to go on")
        self.result = result
