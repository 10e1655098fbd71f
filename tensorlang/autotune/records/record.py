"""What one measurement leaves behind: a record, and its JSON form.

A record stands alone: it holds all that is needed to judge it, to replay it and to train on it. docs/records.md says
what every field means; the schema grows when one changes (records.upgrades), and a newer one is refused by name.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from tensorlang.autotune.records.upgrades import SCHEMA as SCHEMA
from tensorlang.autotune.records.upgrades import Json as Json
from tensorlang.autotune.records.upgrades import upgraded
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError
from tensorlang.target.spec import Target


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


# Candidates are proven before they are built, so these have run as proven code; what failed otherwise may not have.
_PROVEN = {Status.OK: True, Status.NOISY: True, Status.WRONG_ANSWER: True, Status.ILLEGAL: False}


# What reading foreign data may raise.
_MALFORMED = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class WorkloadId:
    """Which program was tuned: how to make it again, and the key of its form (te.forms).

    `name` is an operator of tensorlang.topi or `path/to/file.py:function`; `args` what it was called with.
    `arguments` spells the tensors (`A: float32[8, 8]`), inputs first. `flops` counts operations of one run.
    `program` is the text, with the names that the trace uses (empty where an old record has only the key), `sizes` the
    numbers that its symbolic sizes had when it was measured.
    """

    name: str
    args: tuple[int | float | str, ...]
    key: str
    arguments: tuple[str, ...]
    dtype: str
    flops: float
    program: str = ""
    sizes: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        sizes = "".join(f"; {name} = {value}" for name, value in self.sizes)
        return f"{self.name}({', '.join(map(str, self.args))}{sizes})"

    def to_json(self) -> Json:
        """Return the fields as JSON-able data."""
        return asdict(self) | {"sizes": dict(self.sizes)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was proven of a schedule, and given what.

    `legal` is None when nobody got to prove it. The proof holds for all values of the symbolic `sizes`, and for the
    `assumptions`: facts about index arrays that the schedule states, as text.
    """

    legal: bool | None = None
    sizes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


BY_STATUS = Verdict()


@dataclass(frozen=True, slots=True)
class TuningRecord:
    """One measured candidate. `seconds` holds every repeat that counted, in order.

    `host` is the fingerprint of the device that ran it, `conditions` how it was timed (as the harness tells),
    `checked` whether its outputs were compared with the reference. `settings` has what the knobs of a template
    were set to, as JSON data: its decisions are numbers of candidates. A `verdict` of BY_STATUS becomes what the status
    implies.
    """

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
    verdict: Verdict = BY_STATUS
    conditions: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        if self.verdict is BY_STATUS:
            sizes = tuple(name for name, _ in self.workload.sizes)
            assumptions = tuple(_assumptions(self.trace))
            object.__setattr__(self, "verdict", Verdict(_PROVEN.get(self.status), sizes, assumptions))

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

    @property
    def choices(self) -> Json:
        """What was decided, by name: the decisions, or what they stand for where the record tells."""
        return dict(self.decisions) | self.settings

    @property
    def choices_text(self) -> str:
        """What was decided, in a line: `rows=8 tile_x=[-1,16]`."""
        return spelt_choices(self.choices)

    @property
    def target_text(self) -> str:
        """The target as it is written in options; its data, when it is no target as known here."""
        try:
            return str(Target.from_json(self.target))
        except RecordError:
            return json.dumps(self.target)

    @property
    def place(self) -> str:
        """The target and the threads as text: records of one program compete where these are equal."""
        return place_of(self.target, self.threads)

    def to_json(self) -> Json:
        """Return the record as JSON-able data (not-a-number estimates become null)."""
        data = {f.name: getattr(self, f.name) for f in fields(self)}
        data["workload"] = self.workload.to_json()
        data["decisions"] = dict(self.decisions)
        data["estimate"] = self.estimate if math.isfinite(self.estimate) else None
        data["verdict"] = asdict(self.verdict)
        if not self.settings:
            del data["settings"]
        return data

    @staticmethod
    def from_json(data: Any) -> TuningRecord:
        """Read a record of this schema or an older one; RecordError says what is missing or which schema it has."""
        try:
            return _read(upgraded(data))
        except RecordError:
            raise
        except _MALFORMED as error:
            raise RecordError(f"malformed tuning record: {type(error).__name__} {error}") from error


def spelt_choices(choices: Mapping[str, Any]) -> str:
    """Choices by name, in a line; lists without blanks."""
    return " ".join(f"{name}={_spelt(value)}" for name, value in choices.items())


def _spelt(value: Any) -> str:
    return f"[{','.join(map(_spelt, value))}]" if isinstance(value, list) else str(value)


def _assumptions(trace: Any) -> Iterable[str]:
    """The facts that the steps of a trace state, as `injective idx` or `range idx 0 8`."""
    for step in trace if isinstance(trace, list) else ():
        if isinstance(step, dict) and step.get("step") == "assume":
            words = [step.get("fact"), step.get("array"), step.get("low"), step.get("high")]
            yield " ".join(str(word) for word in words if word is not None)


def _read(data: Json) -> TuningRecord:
    seconds = tuple(float(s) for s in data["seconds"])
    if not all(0 < s < math.inf for s in seconds):
        raise ValueError(f"seconds must be positive and finite, got {seconds}")
    estimate = data["estimate"]
    return TuningRecord(
        workload=_read_workload(data["workload"]),
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
        verdict=_read_verdict(data["verdict"]),
        conditions=dict(data["conditions"]),
        settings=dict(data.get("settings", {})),
    )


def _read_workload(work: Json) -> WorkloadId:
    if not all(isinstance(value, int | float | str) for value in work["args"]):
        raise TypeError(f"args are numbers and texts, got {work['args']}")
    f"{work['name']}{work['key']}{work['program']}".encode()  # JSON can spell text that is not Unicode
    return WorkloadId(
        str(work["name"]),
        tuple(work["args"]),
        str(work["key"]),
        tuple(map(str, work["arguments"])),
        str(work["dtype"]),
        float(work["flops"]),
        str(work["program"]),
        tuple((str(name), int(value)) for name, value in work["sizes"].items()),
    )


def _read_verdict(data: Json | None) -> Verdict:
    if data is None:
        return BY_STATUS
    legal = data["legal"]
    return Verdict(None if legal is None else bool(legal), tuple(data["sizes"]), tuple(data["assumptions"]))


def place_of(target: Json, threads: int) -> str:
    """A target and a number of threads as text that is equal when they are."""
    return f"{json.dumps(target, sort_keys=True)} x {threads}"


def now() -> str:
    """The time stamp of a record: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
