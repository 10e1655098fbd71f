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


class Interrupted(KeyboardInterrupt):
    """Tuning was stopped by Ctrl-C; `result` holds what was measured, the log has it too."""

    def __init__(self, result: Result) -> None:
        super().__init__("tuning was interrupted; run it again with the same log to go on")
        self.result = result
