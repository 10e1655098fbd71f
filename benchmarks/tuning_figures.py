"""The figures of the tuner: how near to the best schedule known, and beside TVM."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figure import Figure

LIBRARY, STORED = "library", "stored"
FIRST, ALONE, ESTIMATE = "first pick", "model alone", "estimate alone"
WITHIN = {30: 1.10, 120: 1.03}
"""Times the best known, after so many seconds."""
WITHIN_AT_ONCE = 1.20
TIMES_TVM = 1.3
TIMES_TVM_TRIALS = 4.0
MOST_WASTED = 1.0

Measured = Mapping[str, Any]


def after_seconds(seconds: float) -> str:
    """The name of what was found in a time."""
    return f"{seconds:g} s"


def after_trials(trials: int) -> str:
    """The name of what was found by so many trials."""
    return f"{trials} trials"


def tvm_after(trials: int) -> str:
    """The name of what TVM found by so many trials."""
    return f"TVM, {trials} trials"


def times_best(workload: Measured, name: str) -> float | None:
    """Its time over that of the best known."""
    own = workload["seconds"].get(name)
    return None if own is None or workload["best"] is None else own / workload["seconds"][workload["best"]]


def figures(workloads: Sequence[Measured], seconds: Sequence[float], trials: Sequence[int]) -> list[Figure]:
    """All of them, with their goals."""
    found: list[Figure] = []
    for workload in workloads:
        found += _of_workload(workload, seconds)
    found += _beside_tvm(workloads, trials)
    done = sum(w["searches"]["tensorlang"]["trials"] for w in workloads)
    lost = sum(sum(w["failures"].values()) for w in workloads)
    found.append(Figure(f"wasted of {done} trials", 100 * lost / max(done, 1), "%", MOST_WASTED))
    return found


def _of_workload(workload: Measured, seconds: Sequence[float]) -> Iterator[Figure]:
    names = [(FIRST, WITHIN_AT_ONCE), (ALONE, WITHIN_AT_ONCE)]
    names += [(after_seconds(s), WITHIN.get(int(s), 0.0)) for s in seconds]
    for name, goal in names:
        times = times_best(workload, name)
        what = f"{workload['workload']}: {name}, times the best known"
        yield Figure(what, float("inf") if times is None else times, "", goal or None)


def _beside_tvm(workloads: Sequence[Measured], trials: Sequence[int]) -> Iterator[Figure]:
    for count in trials:
        pairs = [(w["seconds"].get(tvm_after(count)), w["seconds"].get(after_trials(count))) for w in workloads]
        ratios = [theirs / ours for theirs, ours in pairs if theirs is not None and ours is not None]
        if ratios:
            what = f"times the speed that TVM found, {count} trials, mean of {len(ratios)}"
            yield Figure(what, statistics.geometric_mean(ratios), "", TIMES_TVM, at_most=False)
    rates = [
        {name: search["per_minute"][str(max(trials))] for name, search in w["searches"].items()} for w in workloads
    ]
    both = [r["tensorlang"] / r["TVM"] for r in rates if r.get("TVM")]
    if both:
        what = f"times TVM's trials a minute, mean of {len(both)}"
        yield Figure(what, statistics.geometric_mean(both), "", TIMES_TVM_TRIALS, at_most=False)
    for workload, rate in zip(workloads, rates, strict=True):
        for name, value in rate.items():
            yield Figure(f"{workload['workload']}: trials of {name}", value, "a minute")
