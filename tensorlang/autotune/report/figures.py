"""What a log says of its searches, as plain figures: the page and the JSON show the same ones.

Logs are not trusted: numbers that no measurement gives are left out, and texts are cut where they are no longer read.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tensorlang.autotune.records.log import best_record
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.report.clock import elapsed_seconds
from tensorlang.dataclass import dataclass
from tensorlang.errors import TensorlangError
from tensorlang.target.spec import Target

LONGEST_MESSAGE = 600
_BELIEVABLE = (1e-12, 1e12)  # seconds of a run
_MOST_FLOPS = 1e30

MALFORMED = (TensorlangError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What data of strangers may raise where it says one thing and is another."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A timed candidate: its number in its search (from 1), seconds into the search, its time, what was expected."""

    number: int
    elapsed: float | None
    seconds: float
    estimate: float | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A status that is not ok, how often it came, and the first message of it that is not empty."""

    status: str
    count: int
    message: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How well the estimate foretold `trials` times: its typical factor of error, and Spearman's rank correlation."""

    trials: int
    factor: float
    rank: float | None


@dataclass(frozen=True, slots=True)
class Search:
    """All records of one program on one target with one number of threads.

    `timed` are the candidates with a time that counts, in order of measurement; `elapsed` the seconds that the search
    took, pauses between runs left out (None where the log has no times of day); `machines`, `versions`, `seeds`,
    `sketches` say what the records were made by, and how many by each.
    """

    name: str
    key: str
    arguments: tuple[str, ...]
    program: str
    target: str
    threads: int
    flops: float
    peak_gflops: float
    trials: int
    timed: tuple[Trial, ...]
    failures: tuple[Failure, ...]
    best: TuningRecord | None
    elapsed: float | None
    accuracy: Accuracy | None
    machines: tuple[tuple[str, int], ...]
    versions: tuple[tuple[str, int], ...]
    seeds: tuple[tuple[str, int], ...]
    sketches: tuple[tuple[str, int], ...]
    first: str
    last: str

    @property
    def unit(self) -> str:
        """In what speeds are told: a program of no operations counts its runs."""
        return "GFLOP/s" if self.flops else "runs/s"

    def speed(self, seconds: float) -> float:
        """The speed of a run of so many seconds."""
        return (self.flops / 1e9 or 1.0) / seconds

    @property
    def share(self) -> float | None:
        """The share of the peak that the best candidate reaches; None where one of the two is unknown."""
        known = self.best is not None and self.peak_gflops and self.flops
        return self.speed(self.best.median) / self.peak_gflops if self.best is not None and known else None

    def improvements(self) -> list[Trial]:
        """The trials that were the best so far."""
        found: list[Trial] = []
        for trial in self.timed:
            if not found or trial.seconds < found[-1].seconds:
                found.append(trial)
        return found

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON values; every timed trial is [number, elapsed, seconds, estimate]."""
        best = self.best
        return {
            "workload": self.name,
            "key": self.key,
            "arguments": list(self.arguments),
            "target": self.target,
            "threads": self.threads,
            "flops": self.flops,
            "peak_gflops": self.peak_gflops or None,
            "trials": self.trials,
            "failures": [{"status": f.status, "count": f.count, "message": f.message} for f in self.failures],
            "elapsed": self.elapsed,
            "best": None
            if best is None
            else {
                "seconds": best.median,
                "repeats": list(best.seconds),
                "speed": self.speed(best.median),
                "unit": self.unit,
                "share_of_peak": self.share,
                "sketch": best.sketch,
                "decisions": dict(best.decisions),
                "settings": best.settings,
                "trace_key": best.trace_key,
                "time": best.time,
            },
            "estimate": None
            if self.accuracy is None
            else {
                "trials": self.accuracy.trials,
                "typical_factor": self.accuracy.factor,
                "rank_correlation": self.accuracy.rank,
            },
            "curve": [[t.number, t.elapsed, t.seconds] for t in self.improvements()],
            "timed": [[t.number, t.elapsed, t.seconds, t.estimate] for t in self.timed],
            **{name: dict(getattr(self, name)) for name in ("machines", "versions", "seeds", "sketches")},
            "first": self.first,
            "last": self.last,
        }


def searches_of(records: Iterable[TuningRecord]) -> list[Search]:
    """Group records into searches, in order of first appearance."""
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in records:
        groups.setdefault((record.workload.key, record.place), []).append(record)
    return [_search(group) for group in groups.values()]


def _search(records: Sequence[TuningRecord]) -> Search:
    elapsed = elapsed_seconds([r.time for r in records])
    timed = tuple(
        Trial(n + 1, None if elapsed is None else elapsed[n], r.median, _believed(r.estimate))
        for n, r in enumerate(records)
        if _is_timed(r)
    )
    work = records[0].workload
    return Search(
        name=str(work),
        key=work.key,
        arguments=work.arguments,
        program=max((r.workload.program for r in records), key=len),
        target=_target(records[0]),
        threads=records[0].threads,
        flops=work.flops if 1 <= work.flops < _MOST_FLOPS else 0.0,
        peak_gflops=max(map(_peak, records)),
        trials=len(records),
        timed=timed,
        failures=_failures(records),
        best=best_record(records, _is_timed),
        elapsed=None if elapsed is None else elapsed[-1],
        accuracy=_accuracy(timed),
        machines=_counted(_machine(r) for r in records),
        versions=_counted(", ".join(f"{k} {v}" for k, v in r.versions.items()) for r in records),
        seeds=_counted(str(r.seed) for r in records),
        sketches=_counted(r.sketch for r in records),
        first=records[0].time,
        last=records[-1].time,
    )


def _is_timed(record: TuningRecord) -> bool:
    return record.ok and _believed(record.median) is not None


def _believed(seconds: float) -> float | None:
    return seconds if _BELIEVABLE[0] <= seconds <= _BELIEVABLE[1] else None


def _peak(record: TuningRecord) -> float:
    """GFLOP/s that were measured on the record's machine; 0 when it does not tell."""
    peak = record.host.get("peak_gflops")
    return float(peak) if isinstance(peak, int | float) and 0 < peak < _MOST_FLOPS else 0.0


