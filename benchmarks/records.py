"""Tuning records: how long a lookup takes in a log of a million, and what its index costs."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.figure import Figure
from tensorlang.autotune import Status, TuningRecord, create_task, find_best
from tensorlang.autotune.records.index import Index, index_path
from tensorlang.autotune.records.log import LogWriter, record_line
from tensorlang.autotune.task import Task
from tensorlang.schedule import create_schedule

RECORDS = 1_000_000
WORKLOADS = 1000
LOOKUPS = 300
LONGEST_LOOKUP = 1.0  # milliseconds


def measure(records: int = RECORDS) -> list[Figure]:
    """Milliseconds of lookups (medians), seconds of building the index, its size as a share of the log's."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        known = _fill(log, records)
        start = time.process_time()
        Index(log).close()
        built = time.process_time() - start
        rng = random.Random(1)
        keys = [task.workload.key for task in known]

        def opened() -> None:
            assert find_best(log, rng.choice(known)).ok

        cold = [_seconds(opened) for _ in range(LOOKUPS)]
        with Index(log) as index:
            place = index.bests(keys[0])[0].place
            warm = [_seconds(lambda: index.best(rng.choice(keys), place)) for _ in range(LOOKUPS)]
            record = index.bests(keys[0])[0]
        with LogWriter(log) as writer:
            writer.append(record)
        grown = _seconds(lambda: Index(log).close())
        share = index_path(log).stat().st_size / log.stat().st_size
    return [
        Figure(
            f"best of a program among {records} records, opening the index",
            1e3 * statistics.median(cold),
            "ms",
            LONGEST_LOOKUP,
        ),
        Figure("the same, one in a hundred takes longer", 1e3 * sorted(cold)[-LOOKUPS // 100 - 1], "ms"),
        Figure(
            f"best of a program among {records} records, index open",
            1e3 * statistics.median(warm),
            "ms",
            LONGEST_LOOKUP,
        ),
        Figure("index one more record", 1e3 * grown, "ms"),
        Figure(f"index {records} records from nothing, processor time", built, "s"),
        Figure("size of the index, of the log's", 100 * share, "%"),
    ]


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _fill(log: Path, records: int) -> list[Task]:
    """Write records of a thousand programs with random times; return the programs."""
    tasks = [create_task("matmul", (24, 40, 16 + n), threads=1) for n in range(min(WORKLOADS, records))]
    task = tasks[0]
    s = create_schedule([t.op for t in task.outputs])
    s[task.outputs[0]].split(task.outputs[0].op.axis[0], factor=8)
    base = TuningRecord(
        task.workload, task.target.to_json(), 1, "", s.trace.to_json(), s.trace.key, {}, Status.OK, (1e-3,)
    )
    rng = random.Random(0)
    lines = [record_line(replace(base, workload=task.workload)) for task in tasks]
    seconds = json.dumps(list(base.seconds)).encode()
    with log.open("wb") as file:
        for n in range(records):
            times = json.dumps([rng.lognormvariate(-7, 0.5) for _ in range(3)]).encode()
            file.write(b"\n" + lines[n % len(lines)].replace(seconds, times) + b"\n")
    return tasks
