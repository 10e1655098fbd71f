"""Searches of tuners: what each trial brought and when, for tensorlang and for TVM."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.libraries import Library
from benchmarks.subjects import Subject
from benchmarks.tuning_figures import ALONE, ESTIMATE, FIRST
from tensorlang.autotune import Progress, Task, tune
from tensorlang.autotune.search.evolution import Scorer
from tensorlang.autotune.search.knowledge import Knowledge, make_scorer
from tensorlang.autotune.search.pretrained import PACKAGED, chosen_model
from tensorlang.autotune.search.sketch import Sketch, require_candidates
from tensorlang.autotune.space import sketches_of

SEED = 0
ANY_NUMBER = 1_000_000

TVM_SEARCH = Library("tvm", "TVM", "benchmarks.peers.tvm_tuning", ("apache-tvm",))


@dataclass(frozen=True, slots=True)
class Trial:
    """Seconds since the start when its result was there; seconds of the kernel, None when it failed."""

    elapsed: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Search:
    """All trials of a tuner on one workload, in order."""

    trials: tuple[Trial, ...]

    def within(self, seconds: float) -> int:
        """How many were done after some seconds."""
        return sum(t.elapsed <= seconds for t in self.trials)

    def best(self, count: int) -> int | None:
        """The number of the best among the first ones; None when none worked."""
        worked = [(t.seconds, n) for n, t in enumerate(self.trials[:count]) if t.seconds is not None]
        return min(worked)[1] if worked else None

    def per_minute(self, count: int) -> float:
        """Trials a minute, over the first ones."""
        taken = self.trials[:count]
        return 60 * len(taken) / taken[-1].elapsed if taken else 0.0

    def improvements(self) -> list[tuple[int, float, float]]:
        """(Trials, seconds since the start, best seconds), whenever there was a better one, and at the end."""
        points: list[tuple[int, float, float]] = []
        for n, trial in enumerate(self.trials, 1):
            if trial.seconds is not None and (not points or trial.seconds < points[-1][2]):
                points.append((n, trial.elapsed, trial.seconds))
        if points:
            points.append((len(self.trials), self.trials[-1].elapsed, points[-1][2]))
        return points


@dataclass(frozen=True, slots=True)
class Found:
    """A search of tensorlang: with the trace of every trial, and how often each failure was met."""

    search: Search
    traces: tuple[Any, ...]
    failures: dict[str, int]


def search_own(task: Task, seconds: float, trials: int, folder: Path) -> Found:
    """Tune for so long, and on until there are as many trials, unless `folder` has a search as long already."""
    kept = _read(folder / "search.json")
    if kept is None or kept["asked"][0] < seconds or kept["asked"][1] < trials:
        folder.mkdir(parents=True, exist_ok=True)
        told = list[tuple[float, float | None, Any, str]]()
        start = 0.0

        def note(progress: Progress) -> None:
            record = progress.record
            timed = record.median if record.ok else None
            told.append((start + progress.elapsed, timed, record.trace, record.status.value))

        log = folder / "log.jsonl"
        log.unlink(missing_ok=True)
        result = tune(task, ANY_NUMBER, seconds, log, SEED, [note])
        if len(told) < trials:
            start = result.seconds
            tune(task, trials, None, log, SEED, [note])
        kept = {"asked": [seconds, trials], "trials": told}
        (folder / "search.json").write_text(json.dumps(kept), encoding="utf-8")
    rows = kept["trials"]
    statuses = [status for *_, status in rows if status != "ok"]
    failures = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
    search = Search(tuple(Trial(elapsed, timed) for elapsed, timed, *_ in rows))
    return Found(search, tuple(trace for _, _, trace, _ in rows), failures)


def search_tvm(subject: Subject, threads: int, trials: Sequence[int], folder: Path, interpreter: str) -> Search | str:
    """The same by MetaSchedule, in a process of its own; why there is none when it fails."""
    request = {
        "operator": subject.operator,
        "sizes": list(subject.sizes),
        "threads": threads,
        "trials": list(trials),
        "folder": str(folder),
        "seed": SEED,
    }
    asked = folder / "request.json"
    rows = _read(folder / "search.json")
    if rows is None or _read(asked) != request:
        shutil.rmtree(folder, ignore_errors=True)  # of a search that was stopped: it would go on from its records
        folder.mkdir(parents=True)
        asked.write_text(json.dumps(request), encoding="utf-8")
        command = [interpreter, "-m", TVM_SEARCH.module, str(asked)]
        with (folder / "output.txt").open("w", encoding="utf-8") as output:
            done = subprocess.run(
                command, env=TVM_SEARCH.settings(threads), stdout=output, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode:
            last = (folder / "output.txt").read_text(encoding="utf-8").splitlines()[-1:]
            return f"exit status {done.returncode}: {''.join(last)}"
        rows = _read(folder / "search.json")
    return Search(tuple(Trial(elapsed, seconds) for elapsed, seconds in rows))


def _read(file: Path) -> Any:
    """What a file of JSON holds; None without one."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def first_picks(task: Task) -> dict[str, Any]:
    """Traces that are proposed before anything is measured: by the tuner, by its model alone, and by the estimate.

    The tuner begins with the library's schedule where there is one; the other two are not told about it. The estimate
    has learned nothing, the model what the package brings from other programs.
    """
    space = require_candidates(sketches_of(task), np.random.default_rng(SEED))
    unled = tuple(replace(sketch, start=None) for sketch in space)
    learned = chosen_model(PACKAGED)
    return {
        FIRST: _first(space, make_scorer(task, SEED)),
        ALONE: _first(unled, make_scorer(task, SEED, learned)),
        ESTIMATE: _first(unled, make_scorer(task, SEED)),
    }


def _first(space: tuple[Sketch, ...], scorer: Scorer) -> Any:
    return Knowledge(space, scorer).next_batch(1, np.random.default_rng(SEED))[0].trace.to_json()