def _target(record: TuningRecord) -> str:
    try:
        return str(Target.from_json(record.target))
    except MALFORMED:
        return str(record.target)


def _machine(record: TuningRecord) -> str:
    """A machine in words: its name, CPU, cores, memory and system, as far as the record tells."""
    host = record.host
    cores, memory = host.get("cores"), host.get("memory")
    words = [
        str(host.get("name") or ""),
        str(host.get("cpu") or host.get("machine") or ""),
        f"{cores} cores" if cores else "",
        f"{memory / 2**30:.0f} GiB" if isinstance(memory, int | float) and 0 < memory < 1e18 else "",
        " ".join(str(host[k]) for k in ("system", "release") if host.get(k)),
    ]
    return ", ".join(word for word in words if word) or "unknown"


def _counted(words: Iterable[str]) -> tuple[tuple[str, int], ...]:
    return tuple(Counter(words).most_common())


def _failures(records: Iterable[TuningRecord]) -> tuple[Failure, ...]:
    counts: Counter[str] = Counter()
    messages: dict[str, str] = {}
    for record in records:
        if not record.ok:
            counts[record.status.value] += 1
            if record.error.strip():
                messages.setdefault(record.status.value, record.error.strip()[:LONGEST_MESSAGE])
    return tuple(Failure(status, count, messages.get(status, "")) for status, count in counts.most_common())


def _accuracy(timed: Iterable[Trial]) -> Accuracy | None:
    pairs = [(t.estimate, t.seconds) for t in timed if t.estimate is not None]
    if not pairs:
        return None
    factor = math.exp(statistics.median(abs(math.log(seconds / estimate)) for estimate, seconds in pairs))
    return Accuracy(len(pairs), factor, _rank_correlation(np.array(pairs)))


def _rank_correlation(pairs: np.ndarray) -> float | None:
    """Spearman's correlation of two columns; None where one of them is constant."""
    ranks = np.stack([_ranks(column) for column in pairs.T])
    return None if (ranks.std(axis=1) == 0).any() else float(np.corrcoef(ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """The rank of every value; equal ones share their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    ranks: np.ndarray = (last - (count - 1) / 2)[place]
    return ranks
