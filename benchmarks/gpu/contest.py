"""One workload on a device: results checked first, then timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorlang
from benchmarks.gpu.device import Device
from benchmarks.gpu.given import Given, values
from benchmarks.gpu.operators import Array
from benchmarks.gpu.peers import Library
from benchmarks.gpu.reasons import brief
from benchmarks.gpu.schedules import Scheduler, is_ours, schedulers
from benchmarks.gpu.workloads import COPY, Workload

ROUNDS = 20
LEAST_ROUNDS = 3
SAMPLES = 5
"""Samples of a turn."""
LONG_TURN = 0.2
"""Seconds after which a turn has no further sample."""
PREPARING = 0.6
"""The share of the time for a workload after which no further contestant is prepared."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of one workload. Times are seconds; `samples` are of the turns, by contestant.

    `built`: seconds of scheduling and compiling ours, with nothing cached but what the disk has. `best` is the fastest
    of ours; `share` is the time of `against` (the vendor's library, or a copy of as many bytes) over ours, the median
    over the turns. `absent` says why a contestant has no figure. `problem`: why ours has none.
    """

    workload: str
    operations: float
    bytes: int
    samples: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    built: Mapping[str, float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    best: str = ""
    against: str = ""
    share: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Whose calls are timed; each returns the result."""

    name: str
    call: Callable[[], Any]


@dataclass(slots=True)
class _Preparation:
    """Who takes part, and why others do not."""

    exact: Array
    tolerance: float
    ready: list[Contestant] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)
    built: dict[str, float] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    vendor: set[str] = field(default_factory=set)

    def add(self, name: str, call: Callable[[], Any]) -> None:
        """Run a contestant, and let it take part if its result is right."""
        try:
            found = values(call())
            error = largest_error(found, self.exact)
        except Exception as problem:  # whatever a library raises is why it has no figure
            self.absent[name] = brief(problem)
            return
        self.errors[name] = error
        if error <= self.tolerance:
            self.ready.append(Contestant(name, call))
        else:
            allowed = f"{self.tolerance:.1g} of the largest value is allowed"
            self.absent[name] = f"wrong result: off by {error:.2g}, {allowed}"


def measure(
    workload: Workload,
    device: Device,
    libraries: Sequence[Library],
    seconds: float,
    clock: Clock = time.perf_counter,
    own: Callable[[Workload, str], Mapping[str, Scheduler]] = schedulers,
) -> Outcome:
    """The figures of a workload, taken within about so many seconds."""
    start = clock()
    inputs = workload.inputs()
    given = Given(workload, {name: device.upload(array) for name, array in inputs.items()})
    found = _Preparation(workload.reference(inputs), workload.tolerance)
    for name, scheduler in own(workload, device.target).items():
        begin = clock()
        try:
            call = _own_call(workload, device, given, scheduler)
        except Exception as problem:  # a schedule that cannot be built is a result, too
            found.absent[name] = brief(problem)
            continue
        found.built[name] = clock() - begin
        found.add(name, call)
    for library in libraries:
        if clock() - start > PREPARING * seconds:
            found.absent[library.name] = "no time left for it"
            continue
        _invite(library, given, found)
    if workload.against == COPY:
        found.ready.append(Contestant(COPY, device.copy(workload.bytes // 2)))
    samples = turns(found, device, start + seconds, clock)
    return _outcome(workload, found, samples)


def _own_call(workload: Workload, device: Device, given: Given, scheduler: Scheduler) -> Callable[[], Any]:
    s, tensors = scheduler(workload, device.target)
    kernel = tensorlang.build(s, tensors, target=device.target, name=workload.operator)
    out = device.empty(workload.output, workload.dtype)
    arguments = (*given.arrays.values(), out)

    def call() -> Any:
        kernel(*arguments)
        return out

    return call


def _invite(library: Library, given: Given, found: _Preparation) -> None:
    """Prepare what a library offers; one that is not installed is left out."""
    if not library.versions():
        found.absent[library.name] = f"not installed: {library.distribution}"
        return
    try:
        offered = library.offers(given)
    except Exception as problem:  # as above
        found.absent[library.name] = brief(problem)
        return
    for name, call in offered.items():
        found.add(name, call)
    if library.vendor:
        found.vendor |= set(offered)


def largest_error(got: Array, exact: Array) -> float:
    """The largest difference, as a share of the largest value; not a number counts as infinite."""
    if got.shape != exact.shape:
        raise ValueError(f"wrong result: shape {got.shape}, wanted {exact.shape}")
    difference = float(np.abs(got - exact).max())
    return difference / float(np.abs(exact).max()) if np.isfinite(difference) else np.inf


def turns(found: _Preparation, device: Device, end: float, clock: Clock) -> dict[str, list[list[float]]]:
    """Samples of every turn by contestant: rounds in which each has one turn, until the time is over."""
    samples: dict[str, list[list[float]]] = {c.name: [] for c in found.ready}
    for turn in range(ROUNDS):
        if turn >= LEAST_ROUNDS and clock() > end:
            break
        for contestant in tuple(found.ready):
            try:
                samples[contestant.name].append(_turn(contestant, device))
            except Exception as problem:  # as above
                found.absent[contestant.name] = brief(problem)
                found.ready.remove(contestant)
                del samples[contestant.name]
    return samples


def _turn(contestant: Contestant, device: Device) -> list[float]:
    taken: list[float] = []
    while len(taken) < SAMPLES and sum(taken) < LONG_TURN:
        taken.append(device.sample(contestant.call))
    return taken


def _outcome(workload: Workload, found: _Preparation, samples: Mapping[str, list[list[float]]]) -> Outcome:
    by_turn = {name: [statistics.median(turn) for turn in taken] for name, taken in samples.items()}
    seconds = {name: statistics.median(taken) for name, taken in by_turn.items()}
    ours = [name for name in seconds if is_ours(name)]
    compared = [name for name in seconds if name == COPY or (workload.against != COPY and name in found.vendor)]
    best = min(ours, key=seconds.__getitem__, default="")
    against = min(compared, key=seconds.__getitem__, default="")
    share = None
    if best and against:
        share = statistics.median(a / b for a, b in zip(by_turn[against], by_turn[best], strict=True))
    return Outcome(
        workload=workload.name,
        operations=workload.operations,
        bytes=workload.bytes,
        samples=samples,
        seconds=seconds,
        errors=found.errors,
        built=found.built,
        absent=found.absent,
        best=best,
        against=against,
        share=share,
        problem="" if ours else "; ".join(f"{n}: {why}" for n, why in found.absent.items() if is_ours(n)),
    )
