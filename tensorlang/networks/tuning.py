"""Tuning a compiled network: its kernels under one budget, and those found to be faster in their places."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tensorlang.autotune import Progress, RecordToFile, Result, SearchTask, Task, TaskScheduler, TuningOptions
from tensorlang.autotune.budget import check_budget
from tensorlang.autotune.context import apply_history_best
from tensorlang.autotune.records.store import log_path
from tensorlang.autotune.task import task_of
from tensorlang.dataclass import dataclass
from tensorlang.driver import Lowered, build
from tensorlang.errors import ArgumentError, ScheduleError, TargetError, TensorlangError
from tensorlang.networks.drawing import drawn_inputs
from tensorlang.networks.model import Model, Span, Step
from tensorlang.networks.network import Origin
from tensorlang.runtime.executable import Executable
from tensorlang.te.operation import PlaceholderOp
from tensorlang.topi.dispatch import schedule

_UNLIMITED = 1_000_000
"""Trials, where time alone is bounded."""
_LEAST = 0.002
"""The share of a run below which a kernel is left as it is: a tenth of it would be lost in the noise."""
_BETTER = 0.99
"""The share of a kernel's time that a tuned one takes at most to get its place."""
_RACE = 2.0
"""Seconds for kernels and their rivals to run by turns, in at least a few rounds and not in many."""
_ROUNDS = (5, 50)


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """A kernel that has records: its last sum, the nodes of all of them, and its `calls` in a run of the network.

    `before` and `after` are the seconds of all these calls, as they were and with the best record, by turns in the
    network; equal where the record has the same loops. `taken`: the network has the tuned kernel from now on.
    """

    stage: str
    node: str
    op: str
    calls: int
    trials: int
    before: float
    after: float
    taken: bool


@dataclass(frozen=True, slots=True)
class TunedNetwork:
    """What tuning a network gave. `before` and `after`: seconds of all kernels of a run.

    `kernels`: those that have records, by their time. `left`: why others could not be tuned, by stage. `elapsed`:
    seconds of it all.
    """

    kernels: tuple[TunedKernel, ...]
    left: Mapping[str, str]
    trials: int
    before: float
    after: float
    elapsed: float

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        rows = [{name: getattr(k, name) for name in TunedKernel.__slots__} for k in self.kernels]
        facts = {"trials": self.trials, "before": self.before, "after": self.after, "elapsed": self.elapsed}
        return {**facts, "kernels": rows, "left": dict(self.left)}


@dataclass(frozen=True, slots=True)
class NetworkProgress:
    """What is told after each trial: `trial` as the tuner has it of the kernel of a `stage`, and of the network.

    `begun` of `kernels` have had trials. `before`: seconds of all kernels of a run before, `expected`: what trials make
    one expect of it. `failures` of all kernels by status; `elapsed` in seconds.
    """

    trial: Progress
    stage: str
    node: str
    begun: int
    kernels: int
    trials: int
    failures: Counter[str]
    elapsed: float
    before: float
    expected: float


class Interrupted(KeyboardInterrupt):
    """Tuning was stopped by Ctrl-C: the network has the kernels found so far, and `result` tells which."""

    def __init__(self, result: TunedNetwork) -> None:
        super().__init__("tuning was interrupted; tune again with the same log to go on")
        self.result = result


