"""Measurers and machines that measure nothing: times are a formula of the trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tensorlang.autotune.measuring.harness import BATCH, Harness, Limits, Measured, Measurement
from tensorlang.autotune.measuring.supply import Supply
from tensorlang.autotune.records.record import Status
from tensorlang.autotune.task import Task
from tensorlang.target import parse
from tensorlang.target.spec import Target

from ..fakes import NothingToOpen


def split_seconds(trace: Any) -> float:
    """Least when the splits are by 4, 8 and 4; annotations are worth a little."""
    factors = [step["factor"] for step in trace if step["step"] == "split"]
    seconds = 1e-3
    for factor, best in zip(factors, (4, 8, 4), strict=False):
        seconds *= 1 + abs(factor - best) / best
    return seconds * (0.9 if any(step["step"] == "vectorize" for step in trace) else 1.0)


@dataclass
class FakeMeasurer(NothingToOpen):
    """Answers at once; `broken` says which traces fail, `batches` how many came at a time; `backwards`: last first."""

    seconds: Callable[[Any], float] = split_seconds
    broken: Callable[[Any], bool] = lambda trace: False
    seen: list[Any] = field(default_factory=list)
    batch: int = BATCH
    batches: list[int] = field(default_factory=list)
    backwards: bool = False

    def measure(self, traces: Iterable[Any], best: Callable[[], float | None], deadline: float = math.inf) -> Measured:
        supply = Supply(traces)
        while supply.refill(self.batch):
            given = list(supply.waiting)
            supply.waiting.clear()
            self.batches.append(len(given))
            self.seen += [trace for _, trace in given]
            for position, trace in given[::-1] if self.backwards else given:
                if self.broken(trace):
                    yield position, Measurement(Status.CRASH, error="it fell over")
                else:
                    yield position, Measurement(Status.OK, (self.seconds(trace),), checked=True)
            supply.reopen()

    def peak_gflops(self) -> float:
        return 100.0


@dataclass
class FakeMachines:
    """Machines elsewhere with another CPU, whose harnesses are fakes; tasks for this one become tasks for theirs."""

    target: Target
    fakes: list[FakeMeasurer] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    batch: int = BATCH
    seconds: Callable[[Any], float] = split_seconds

    def target_of(self, text: str | Target | None) -> str | Target | None:
        return self.target

    def fit(self, task: Task) -> Task:
        here = task.target == replace(parse("llvm"), cores=task.threads)
        return replace(task, target=replace(self.target, cores=task.threads)) if here else task

    def harness(self, task: Task, seed: int, limits: Limits) -> Harness:
        self.fakes.append(FakeMeasurer(self.seconds, batch=self.batch))
        self.limits.append(limits)
        return cast(Harness, self.fakes[-1])


def fake_measurer(**settings: Any) -> tuple[Harness, FakeMeasurer]:
    """A fake as the tuners take it, and as tests look at it."""
    fake = FakeMeasurer(**settings)
    return cast(Harness, fake), fake
