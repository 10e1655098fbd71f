"""Records as rows for the model: every trace describes itself, whatever rule or hand has made it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import numpy as np

from tensorlang.autotune.model.cost_model import Rows, Transferred
from tensorlang.autotune.model.features import feature_names
from tensorlang.autotune.model.judge import judge_of
from tensorlang.autotune.records.record import TuningRecord
from tensorlang.autotune.remade import remake
from tensorlang.autotune.space.draft import Draft
from tensorlang.autotune.task import Task
from tensorlang.dataclass import dataclass
from tensorlang.errors import TensorlangError
from tensorlang.limits import check_time, for_a_record
from tensorlang.schedule import Trace
from tensorlang.schedule.recorded import argument_bytes


@dataclass(frozen=True, slots=True)
class Described:
    """A record that was timed: its estimate in seconds, over terms and over stages, its features and their names."""

    record: TuningRecord
    estimate: float
    terms: dict[str, float]
    stages: dict[str, float]
    row: Rows
    names: tuple[str, ...]


def describe_records(records: Iterable[TuningRecord], run_files: bool = False) -> list[Described]:
    """Describe what is ok among some records, of any programs that can be made again by name.

    Files that records name are run with `run_files` only.
    Records whose traces differ in decisions alone are described together.
    """
    tasks: dict[str, Task | None] = {}
    groups: dict[tuple[str, str], list[tuple[int, TuningRecord, Trace]]] = {}
    for number, record in enumerate(r for r in records if r.ok):
        place = f"{record.workload} {record.workload.key} {record.threads} {record.target}"
        if place not in tasks:
            tasks[place] = _task_of(record, run_files)
        if tasks[place] is not None and (trace := _trace_of(record)) is not None:
            form = trace.with_decisions({name: values[0] for name, values in trace.open.items()}).key
            groups.setdefault((place, form), []).append((number, record, trace))
    found: dict[int, Described] = {}
    for (place, _), members in groups.items():
        task = tasks[place]
        assert task is not None
        made = _describe(task, [(record, trace) for _, record, trace in members])
        found |= dict(zip((number for number, _, _ in members), made, strict=False))
    return [found[number] for number in sorted(found)]


def _task_of(record: TuningRecord, run_files: bool) -> Task | None:
    """The task of a record; None when its program is not here any more, or is another one now."""
    try:
        task = remake(record, run_files=run_files)
    except TensorlangError:
        return None
    return (
        task
        if record.workload.program in ("", task.program.text) and record.workload.key in task.program.keys
        else None
    )


def _trace_of(record: TuningRecord) -> Trace | None:
    try:
        return Trace.from_json(record.trace)
    except TensorlangError:
        return None


def _describe(task: Task, members: Sequence[tuple[TuningRecord, Trace]]) -> list[Described]:
    """Records of one form; none when its trace does not fit the program any more."""
    draft = Draft.of(task.outputs)
    try:
        with for_a_record(argument_bytes(task.program)):
            for step in members[0][1].steps:
                check_time()
                draft.apply(step)
    except Exception:  # a record of anybody
        return []
    judge = judge_of(task.target, task.threads)
    values = {n: np.array([float(trace.decisions[n]) for _, trace in members]) for n in draft.trace.open}
    nests = draft.scheduled.nests(values, len(members))
    guess = judge.estimate(nests)
    rows = judge.features(nests, guess)
    arrays, columns = [nest.output.buffer for nest in nests], judge.names()
    return [
        Described(
            record,
            float(guess.seconds[n]),
            {name: float(term[n]) for name, term in guess.terms.items()},
            {name: float(seconds[n]) for name, seconds in zip(arrays, guess.stages, strict=True)},
            rows[n : n + 1],
            columns,
        )
        for n, (record, _) in enumerate(members)
    ]


def columns_of(described: Sequence[Described]) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Features, estimated and measured seconds."""
    rows = np.concatenate([d.row for d in described])
    estimates = np.array([d.estimate for d in described])
    return rows, estimates, np.array([d.record.median for d in described])


def learn_model(records: Iterable[TuningRecord], seed: int = 0, run_files: bool = False) -> Transferred:
    """Learn from records of any programs on CPUs; RecordError when too few can be described.

    Files that records name are run with `run_files` only.

    What GPUs do is learned anew in every search.
    """
    described = [one for one in describe_records(records, run_files) if one.names == feature_names()]
    if not described:
        return Transferred.learn(np.zeros((0, 1), np.float32), np.zeros(0), np.zeros(0), feature_names(), seed)
    programs = [str(d.record.workload) for d in described]
    return Transferred.learn(*columns_of(described), feature_names(), seed, programs)


def load_model(path: str | os.PathLike[str]) -> Transferred:
    """Read a model file; RecordError when it is not one, or of another version."""
    return Transferred.load(path, feature_names())
