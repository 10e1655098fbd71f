"""What one measurement leaves behind: a record, and its JSON form.

A record holds all that is needed to judge it, to replay it and to train on it. `SCHEMA` grows when a
field changes meaning; a record of a newer schema is refused by name, never misread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tensorlang.errors import RecordError

SCHEMA = 1
Json = dict[str, Any]


class Status(StrEnum):
    """How a measurement ended. Only `ok` has a time that counts."""

    OK = "ok"
    ILLEGAL = "illegal"
    BUILD_ERROR = "build-error"
    WRONG_ANSWER = "wrong-answer"
    CRASH = "crash"
    TIMEOUT = "timeout"
    MEMORY = "out-of-memory"
    RUN_ERROR = "run-error"
    NOISY = "noisy"


@dataclass(frozen=True, slots=True)
class WorkloadId:
    """Which program was tuned: how to make it again, and the key of its canonical text.

    `name` is an operator of tensorlang.topi or `path/to/file.py:function`; `args` what it was called with.
    `arguments` spells the tensors (`A: float32[8, 8]`), inputs first. `flops` counts operations of one run.
    """

    name: str
    args: tuple[int | float | str, ...]
    key: str
    arguments: tuple[str, ...]
    dtype: str
    flops: float

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


@dataclass(frozen=True, slots=True)
class TuningRecord:
    """One measured candidate. `seconds` holds every repeat that counted, in order."""

    workload: WorkloadId
    target: Json
    threads: int
    sketch: str
    trace: Any
    trace_key: str
    decisions: Mapping[str, int]
    status: Status
    seconds: tuple[float, ...]
    error: str = ""
    estimate: float = math.nan
    checked: bool = False
    seed: int = 0
    host: Json = field(default_factory=dict)
    versions: Json = field(default_factory=dict)
    time: str = ""
    schema: int = SCHEMA

    @property
    def ok(self) -> bool:
        """True when the time may be used."""
        return self.status is Status.OK and bool(self.seconds)

    @property
    def median(self) -> float:
        """Median of the repeats in seconds; infinite when nothing was timed."""
        return statistics.median(self.seconds) if self.seconds else math.inf

    @property
    def gflops(self) -> float:
        """Billions of operations a second at the median; zero when nothing was timed."""
        return self.workload.flops / self.median / 1e9

    def to_json(self) -> Json:
        """Return the record as JSON-able data (not-a-number estimates become null)."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["workload"] = asdict(self.workload)
        data["decisions"] = dict(self.decisions)
        data["estimate"] = self.estimate if math.isfinite(self.estimate) else None
        return data

    @staticmethod
    def from_json(data: Any) -> TuningRecord:
        """Read a record; RecordError says what is missing or which schema it has."""
        if not isinstance(data, dict) or "schema" not in data:
            raise RecordError("not a tuning record: no field 'schema'")
        if data["schema"] != SCHEMA:
            raise RecordError(f"record of schema {data['schema']!r}; this version reads schema {SCHEMA}")
        try:
            return _read(data)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"malformed tuning record: {type(error).__name__} {error}") from error


def _read(data: Json) -> TuningRecord:
    work = data["workload"]
    workload = WorkloadId(
        str(work["name"]),
        tuple(work["args"]),
        str(work["key"]),
        tuple(map(str, work["arguments"])),
        str(work["dtype"]),
        float(work["flops"]),
    )
    seconds = tuple(float(s) for s in data["seconds"])
    if any(not s > 0 for s in seconds):
        raise ValueError(f"seconds must be positive, got {seconds}")
    estimate = data["estimate"]
    return TuningRecord(
        workload=workload,
        target=dict(data["target"]),
        threads=int(data["threads"]),
        sketch=str(data["sketch"]),
        trace=data["trace"],
        trace_key=str(data["trace_key"]),
        decisions={str(k): int(v) for k, v in data["decisions"].items()},
        status=Status(data["status"]),
        seconds=seconds,
        error=str(data["error"]),
        estimate=math.nan if estimate is None else float(estimate),
        checked=bool(data["checked"]),
        seed=int(data["seed"]),
        host=dict(data["host"]),
        versions=dict(data["versions"]),
        time=str(data["time"]),
    )


def now() -> str:
    """The time stamp of a record: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
