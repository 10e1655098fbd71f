"""What each kernel of a network takes, beside what it would take at least; runs as a file for Perfetto."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tensorlang.dataclass import dataclass
from tensorlang.errors import ArgumentError
from tensorlang.files import writing
from tensorlang.networks.model import Model, Span
from tensorlang.networks.roofline import limits_of, moved_bytes
from tensorlang.profiling.machine import Limit
from tensorlang.profiling.trace import document, span


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What a kernel takes in a run of its network: the last sum, the nodes of all of them, and their operations.

    `algorithm`: "direct", or the other way in which it computes what its node says, which `operations` are of. `bytes`
    of weights and of other arrays, those that are read and those that are written. `limit`: the seconds that it takes
    at least on this machine, where that was asked for.
    """

    stage: str
    node: str
    op: str
    seconds: float
    operations: float
    algorithm: str = "direct"
    bytes: float = 0.0
    limit: Limit | None = None

    @property
    def share(self) -> float | None:
        """Of the limit: 1 is as fast as the machine can be."""
        return None if self.limit is None else self.limit.seconds / self.seconds

    def to_json(self) -> dict[str, Any]:
        """The time as plain data."""
        gflops = self.operations / self.seconds / 1e9
        names = {"stage": self.stage, "node": self.node, "op": self.op, "algorithm": self.algorithm}
        found = {**names, "seconds": self.seconds, "gflops": gflops, "bytes": self.bytes}
        return found if self.limit is None else {**found, "limit": asdict(self.limit), "share": self.share}


def profiled(
    model: Model, inputs: Sequence[Any], repeat: int, roofline: bool, trace: str | os.PathLike[str] | None
) -> tuple[KernelTime, ...]:
    """Time the kernels of a model as `Model.profile` says."""
    if repeat < 1:
        raise ArgumentError(f"repeat is a number of runs, got {repeat}")
    limits = limits_of(model) if roofline else [None] * len(model.steps)
    runs = [model.timed(inputs) for _ in range(repeat)]
    found = tuple(
        KernelTime(
            step.stage,
            step.origin.node,
            step.origin.op,
            min(one.seconds for one in spans),
            step.operations,
            step.algorithm,
            sum(moved_bytes(step, model)),
            limit,
        )
        for step, limit, *spans in zip(model.steps, limits, *runs, strict=True)
        if spans[0].seconds
    )
    if trace is not None:
        runs = [[one for one in spans if one.seconds] for spans in runs]
        with writing(trace):
            Path(trace).write_text(json.dumps(trace_of(model.name, found, runs)), encoding="utf-8")
    return found


def trace_of(name: str, kernels: Sequence[KernelTime], runs: Sequence[Sequence[Span]]) -> dict[str, Any]:
    """Runs of a network for Perfetto. Times are in microseconds from the begin of the first run."""
    start = min((spans[0].begin for spans in runs if spans), default=0.0)
    events = [event for number, spans in enumerate(runs) if spans for event in _run(number, spans, kernels, start)]
    return document(f"network {name}", events)


def _run(number: int, spans: Sequence[Span], kernels: Sequence[KernelTime], start: float) -> Iterator[dict[str, Any]]:
    """A slice for a run, and inside of it one for each kernel."""
    yield span(f"run {number + 1}", "run", spans[0].begin - start, spans[-1].end - spans[0].begin, {})
    for one, kernel in zip(spans, kernels, strict=True):
        about = {"operations": kernel.operations, **replace(kernel, seconds=one.seconds).to_json()}
        yield span(kernel.stage, kernel.op, one.begin - start, one.seconds, about)