Told = Callable[[NetworkProgress], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A program of a network: its kernels, a step that has one of them, calls and their seconds in a run."""

    task: Task
    kernels: tuple[Executable, ...]
    step: Step
    calls: int
    seconds: float

    @property
    def origin(self) -> Origin:
        """The node that the kernel is called by."""
        return self.step.origin


def tune_model(
    model: Model,
    seconds: float | None,
    trials: int | None,
    log: str | os.PathLike[str],
    seed: int,
    progress: Told | None,
    inputs: Sequence[Any],
) -> TunedNetwork:
    """Tune a model as `Model.tune` says."""
    begun = time.monotonic()
    check_budget(0 if trials is None else trials, seconds)
    if seconds is None and trials is None:
        raise ArgumentError("tune takes a budget: seconds, or trials")
    model.build_here()
    given = model.checked(inputs) if inputs else drawn_inputs(model)
    times = _fastest([model.timed(given) for _ in range(3)])
    subjects, left = subjects_of(model, times)
    trials_of, stopped = Counter[str](), False
    if subjects:
        watch = _Watch(subjects, sum(times), progress)
        tasks: list[SearchTask] = [_KernelTask.of(subject.task) for subject in subjects]
        weights = [float(subject.calls) for subject in subjects]
        scheduler = TaskScheduler(tasks, weights, load_log_file=log)
        budget = _UNLIMITED if trials is None else trials
        options = TuningOptions(budget, seconds=seconds, verbose=0, measure_callbacks=[RecordToFile(log), watch])
        try:
            scheduler.tune(options, seed)
        except KeyboardInterrupt:
            stopped = True
        trials_of = watch.trials
        left |= {s.step.stage: why for s, t in zip(subjects, tasks, strict=True) if (why := getattr(t, "why", ""))}
        subjects = [s for s, place in zip(subjects, scheduler.standings, strict=True) if place.costs or s in watch]
    result = replace(_replaced(model, subjects, trials_of, log, given, times), left=left)
    result = replace(result, elapsed=time.monotonic() - begun)
    if stopped:
        raise Interrupted(result)
    return result


def subjects_of(model: Model, times: Sequence[float]) -> tuple[list[Subject], dict[str, str]]:
    """The programs of a model that are worth tuning, the longest first, and why others cannot be tuned, by stage."""
    found: dict[str, Subject] = {}
    left: dict[str, str] = {}
    for step, seconds in zip(model.steps, times, strict=True):
        lowered = step.run.origin
        assert isinstance(lowered, Lowered)  # the model was built here
        try:
            task = task_of(lowered.args, f"network {step.origin.op}", (model.name, step.origin.node), lowered.target)
        except TensorlangError as error:
            left[step.stage] = str(error)
            continue
        one = found.get(task.workload.key, Subject(task, (), step, 0, 0.0))
        kernels = tuple(dict.fromkeys((*one.kernels, step.run)))
        found[task.workload.key] = replace(one, kernels=kernels, calls=one.calls + 1, seconds=one.seconds + seconds)
    worth = [subject for subject in found.values() if subject.seconds >= _LEAST * sum(times)]
    return sorted(worth, key=lambda subject: -subject.seconds), left


class _KernelTask(SearchTask):
    """A task of a network, which is left alone where nothing of it can be tuned: others go on."""

    why: str = ""

    def tune(self, *args: Any, **keywords: Any) -> Result:
        """See SearchTask; a result without records where there is no search space."""
        try:
            return super().tune(*args, **keywords)
        except (ScheduleError, TargetError) as error:
            self.why = str(error)
            return Result(self.task, None, (), 0, 0.0, 0.0)


@dataclass(slots=True)
class _Watch:
    """Hears of every trial, and tells of it as one of the network."""

    subjects: Sequence[Subject]
    before: float
    told: Told | None
    trials: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    _start: float = field(default_factory=time.monotonic)
    _first: dict[str, float] = field(default_factory=dict)
    _best: dict[str, float] = field(default_factory=dict)

    def __contains__(self, subject: Subject) -> bool:
        return subject.task.workload.key in self.trials

    def __call__(self, trial: Progress) -> None:
        key = trial.record.workload.key
        self.trials[key] += 1
        if not trial.record.ok:
            self.failures[trial.record.status.value] += 1
        if trial.best is not None:
            self._first.setdefault(key, trial.best.median)
            self._best[key] = trial.best.median
        if self.told is None:
            return
        subject = next(s for s in self.subjects if s.task.workload.key == key)
        gain = sum(s.seconds * (1 - self._share(s.task.workload.key)) for s in self.subjects)
        self.told(
            NetworkProgress(
                trial,
                subject.step.stage,
                subject.origin.node,
                len(self.trials),
                len(self.subjects),
                self.trials.total(),
                Counter(self.failures),
                time.monotonic() - self._start,
                self.before,
                self.before - gain,
            )
        )

    def _share(self, key: str) -> float:
        """The time of the best schedule of a program, in times of that of the first."""
        return self._best[key] / self._first[key] if key in self._first else 1.0


def _replaced(
    model: Model,
    subjects: Sequence[Subject],
    trials: Counter[str],
    log: str | os.PathLike[str],
    inputs: Sequence[Any],
    times: Sequence[float],
) -> TunedNetwork:
    """Give a model the kernels of the best records that are faster in it, by turns with those that it has."""
    rivals = _rivals(subjects, log)
    before, after = _raced(model, rivals, inputs, sum(times)) if rivals else (times, times)
    rows: list[TunedKernel] = []
    taken: dict[Executable, Executable] = {}
    for subject in subjects:
        old, new = (_spent(model, subject, seconds) for seconds in (before, after))
        better = any(kernel in rivals for kernel in subject.kernels) and new < _BETTER * old
        taken |= {kernel: rivals[kernel] for kernel in subject.kernels if better and kernel in rivals}
        origin, count = subject.origin, trials[subject.task.workload.key]
        rows.append(TunedKernel(subject.step.stage, origin.node, origin.op, subject.calls, count, old, new, better))
    now = sum(a if step.run in taken else b for step, b, a in zip(model.steps, before, after, strict=True))
    model.exchange(taken)
    return TunedNetwork(tuple(rows), {}, trials.total(), sum(before), now, 0.0)


def _rivals(subjects: Sequence[Subject], log: str | os.PathLike[str]) -> dict[Executable, Executable]:
    """What the best records of programs make of kernels, where that is another one."""
    found: dict[Executable, Executable] = {}
    if not subjects:
        return found
    with apply_history_best(log_path(log), miss="ignore"):
        for kernel in (kernel for subject in subjects for kernel in subject.kernels):
            made = _tuned(kernel)
            if str(made.kernel) != str(kernel.kernel):
                found[kernel] = made
    return found


def _tuned(kernel: Executable) -> Executable:
    """A kernel with the best schedule that records have of its program."""
    lowered = kernel.origin
    assert isinstance(lowered, Lowered)
    outputs = [tensor for tensor in lowered.args if not isinstance(tensor.op, PlaceholderOp)]
    made = build(schedule(outputs, lowered.target), lowered.args, lowered.target, name="kernel")
    if isinstance(made.origin, Lowered):
        made.origin = replace(made.origin, library=True)
    return made


def _raced(
    model: Model, rivals: Mapping[Executable, Executable], inputs: Sequence[Any], seconds: float
) -> tuple[list[float], list[float]]:
    """The fastest seconds of each step, and those with rivals in their places: whole networks run by turns."""
    rounds = min(max(int(_RACE / max(2 * seconds, 1e-9)), _ROUNDS[0]), _ROUNDS[1])
    turns = [(model.timed(inputs), model.timed(inputs, rivals)) for _ in range(rounds + 1)][1:]
    return _fastest([old for old, _ in turns]), _fastest([new for _, new in turns])


def _fastest(runs: Sequence[Sequence[Span]]) -> list[float]:
    return [min(span.seconds for span in spans) for spans in zip(*runs, strict=True)]


def _spent(model: Model, subject: Subject, times: Sequence[float]) -> float:
    """The seconds of all calls of a program."""
    return sum(spent for step, spent in zip(model.steps, times, strict=True) if step.run in subject.kernels)
