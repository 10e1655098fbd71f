"""Two logs side by side: the best that each has of every program."""

from __future__ import annotations

from tensorlang.autotune.records.lookup import Source
from tensorlang.autotune.records.record import Json, TuningRecord
from tensorlang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """The best records that two logs have of one program in one place; None where a log has none."""

    first: TuningRecord | None
    second: TuningRecord | None

    @property
    def either(self) -> TuningRecord:
        """A record of this program and place."""
        record = self.first or self.second
        assert record is not None
        return record

    @property
    def ratio(self) -> float | None:
        """How many times faster the second is; None when one of them is missing."""
        return None if self.first is None or self.second is None else self.first.median / self.second.median

    def to_json(self) -> Json:
        """Return it as JSON-able data, times in seconds."""
        record = self.either
        first, second = (None if r is None else r.median for r in (self.first, self.second))
        return {
            "workload": str(record.workload),
            "key": record.workload.key,
            "target": record.target,
            "threads": record.threads,
            "first": first,
            "second": second,
            "ratio": self.ratio,
        }


def compare_logs(first: Source, second: Source) -> list[Difference]:
    """Compare two logs program by program, in the order of the first, then of what only the second has."""
    ours, theirs = ({(r.workload.key, r.place): r for r in source.bests()} for source in (first, second))
    return [Difference(ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
