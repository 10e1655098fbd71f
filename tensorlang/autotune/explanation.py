"""Why a candidate is as fast as it is, and what the tuner thought: predicted against measured, term by term."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tensorlang.autotune.model.cost_model import CostModel
from tensorlang.autotune.records.log import LogPath, read_log
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.records.store import logs_to_read
from tensorlang.autotune.search.described import Described, columns_of, describe_records
from tensorlang.dataclass import dataclass
from tensorlang.errors import RecordError

DRIVERS = 6


@dataclass(frozen=True, slots=True)
class Driver:
    """A feature, its value, and by what factor it changes the prediction."""

    name: str
    value: float
    factor: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """One record against what was predicted, in seconds.

    `estimate` is the analytical one, made of `terms`, and over `stages` by array; `predicted` is the model's, which
    has learned from the whole log (None where the estimate misleads, and the model only orders). `decisions` are values
    for a template too. `drivers` are the features that move the prediction most.
    """

    workload: str
    threads: int
    sketch: str
    decisions: dict[str, Any]
    measured: float
    estimate: float
    predicted: float | None
    terms: dict[str, float]
    stages: dict[str, float]
    drivers: tuple[Driver, ...]

    @property
    def error(self) -> float:
        """By what factor the estimate is off, at least 1."""
        ratio = self.measured / self.estimate
        return max(ratio, 1 / ratio)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self)


def explain(log: LogPath | Iterable[TuningRecord], count: int = 5, run_files: bool = False) -> list[Explanation]:
    """Explain records of a log, or those given: the fastest of every workload, then those that are misjudged most.

    `default` is the default store. Files that records name are run with `run_files` only.
    Records of several targets or numbers of threads are explained apart.
    RecordError when the log has no timed record of a program that can be made again here.

        >>> from tensorlang import autotune, te
        >>> task = autotune.create_task("matmul", (8, 8, 8), threads=1)
        >>> record = autotune.record_by_hand(task, te.create_schedule(task.outputs), [1e-6])
        >>> [found.sketch for found in autotune.explain([record], count=1)]
        ['by hand']
    """
    if isinstance(log, str | os.PathLike):
        log = [record for path in logs_to_read(log) for record in read_log(path).records]
    described = describe_records(log, run_files)
    if not described:
        raise RecordError("there is no timed record of a program that can be made again here")
    groups: dict[tuple[str, str], list[Described]] = {}
    for one in described:
        groups.setdefault((one.record.workload.key, one.record.place), []).append(one)
    found: list[Explanation] = []
    for group in groups.values():
        made = explain_records(group)
        best = min(made, key=lambda e: e.measured)
        worst = sorted((e for e in made if e is not best), key=lambda e: -e.error)
        found += [best, *worst[: count - 1]]
    return found


def explain_records(described: Sequence[Described]) -> list[Explanation]:
    """Explain records of one program, by a model that has learned from all of them."""
    rows, estimates, seconds = columns_of(described)
    model = CostModel()
    model.fit(rows, estimates, seconds)
    scores, contributions = model.score(rows, estimates), model.contributions(rows)
    return [
        _explanation(one, None if model.kind == "ranking" else float(np.exp(score)), shares)
        for one, score, shares in zip(described, scores, contributions, strict=True)
    ]


def _explanation(one: Described, predicted: float | None, contributions: np.ndarray) -> Explanation:
    names = one.names
    order = [int(n) for n in np.argsort(-np.abs(contributions[:-1]))[:DRIVERS] if contributions[n]]
    record = one.record
    return Explanation(
        str(record.workload),
        record.threads,
        record.sketch,
        record.choices,
        record.median,
        one.estimate,
        predicted,
        one.terms,
        one.stages,
        tuple(Driver(names[n], float(one.row[0, n]), float(np.exp(contributions[n]))) for n in order),
    )
